"""Texts about an action for the page: a sentence that describes the action, and a remark about its consequences."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_ckpt.core.action import NEED_RECEIPTS_READ, Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.ledger.types import ActionResult

_SUMMARIES: Mapping[ActionKind, str] = {
    ActionKind.BREAK_LEASE: "Take the lease from its holder, and fence the holder in the ledger.",
    ActionKind.DELETE_PIPELINE: "Delete all that the ledger stores of the pipeline, except its audit log.",
}
_REMARKS: Mapping[ActionKind, str] = {
    ActionKind.REWIND: "Everything after the new checkpoint is read and delivered again; a sink that appends gets rows "
    "twice.",
    ActionKind.BREAK_LEASE: "From then on the ledger refuses every command of the holder, so it settles nothing more. "
    "What it has in flight stays open until the next run, which first fences the holder in the sink and reads its "
    "receipts. A force stop fences the sink at once.",
    ActionKind.COLLECT_GARBAGE: "Runs go on meanwhile. The receipts of the current generations, the index of dead "
    "letters and the newest event are always kept. A rewind to a time before this one is no longer possible.",
    ActionKind.DELETE_PIPELINE: "The sink is not changed: it keeps rows and receipts. A DAG that still runs the "
    "pipeline creates it again in the ledger.",
}
NOTHING: Mapping[ActionKind, str] = {
    ActionKind.BREAK_LEASE: "Nobody holds the lease.",
    ActionKind.COLLECT_GARBAGE: "Nothing that may be deleted is that old.",
}
"""By kind of action, the sentence that says that there is nothing to do. For other kinds, the sentence is formed from
the action's name.
"""


def summary(action: Action, records: int) -> str:
    """Return one sentence that says what an action does.

    :param action: the action
    :param records: number of dead letters on which it acts
    """
    if action.older_than is not None:
        return f"Delete history from before {action.older_than:%Y-%m-%d %H:%M} UTC that recovery does not need."
    if action.kind in _SUMMARIES:
        return _SUMMARIES[action.kind]
    name = action.kind.value.replace("_", " ").capitalize()
    if action.dead_letters:
        return f"{name}: {records:,} {'record' if records == 1 else 'records'}."
    if action.batches:
        number = len(action.batches)
        return f"{name} {action.batches[0] if number == 1 else f'{number:,} batches'}."
    if action.positions:
        return f"{name}: {', '.join(f'{name} to {to}' for name, to in sorted(action.positions.items()))}."
    if action.ranges:
        return f"{name}: {', '.join(f'{span} of {name}' for name, span in action.ranges)}."
    return f"{name} the pipeline."


def remark(result: ActionResult) -> str | None:
    """Return a sentence for the user about the consequences of an action; None if there is nothing to explain.

    :param result: result of the action, or of its dry run
    """
    kind = result.action.kind
    if kind in _REMARKS:
        return _REMARKS[kind]
    if kind is ActionKind.SKIP:
        states = result.after.get("batches", {})
        begun = [name for name, state in states.items() if state in (BatchState.PLANNED, BatchState.IN_FLIGHT)]
        if begun:
            return (
                f"{len(begun):,} of them have begun before: the next attempt claims `void` in the sink; "
                "if one was delivered after all, its receipt remains."
            )
    if kind in NEED_RECEIPTS_READ:
        return "The next run applies it."
    return None
