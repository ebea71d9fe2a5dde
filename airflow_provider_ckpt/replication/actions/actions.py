"""Carry out, store or preview users' actions, and return the result as a document.

The command line and the operators call these functions, so that both return the same document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.actions import OF_PHASES, Act, ActKind
from airflow_provider_ckpt.core.batch import BatchKey, BatchState
from airflow_provider_ckpt.core.dead_letters import UNTYPED, Selection
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType, LedgerStateError
from airflow_provider_ckpt.replication.actions import dead_letters, sink_changes
from airflow_provider_ckpt.replication.actions.fenced_actions import carry_out, carry_out_or_store
from airflow_provider_ckpt.replication.owner import is_dead, is_held

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.ledger.types import ActResult
    from airflow_provider_ckpt.replication.setup import Setup


_LEAST = -(2**63)
"""Start of a partition that has no first position of its own."""


@dataclass(frozen=True, slots=True)
class Errand:
    """Context of an action: ledger, pipeline, actor and reason.

    :param ledger: the ledger, open
    :param pipeline: name of the pipeline
    :param setup: creates the setup for an action that needs source or sink
    :param who: the actor, which the audit log stores
    :param why: the actor's reason, which the audit log stores
    :param dry_run: report the result of the action without changing anything
    :param proposal: id of the approved proposal that the action uses up
    """

    ledger: Ledger
    pipeline: str
    setup: Callable[[], Setup]
    who: str
    why: str | None = None
    dry_run: bool = False
    proposal: str | None = None


def batch_keys(texts: Iterable[str]) -> tuple[BatchKey, ...]:
    """Parse the names of batches.

    :raises ConfigError: if one is not a batch's name
    """
    try:
        return tuple(BatchKey.parse(text) for text in texts)
    except ValueError as error:
        raise ConfigError(f"{error}.") from error


def in_ledger(errand: Errand, act: Act) -> dict[str, Any]:
    """Have the ledger apply or store an action, and return the result document.

    :raises LedgerStateError: if the action does not fit
    """
    try:
        result = errand.ledger.act(
            errand.pipeline,
            act,
            who=errand.who,
            why=errand.why,
            is_dead=is_dead,
            dry_run=errand.dry_run,
            proposal=errand.proposal,
        )
    except LedgerStateError as refusal:
        refusal.hint = refusal.hint or f"See: airflow ckpt inspect {errand.pipeline}"
        raise
    return report(errand, result)


def behind_fence(errand: Errand, act: Act) -> dict[str, Any]:
    """Apply an action after fencing the sink, or store it for the holder of the lease; return the result document.

    :raises LedgerStateError: if the action does not fit
    """
    if errand.dry_run:
        return in_ledger(errand, act)
    result = carry_out_or_store(errand.setup(), act, who=errand.who, why=errand.why, proposal=errand.proposal)
    return report(errand, result)


def force_stop(errand: Errand) -> dict[str, Any]:
    """Take the lease from its holder, fence the sink, and abandon what is in flight; return the result document."""
    act = Act(ActKind.FORCE_STOP)
    if errand.dry_run:
        return in_ledger(errand, act) | {"waits_for": None}
    result = carry_out(errand.setup(), act, who=errand.who, why=errand.why, proposal=errand.proposal)
    return report(errand, result)


def of_the_sink(errand: Errand, act: Act) -> dict[str, Any]:
    """Accept the sink as it is, or move to another one; such an action is never stored. Return the result document.

    :param act: action that :func:`~airflow_provider_ckpt.replication.actions.sink_changes.accept` or
        :func:`~airflow_provider_ckpt.replication.actions.sink_changes.move` returned
    :raises LeaseBusyError: if a run still holds the lease after the pipeline's wait for it
    :raises LedgerStateError: if the action no longer fits; nothing was changed
    """
    if errand.dry_run:
        return look_at_sink(errand, act) | {"waits_for": None, "next": _sends_again(act)}
    result = report(
        errand, sink_changes.carry_out(errand.setup(), act, who=errand.who, why=errand.why, proposal=errand.proposal)
    )
    return result | {"next": _sends_again(act)}


def look_at_sink(errand: Errand, act: Act) -> dict[str, Any]:
    """Return the document of a dry run of an action on the sink.

    :raises LedgerStateError: if the action does not fit
    """
    if act.kind is not ActKind.ACCEPT_SINK:
        return in_ledger(errand, act)
    return report(errand, sink_changes.rehearse(errand.setup(), act, who=errand.who, why=errand.why))


def _sends_again(act: Act) -> str:
    """Return a sentence that describes what runs do after an action on the sink."""
    if act.kind is ActKind.MOVE:
        parts = ["the next run delivers to the sink that it declares, from the checkpoint on"]
    else:
        parts = [
            f"{name} is sent again from {'its beginning' if position == _LEAST else position} on"
            for name, position in sorted(act.positions.items())
        ]
        parts += [f"{span} of {name} is sent again" for name, span in act.spans]
    if act.letters:
        parts.append(f"{sum(item.records for item in act.letters)} replayed dead letters are parked again: replay them")
    if act.batches:
        names = ", ".join(map(str, act.batches))
        parts.append(f"{names}: held, since it is unknown whether they were delivered: release or skip them")
    return "; ".join(parts) or "runs continue from the checkpoint, and nothing is sent again"


def skip(errand: Errand, batches: Iterable[str]) -> dict[str, Any]:
    """Skip batches, and return the result document.

    :raises LedgerStateError: if one cannot be skipped
    """
    result = in_ledger(errand, Act(ActKind.SKIP, batch_keys(batches)))
    states = result["after"].get("batches", {})
    begun = sorted(batch for batch, state in states.items() if state in (BatchState.PLANNED, BatchState.IN_FLIGHT))
    if begun:
        result["next"] = (
            f"{', '.join(begun)}: begun before, so the next attempt claims `void` in the sink; "
            "if it was delivered after all, its receipt remains"
        )
    return result


def on_letters(errand: Errand, kind: ActKind, selection: Selection, query: str | None) -> dict[str, Any]:
    """Replay or discard the parked dead letters of a selection; the result document contains their number.

    :param errand: the action's context
    :param kind: replay or discard
    :param selection: the dead letters
    :param query: only dead letters that contain this text
    """
    act = dead_letters.act_on(errand.setup(), kind, selection, query)
    if not act.letters:
        result = _nothing(errand, act)
    elif kind is ActKind.REPLAY_LETTERS:
        result = behind_fence(errand, act)
        if result["applied"]:
            result["next"] = "the next run sends them"
    else:
        result = in_ledger(errand, act)
    return result | {"records": sum(item.records for item in act.letters)}


def selection(
    types: Iterable[str], batches: Iterable[str], since: str | None, until: str | None, stop_at: int | None
) -> Selection:
    """Parse a selection of dead letters.

    :param types: error types; all if empty
    :param batches: batches as ``partition#seq``; all if empty
    :param since: time from which they were dead-lettered, ISO 8601
    :param until: time before which they were dead-lettered, ISO 8601
    :param stop_at: maximum number of dead letters
    :raises ConfigError: if one of these cannot be parsed
    """
    if stop_at is not None and stop_at < 1:
        raise ConfigError("the number of dead letters to stop at must be at least 1.")
    return Selection(
        error_types(types),
        frozenset(batch_keys(batches)),
        moment(since) if since else None,
        moment(until) if until else None,
        stop_at,
    )


def error_types(names: Iterable[str]) -> frozenset[str]:
    """Parse the names of error types.

    :raises ConfigError: if there is no such type
    """
    found = frozenset(names)
    known = {kind.lower(): kind for kind in (*(kind.value for kind in ErrorType), UNTYPED)}
    for name in sorted(found - set(known.values())):
        close = get_close_matches(name.lower(), known, 1)
        advice = f"Did you mean {known[close[0]]}?" if close else f"Known: {', '.join(known.values())}."
        raise ConfigError(f"there is no error type {name!r}.", hint=advice)
    return found


def moment(text: str) -> datetime:
    """Parse a time; without a zone it is UTC.

    :raises ConfigError: if it cannot be parsed
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a time.", hint="Write it as 2026-01-31T18:00:00+01:00; without a zone it is UTC."
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def report(errand: Errand, result: ActResult) -> dict[str, Any]:
    """Return the result of an action as a JSON-ready document.

    ``waits_for`` is the lease's holder if the action is stored or, in a dry run, would be.
    """
    lease = errand.ledger.status(errand.pipeline)["lease"]
    waits = result.intent is not None or (errand.dry_run and is_held(lease))
    return {
        "pipeline": errand.pipeline,
        "act": result.act.kind.value,
        "applied": result.applied,
        "dry_run": errand.dry_run,
        "intent": result.intent,
        "waits_for": {name: lease[name] for name in ("owner", "epoch", "expires")} if waits else None,
        "before": dict(result.before),
        "after": dict(result.after),
        "who": errand.who,
        "reason": errand.why,
        "next": _taken_back(result) or _unchanged(result),
    }


