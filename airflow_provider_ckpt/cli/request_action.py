"""Request an action on a pipeline and write its result, for all commands that change a pipeline.

While a run holds the lease, the action is only stored, and the lease holder applies it; the result names that holder.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from airflow_provider_ckpt.cli.identity import actor, given_reason
from airflow_provider_ckpt.cli.output import write_table
from airflow_provider_ckpt.core.action import NEED_COLUMNS, NEED_NEW_EPOCH, Action
from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext, apply_in_ledger
from airflow_provider_ckpt.replication.actions.result_document import change_rows

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger


@contextmanager
def action_context(args: Namespace, *, required_by: str | None = None) -> Iterator[ActionContext]:
    """Open the ledger for a command, and yield the context of an action: ledger, pipeline, actor and reason.

    :param args: the command's arguments
    :param required_by: name of the command if it requires a reason; None if the reason is optional
    :raises ConfigError: if a required reason is missing
    """
    from airflow_provider_ckpt.cli.context import context_of
    from airflow_provider_ckpt.ledger_location import open_ledger

    reason = given_reason(args, required_by=required_by)
    with open_ledger(args.ledger) as ledger:
        yield ActionContext(ledger, args.pipeline, partial(context_of, args, ledger), actor(), reason, args.dry_run)


def request_action(args: Namespace, action: Action) -> dict[str, Any]:
    """Apply an action in the ledger, or store it for the holder of the lease, and return its result, JSON-ready.

    :param args: the command's arguments
    :param action: the action
    :raises LedgerStateError: if the pipeline's state does not allow the action
    """
    with action_context(args) as context:
        return apply_in_ledger(context, action)


def stored_actions(ledger: Ledger, pipeline: str) -> list[dict[str, Any]]:
    """Return the stored actions on a pipeline that no run has applied yet, JSON-ready and oldest first."""
    return [
        {
            "intent": intent.id,
            "action": intent.action.kind.value,
            "actor": intent.actor,
            "reason": intent.reason,
            "stored": intent.stored_at.isoformat(),
        }
        for intent in ledger.stored_actions(pipeline)
    ]


def write_result(result: dict[str, Any], out: TextIO) -> None:
    """Write the result of an action as tables: pipeline, action and outcome, then each changed value before and after.

    :param result: result document of the action
    :param out: text file to write to, such as the standard output
    """
    rows: list[tuple[str, Any]] = [
        ("pipeline", result["pipeline"]),
        ("action", result["action"]),
        ("done", _done_text(result)),
    ]
    if result["reason"]:
        rows.append(("reason", result["reason"]))
    if result["next"]:
        rows.append(("next", result["next"]))
    write_table(rows, out)
    changed = list(change_rows(result["before"], result["after"]))
    if changed:
        write_table(changed, out, ("", "before", "after"))


def _done_text(result: dict[str, Any]) -> str:
    holder = result["waits_for"]
    if result["dry_run"]:
        return (
            f"no, this is a dry run; the action would wait for {holder['owner']}" if holder else "no, this is a dry run"
        )
    if result["applied"]:
        return "yes"
    if result["action"] in NEED_COLUMNS:
        return f"stored as action {result['intent']}; the next run applies it"
    owner = f"{holder['owner']}, epoch {holder['epoch']}" if holder["owner"] else "a run that has ended meanwhile"
    if result["action"] in NEED_NEW_EPOCH:
        return f"stored as action {result['intent']}; the next run applies it, after {owner} has released the lease"
    return f"stored as action {result['intent']}; the run that holds the lease applies it: {owner}"
