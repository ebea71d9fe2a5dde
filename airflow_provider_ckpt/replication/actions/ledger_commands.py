"""Make and carry out actions that need the ledger alone: break a lease, collect garbage, delete a pipeline.

``airflow ckpt`` and the page in Airflow call this module, for a dry run or to change the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.table_sink_section import TableSinkSection
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import side_kind
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from airflow_provider_ckpt.core.ranges import position_text
from airflow_provider_ckpt.ledger.types import ActionResult
from airflow_provider_ckpt.replication.process_lease_owner import is_dead, is_held
from airflow_provider_ckpt.replication.setup import stored_pipeline

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext

LEDGER_COMMANDS = frozenset({ActionKind.BREAK_LEASE, ActionKind.COLLECT_GARBAGE, ActionKind.DELETE_PIPELINE})
"""Kinds of the actions that this module makes and carries out."""

_ROWS = {"intents": "stored actions", "marks": "snapshots of positions", "merged_receipts": "receipts to merge"}
"""Names that users see for some kinds of rows that garbage collection deletes, by the name of the kind in the code."""


def break_lease(context: ActionContext) -> Action | None:
    """Return the action that takes the lease from its present holder; None if nobody holds the lease.

    Nothing is changed until :func:`carry_out` is called.

    :param context: ledger and pipeline
    """
    lease = context.ledger.status(context.pipeline)["lease"]
    return None if lease["owner"] is None else Action(ActionKind.BREAK_LEASE, epoch=lease["epoch"])


def collect_garbage(context: ActionContext, keep: timedelta) -> Action | None:
    """Return the action that deletes old history which recovery does not need; None if there is no such history.

    Nothing is deleted until :func:`carry_out` is called.

    :param context: ledger, pipeline and actor
    :param keep: age up to which rows of the ledger are kept
    """
    action = Action(ActionKind.COLLECT_GARBAGE, older_than=datetime.now(UTC) - keep)
    return action if _collect(context, action, dry_run=True).before else None


def delete_pipeline(context: ActionContext) -> Action:
    """Return the action that deletes the pipeline; nothing is deleted until :func:`carry_out` is called.

    :func:`carry_out` refuses the action if a run has acquired the lease in between.

    :param context: ledger and pipeline
    :raises LedgerStateError: if a run holds the lease now
    """
    lease = context.ledger.status(context.pipeline)["lease"]
    if is_held(lease):
        raise LedgerStateError(
            f"{lease['owner']} holds the lease.",
            pipeline=context.pipeline,
            hint="Delete the pipeline when its run has ended; pause its DAG, so that no other run begins.",
        )
    return Action(ActionKind.DELETE_PIPELINE, epoch=lease["epoch"])


def data_to_lose(ledger: Ledger, pipeline: str) -> dict[str, Any]:
    """Return the data that deleting a pipeline removes from the ledger: checkpoints, batches and dead letters.

    ``staging_tables`` has the names of tables that a refresh may have left beside the target. They are not removed,
    since the command does not open the sink.

    :param ledger: the ledger
    :param pipeline: name of the pipeline
    :raises ConfigError: if the ledger does not know the pipeline
    """
    status = ledger.status(pipeline)
    return {
        "pipeline": pipeline,
        "checkpoints": {part["id"]: part["committed"] for part in status["partitions"]},
        "batches": status["batches"],
        "dead_letters": sum(status["dead_letters"].values()),
        "staging_tables": _staging_tables(ledger, pipeline, status),
    }


def _staging_tables(ledger: Ledger, pipeline: str, status: Mapping[str, Any]) -> list[str]:
    """Return the names of the staging tables that the pipeline's newest refresh may have left beside its target.

    :param ledger: the ledger
    :param pipeline: name of the pipeline
    :param status: the pipeline's status
    """
    try:
        sink = stored_pipeline(ledger, pipeline, instead="--file").sink
    except ConfigError:  # no run has stored a declaration, or another version has stored one that this one refuses
        return []
    if not isinstance(sink, TableSinkSection) or sink.replaces is None:
        return []
    context = SinkContext(ledger.sink_id(pipeline), pipeline)
    generations = (part["generation"] for part in status["partitions"] if side_kind(part["id"]) is None)
    return [name for number in generations if (name := sink.staging_table(number, context)) is not None]


def carry_out(context: ActionContext, action: Action) -> ActionResult:
    """Carry out an action of :data:`LEDGER_COMMANDS`, or only determine its effect in a dry run; return the result.

    :param context: ledger, pipeline, actor and reason, whether it is a dry run, and the approved proposal
    :param action: the action
    :raises LeaseBusyError: if a run holds the lease of a pipeline that is to be deleted
    :raises LedgerStateError: if a run has acquired the lease since the action was made, or the proposal is for another
        action; nothing is changed then
    """
    return _COMMANDS[action.kind](context, action, dry_run=context.dry_run)


def _break(context: ActionContext, action: Action, *, dry_run: bool) -> ActionResult:
    lease = context.ledger.status(context.pipeline)["lease"]
    state = "held by" if lease["held"] else "expired, of"
    before = {"lease": f"{state} {lease['owner']}, epoch {lease['epoch']}"}
    epoch = lease["epoch"] + 1
    if not dry_run:
        epoch = context.ledger.break_lease(
            context.pipeline,
            actor=context.actor,
            reason=context.reason or "",
            epoch=action.epoch,
            proposal=context.proposal,
        ).epoch
    return ActionResult(action, applied=not dry_run, before=before, after={"lease": f"free, epoch {epoch}"})


def _collect(context: ActionContext, action: Action, *, dry_run: bool) -> ActionResult:
    assert action.older_than is not None
    now = datetime.now(UTC)
    counts = context.ledger.garbage_collect(
        context.pipeline,
        keep=now - action.older_than,
        actor=context.actor,
        reason=context.reason,
        now=now,
        dry_run=dry_run,
        proposal=context.proposal,
    )
    before = {f"old {_ROWS.get(kind, kind.replace('_', ' '))}": rows for kind, rows in counts.items() if rows}
    return ActionResult(action, applied=not dry_run, before=before, after=dict.fromkeys(before, 0))


def _delete(context: ActionContext, action: Action, *, dry_run: bool) -> ActionResult:
    found = data_to_lose(context.ledger, context.pipeline)
    before: dict[str, Any] = {
        f"checkpoint of {name}": position_text(position) for name, position in found["checkpoints"].items()
    }
    before |= {f"{state.replace('_', ' ')} batches": number for state, number in found["batches"].items()}
    before["dead letters"] = found["dead_letters"]
    after = dict.fromkeys(before, "deleted")
    for name in found["staging_tables"]:
        before[f"staging table {name}"] = "in the sink, if a refresh has left it"
        after[f"staging table {name}"] = "stays; drop it by hand"
    if not dry_run:
        context.ledger.delete_pipeline(
            context.pipeline,
            actor=context.actor,
            reason=context.reason or "",
            is_dead=is_dead,
            epoch=action.epoch,
            proposal=context.proposal,
        )
    return ActionResult(action, applied=not dry_run, before=before, after=after)


_COMMANDS: Mapping[ActionKind, Callable[..., ActionResult]] = {
    ActionKind.BREAK_LEASE: _break,
    ActionKind.COLLECT_GARBAGE: _collect,
    ActionKind.DELETE_PIPELINE: _delete,
}