def _taken_back(result: ActResult) -> str | None:
    """A word for replays that the records' being read again makes superfluous."""
    if not result.act.taken_back:
        return None
    names = ", ".join(result.act.taken_back)
    return f"{names}: taken back, since the records of these dead letters are read again; what is not, is parked again"


def _unchanged(result: ActResult) -> str | None:
    """Return a remark if the pipeline was in the requested phase already, else None."""
    if result.act.kind not in OF_PHASES or not result.before or result.before != result.after:
        return None
    return f"nothing has changed: the pipeline was {result.before['phase']} already"


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield what an action changed as rows of name, value before and value after, for people.

    Values of ``checkpoint`` are generation and position.
    """
    if not before:
        return
    for name in ("phase", "held"):
        if before[name] != after[name]:
            yield name, str(before[name]), str(after[name])
    letters = [before.get("dead_letters", {}), after.get("dead_letters", {})]
    for state in sorted({*letters[0], *letters[1]}):
        yield f"dead letters {state.replace('_', ' ')}", str(letters[0].get(state, 0)), str(letters[1].get(state, 0))
    for batch, state in before["batches"].items():
        yield batch, state or "-", after["batches"][batch] or "below the checkpoint"
    for name, was in before.get("sink", {}).items():
        if was != after["sink"][name]:
            yield f"sink {name}", str(was), str(after["sink"][name] or "as the next run finds it")
    for name, was in before["checkpoint"].items():
        now = after["checkpoint"][name]
        yield f"checkpoint of {name}", f"{was[1]} (generation {was[0]})", f"{now[1]} (generation {now[0]})"


def _nothing(errand: Errand, act: Act) -> dict[str, Any]:
    """Return the document of an action on dead letters that matches none."""
    return {
        "pipeline": errand.pipeline,
        "act": act.kind.value,
        "applied": False,
        "dry_run": errand.dry_run,
        "intent": None,
        "waits_for": None,
        "before": {},
        "after": {},
        "who": errand.who,
        "reason": errand.why,
        "next": "nothing: no dead letter of this selection is parked",
    }
