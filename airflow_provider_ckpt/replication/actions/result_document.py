"""Build the result document of an action: whether it was applied, and the state before and after it, JSON-ready."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.action import PHASE_ACTIONS, Action
from airflow_provider_ckpt.core.ranges import position_text
from airflow_provider_ckpt.replication.process_lease_owner import is_held

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.types import ActionResult
    from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext


def result_document(context: ActionContext, result: ActionResult) -> dict[str, Any]:
    """Return the result of an action as a JSON-ready document, for the command line and XCom.

    Its key ``waits_for`` names the holder of the lease if the action was stored for that run, or would be stored if
    this were no dry run; else it is None.

    :param context: ledger, pipeline, actor and reason of the action
    :param result: the result
    """
    lease = context.ledger.status(context.pipeline)["lease"]
    waits = result.intent is not None or (context.dry_run and is_held(lease))
    return {
        "pipeline": context.pipeline,
        "action": result.action.kind.value,
        "applied": result.applied,
        "dry_run": context.dry_run,
        "intent": result.intent,
        "waits_for": {name: lease[name] for name in ("owner", "epoch", "expires")} if waits else None,
        "before": dict(result.before),
        "after": dict(result.after),
        "actor": context.actor,
        "reason": context.reason,
        "next": _cancelled_replays(result) or _unchanged_remark(result),
    }


def _cancelled_replays(result: ActionResult) -> str | None:
    """Return a remark that names the replays which the action cancelled; None if it cancelled none.

    A rewind cancels each replay of dead letters whose records it reads again, and so does an acceptance of a sink to
    which records are sent again.
    """
    if not result.action.cancelled_replays:
        return None
    names = ", ".join(result.action.cancelled_replays)
    return (
        f"{names}: cancelled, since the records of its dead letters are read again; its other dead letters are parked"
    )


def _unchanged_remark(result: ActionResult) -> str | None:
    """Return a remark if the pipeline was already in the phase that the action requests; else None.

    For example: ``nothing has changed: the pipeline was stopped already``.

    :param result: result of the action
    """
    if result.action.kind not in PHASE_ACTIONS or not result.before or result.before != result.after:
        return None
    return f"nothing has changed: the pipeline was {result.before['phase']} already"


def change_rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the changes of an action as rows of name, value before and value after, for display.

    :param before: state before the action, from the result document
    :param after: state after the action, from the result document
    """
    if "phase" not in before:  # the action does not change batches or positions, or did nothing
        for what, was in before.items():
            yield what, str(was), str(after[what])
        return
    for name in ("phase", "held"):
        if before[name] != after[name]:
            yield name, str(before[name]), str(after[name])
    dead_letters = [before.get("dead_letters", {}), after.get("dead_letters", {})]
    for state in sorted({*dead_letters[0], *dead_letters[1]}):
        yield (
            f"dead letters {state.replace('_', ' ')}",
            str(dead_letters[0].get(state, 0)),
            str(dead_letters[1].get(state, 0)),
        )
    for batch, state in before["batches"].items():
        yield batch, state or "-", after["batches"][batch] or "below the checkpoint"
    for name, was in before.get("sink", {}).items():
        if was != after["sink"][name]:
            yield f"sink {name}", str(was), str(after["sink"][name] or "as the next run finds it")
    for name, was in before["checkpoint"].items():
        now = after["checkpoint"][name]
        yield f"checkpoint of {name}", _checkpoint_text(*was), _checkpoint_text(*now)


def _checkpoint_text(generation: int, position: int) -> str:
    """Return a checkpoint as text for display, such as ``1200 (generation 2)``.

    :param generation: generation of the partition
    :param position: position of the checkpoint
    """
    return f"{position_text(position)} (generation {generation})"


def empty_document(context: ActionContext, action: Action) -> dict[str, Any]:
    """Return the result document of an action on dead letters whose selection matches no dead letter.

    :param context: ledger, pipeline, actor and reason of the action
    :param action: the action
    """
    return {
        "pipeline": context.pipeline,
        "action": action.kind.value,
        "applied": False,
        "dry_run": context.dry_run,
        "intent": None,
        "waits_for": None,
        "before": {},
        "after": {},
        "actor": context.actor,
        "reason": context.reason,
        "next": "nothing: no dead letter of this selection is parked",
    }
