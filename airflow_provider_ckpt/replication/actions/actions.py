"""Carry out, store or preview users' actions, and return the result as a document.

The command line and the operators call these functions, so that both return the same document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.actions import PHASE_ACTIONS, Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letter_selection import Selection
from airflow_provider_ckpt.core.dead_letters import UNKNOWN_TYPE
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType, LedgerStateError
from airflow_provider_ckpt.core.ranges import START, position_text
from airflow_provider_ckpt.replication.actions import accept_sink, dead_letters
from airflow_provider_ckpt.replication.actions.fenced_actions import apply_fenced, apply_fenced_or_store
from airflow_provider_ckpt.replication.process_lease_owner import is_dead, is_held

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.ledger.types import ActionResult
    from airflow_provider_ckpt.replication.setup import PipelineContext


@dataclass(frozen=True, slots=True)
class ActionContext:
    """Context of an action: ledger, pipeline, actor and reason.

    :param ledger: the ledger, open
    :param pipeline: name of the pipeline
    :param setup: creates the pipeline's setup, called only for an action that needs source or sink
    :param actor: the actor, which the audit log stores
    :param reason: the user's explanation, which the audit log stores
    :param dry_run: report the result of the action without changing anything
    :param proposal: id of the approved proposal that the action carries out, which cannot be used again; None if the
        action needs no approval
    """

    ledger: Ledger
    pipeline: str
    setup: Callable[[], PipelineContext]
    actor: str
    reason: str | None = None
    dry_run: bool = False
    proposal: str | None = None


def parse_batch_keys(texts: Iterable[str]) -> tuple[BatchKey, ...]:
    """Parse the names of batches, such as ``orders-0#17``.

    :raises ConfigError: if a text is not a batch's name
    """
    try:
        return tuple(BatchKey.parse(text) for text in texts)
    except ValueError as error:
        raise ConfigError(f"{error}.") from error


def apply_in_ledger(context: ActionContext, action: Action) -> dict[str, Any]:
    """Have the ledger apply an action, or store it for the run that holds the lease, and return the result document.

    :raises LedgerStateError: if the state of the pipeline or of a batch does not allow the action
    """
    try:
        result = context.ledger.action(
            context.pipeline,
            action,
            actor=context.actor,
            reason=context.reason,
            is_dead=is_dead,
            dry_run=context.dry_run,
            proposal=context.proposal,
        )
    except LedgerStateError as refusal:
        refusal.hint = refusal.hint or f"See: airflow ckpt inspect {context.pipeline}"
        raise
    return result_document(context, result)


def apply_behind_fence(context: ActionContext, action: Action) -> dict[str, Any]:
    """Apply an action after fencing the sink, or store it for the run that holds the lease; return the result document.

    :raises LedgerStateError: if the state of the pipeline or of a batch does not allow the action
    """
    if context.dry_run:
        return apply_in_ledger(context, action)
    result = apply_fenced_or_store(
        context.setup(), action, actor=context.actor, reason=context.reason, proposal=context.proposal
    )
    return result_document(context, result)


def force_stop(context: ActionContext) -> dict[str, Any]:
    """Take the lease from its run, fence the sink, and abandon what is in flight; return the result document."""
    action = Action(ActionKind.FORCE_STOP)
    if context.dry_run:
        return apply_in_ledger(context, action) | {"waits_for": None}
    result = apply_fenced(
        context.setup(), action, actor=context.actor, reason=context.reason, proposal=context.proposal
    )
    return result_document(context, result)


def change_sink(context: ActionContext, action: Action) -> dict[str, Any]:
    """Accept the sink as it is, or move to another one; such an action is never stored. Return the result document.

    :param action: action that :func:`~airflow_provider_ckpt.replication.actions.accept_sink.make_acceptance` or
        :func:`~airflow_provider_ckpt.replication.actions.accept_sink.make_move` returned
    :raises LeaseBusyError: if a run still holds the lease after the pipeline's wait for it
    :raises LedgerStateError: if sink or pipeline have changed since the action was made; nothing was changed
    """
    if context.dry_run:
        return preview_sink_change(context, action) | {"waits_for": None, "next": _describe_resend(action)}
    result = result_document(
        context,
        accept_sink.apply_sink_change(
            context.setup(), action, actor=context.actor, reason=context.reason, proposal=context.proposal
        ),
    )
    return result | {"next": _describe_resend(action)}


def preview_sink_change(context: ActionContext, action: Action) -> dict[str, Any]:
    """Return the result document of a dry run of an acceptance of the sink or a move.

    :raises LedgerStateError: if the state of the pipeline or the sink does not allow the action
    """
    if action.kind is ActionKind.MOVE:
        return apply_in_ledger(context, action)
    return result_document(
        context, accept_sink.try_acceptance(context.setup(), action, actor=context.actor, reason=context.reason)
    )


def _describe_resend(action: Action) -> str:
    """Return a sentence for the user: the records that runs send again after an acceptance of the sink or a move."""
    if action.kind is ActionKind.MOVE:
        parts = ["the next run delivers to the sink that its declaration names, from the checkpoint on"]
    else:
        parts = [
            f"{name} is sent again from {'its beginning' if position == START else position} on"
            for name, position in sorted(action.positions.items())
        ]
        parts += [f"{span} of {name} is sent again" for name, span in action.ranges]
    if action.dead_letters:
        parts.append(
            f"{sum(item.records for item in action.dead_letters)} replayed dead letters are parked again; replay them"
        )
    if action.batches:
        names = ", ".join(map(str, action.batches))
        parts.append(f"{names}: held, since it is unknown whether they were delivered; release or skip them")
    return "; ".join(parts) or "runs continue from the checkpoint, and nothing is sent again"


def skip_batches(context: ActionContext, batches: Iterable[str]) -> dict[str, Any]:
    """Skip batches, and return the result document.

    :param context: ledger, pipeline, actor and reason of the action
    :param batches: names of the batches
    :raises LedgerStateError: if the state of a batch does not allow that
    """
    result = apply_in_ledger(context, Action(ActionKind.SKIP, parse_batch_keys(batches)))
    states = result["after"].get("batches", {})
    started = sorted(batch for batch, state in states.items() if state in (BatchState.PLANNED, BatchState.IN_FLIGHT))
    if started:
        result["next"] = (
            f"{', '.join(started)}: begun before, so the next attempt claims `void` in the sink; "
            "if it was delivered after all, its receipt remains"
        )
    return result


def act_on_dead_letters(
    context: ActionContext, kind: ActionKind, selection: Selection, query: str | None
) -> dict[str, Any]:
    """Replay or discard the parked dead letters of a selection; return the result with their number.

    :param context: ledger, pipeline, actor and reason of the action
    :param kind: replay or discard
    :param selection: the dead letters
    :param query: only dead letters that contain this text
    """
    action = dead_letters.make_action(context.setup(), kind, selection, query)
    if not action.dead_letters:
        result = _empty_document(context, action)
    elif kind is ActionKind.REPLAY_DEAD_LETTERS:
        result = apply_behind_fence(context, action)
        if result["applied"]:
            result["next"] = "the next run sends them"
    else:
        result = apply_in_ledger(context, action)
    return result | {"records": sum(item.records for item in action.dead_letters)}


def parse_selection(
    types: Iterable[str], batches: Iterable[str], since: str | None, until: str | None, stop_at: int | None
) -> Selection:
    """Parse the options by which a user selects dead letters.

    :param types: names of error types; all if empty
    :param batches: batches as ``partition#seq``; all if empty
    :param since: time from which records became dead letters, ISO 8601
    :param until: time before which records became dead letters, ISO 8601
    :param stop_at: maximum number of dead letters
    :raises ConfigError: if an option cannot be parsed
    """
    if stop_at is not None and stop_at < 1:
        raise ConfigError("the number of dead letters to stop at must be at least 1.")
    return Selection(
        parse_error_types(types),
        frozenset(parse_batch_keys(batches)),
        parse_time(since) if since else None,
        parse_time(until) if until else None,
        stop_at,
    )


def parse_error_types(names: Iterable[str]) -> frozenset[str]:
    """Check the names of error types, and return them as a set.

    :raises ConfigError: if no error type has this name
    """
    found = frozenset(names)
    known = {kind.lower(): kind for kind in (*(kind.value for kind in ErrorType), UNKNOWN_TYPE)}
    for name in sorted(found - set(known.values())):
        close = get_close_matches(name.lower(), known, 1)
        advice = f"Did you mean {known[close[0]]}?" if close else f"Known: {', '.join(known.values())}."
        raise ConfigError(f"there is no error type {name!r}.", hint=advice)
    return found


def parse_time(text: str) -> datetime:
    """Parse an ISO 8601 time and return it in UTC; a time without a zone is UTC.

    :raises ConfigError: if the text is not such a time
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a time.", hint="Write it as 2026-01-31T18:00:00+01:00; without a zone it is UTC."
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def result_document(context: ActionContext, result: ActionResult) -> dict[str, Any]:
    """Return the result of an action as a JSON-ready document, for the command line and XCom.

    ``waits_for`` is the lease's holder if the action was stored for that run, or in a dry run would be stored.
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
        "next": _taken_back(result) or _unchanged_remark(result),
    }


def _taken_back(result: ActionResult) -> str | None:
    """Return a remark that names replays cancelled because their records are read again; None without any."""
    if not result.action.taken_back:
        return None
    names = ", ".join(result.action.taken_back)
    return (
        f"{names}: cancelled, since the records of its dead letters are read again; its other dead letters are parked"
    )


def _unchanged_remark(result: ActionResult) -> str | None:
    """Return a remark if the pipeline was in the requested phase already, else None."""
    if result.action.kind not in PHASE_ACTIONS or not result.before or result.before != result.after:
        return None
    return f"nothing has changed: the pipeline was {result.before['phase']} already"


def change_rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the changes of an action as rows of name, value before and value after, for display.

    :param before: state before the action, from the result document
    :param after: state after the action, from the result document
    """
    if not before:
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
    """Return a checkpoint as text, such as ``1200 (generation 2)``."""
    return f"{position_text(position)} (generation {generation})"


def _empty_document(context: ActionContext, action: Action) -> dict[str, Any]:
    """Return the result document of an action on dead letters whose selection matches no dead letter."""
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
