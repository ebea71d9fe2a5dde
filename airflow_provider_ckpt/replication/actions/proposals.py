"""Turn a user's request into one concrete action, which can be previewed, approved and then carried out unchanged.

The batches, positions, ranges or dead letters of the action are determined once, when it is proposed. So what is
approved is what is carried out, or it is refused because it no longer fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from airflow_provider_ckpt.core.actions import BY_A_RUN, OF_THE_SINK, Act, ActKind
from airflow_provider_ckpt.core.batch import BatchKey, BatchState
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.tickets import Phase
from airflow_provider_ckpt.replication.actions import dead_letters, fenced_actions, sink_changes
from airflow_provider_ckpt.replication.actions.actions import (
    Errand,
    batch_keys,
    behind_fence,
    force_stop,
    in_ledger,
    look_at_sink,
    of_the_sink,
    selection,
    skip,
)
from airflow_provider_ckpt.replication.actions.rewind_target import Goal, positions

_MOST = 5_000
"""Maximum number of dead letter ranges in a proposal, which travels by XCom and so is stored in Airflow's database."""


class Remedy(StrEnum):
    """Kinds of actions that a user can request to repair a pipeline."""

    RECOVER = "recover"
    REWIND = "rewind"
    REPLAY_DEAD_LETTERS = "replay_dead_letters"
    RELEASE = "release"
    SKIP = "skip"
    FORCE_STOP = "force_stop"
    RESUME = "resume"
    RESEND_TO_SINK = "resend_to_sink"
    KEEP_SINK = "keep_sink"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Ask:
    """Request for an action; fields that its kind does not take must be empty.

    :param remedy: kind of the action
    :param partition: for rewind and resend, the source partition
    :param to_position: for rewind and resend, the first position to read again
    :param to_time: for rewind, the time whose checkpoint to return to
    :param batches: for release, skip and replay; for release and replay, none means all
    :param error_types: for replay, only dead letters of these types
    :param stop_at: for replay, maximum number of dead letters
    """

    remedy: Remedy
    partition: str | None = None
    to_position: int | None = None
    to_time: str | None = None
    batches: tuple[str, ...] = ()
    error_types: tuple[str, ...] = ()
    stop_at: int | None = None


_USES: Mapping[Remedy, frozenset[str]] = {
    Remedy.RECOVER: frozenset(),
    Remedy.REWIND: frozenset({"partition", "to_position", "to_time"}),
    Remedy.REPLAY_DEAD_LETTERS: frozenset({"batches", "error_types", "stop_at"}),
    Remedy.RELEASE: frozenset({"batches"}),
    Remedy.SKIP: frozenset({"batches"}),
    Remedy.FORCE_STOP: frozenset(),
    Remedy.RESUME: frozenset(),
    Remedy.RESEND_TO_SINK: frozenset({"partition", "to_position"}),
    Remedy.KEEP_SINK: frozenset(),
    Remedy.MOVE: frozenset(),
}


@dataclass(frozen=True, slots=True)
class Proposed:
    """Action that fulfils a request, and what it leaves open.

    :param act: the action; None if there is nothing to do
    :param open: for a recovery: ``left``, ranges that stay unaccounted for, and ``alarms`` that it does not end
    """

    act: Act | None
    open: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)


def propose(errand: Errand, ask: Ask) -> Proposed:
    """Return the action that fulfils a request.

    :param errand: the action's context
    :param ask: the request
    :raises ConfigError: if a field was given that the action does not take, or a required one is missing
    """
    given = {item.name for item in fields(ask) if item.name != "remedy" and getattr(ask, item.name) not in (None, ())}
    if useless := sorted(given - _USES[ask.remedy]):
        raise ConfigError(
            f"{ask.remedy} does not take {', '.join(useless)}.",
            pipeline=errand.pipeline,
            hint="Leave that empty, or choose another action.",
        )
    if ask.remedy is Remedy.RECOVER:
        unaccounted = fenced_actions.missing(errand.setup())
        return Proposed(unaccounted.act, unaccounted.open())
    return Proposed(_PROPOSALS[ask.remedy](errand, ask))


def preview(errand: Errand, act: Act) -> dict[str, Any]:
    """Return the document of a dry run of the action.

    :raises LedgerStateError: if it does not fit
    """
    look = look_at_sink if act.kind in OF_THE_SINK else in_ledger
    found = look(replace(errand, dry_run=True), act)
    return found | ({"waits_for": None} if act.kind in OF_THE_SINK | {ActKind.FORCE_STOP} else {})


def carry_out(errand: Errand, act: Act) -> dict[str, Any]:
    """Carry out the action or store it for the holder of the lease; return the result document.

    :raises LedgerStateError: if it no longer fits; nothing was changed then
    """
    if act.kind is ActKind.FORCE_STOP:
        return force_stop(errand)
    if act.kind in OF_THE_SINK:
        return of_the_sink(errand, act)
    if act.kind in BY_A_RUN:
        return behind_fence(errand, act)
    if act.kind is ActKind.SKIP:
        return skip(errand, map(str, act.batches))
    return in_ledger(errand, act)


def _rewind(errand: Errand, ask: Ask) -> Act | None:
    goal = Goal(position=ask.to_position, time=ask.to_time)
    return Act(ActKind.REWIND, positions=positions(errand, goal, ask.partition))


def _replay(errand: Errand, ask: Ask) -> Act | None:
    chosen = selection(ask.error_types, ask.batches, None, None, ask.stop_at)
    act = dead_letters.act_on(errand.setup(), ActKind.REPLAY_LETTERS, chosen)
    if len(act.letters) > _MOST:
        raise ConfigError(
            f"{len(act.letters):,} ranges of dead letters are more than an approval can name, {_MOST:,}.",
            pipeline=errand.pipeline,
            hint="Choose fewer by error type or batch, or with stop_at; or use airflow ckpt dlq replay.",
        )
    return act if act.letters else None


def _release(errand: Errand, ask: Ask) -> Act | None:
    keys = batch_keys(ask.batches) or _held(errand)
    return Act(ActKind.RELEASE, keys) if keys else None


def _skip(errand: Errand, ask: Ask) -> Act | None:
    if not ask.batches:
        raise ConfigError("name the batches to skip.", pipeline=errand.pipeline)
    return Act(ActKind.SKIP, batch_keys(ask.batches))


def _force_stop(_: Errand, __: Ask) -> Act | None:
    return Act(ActKind.FORCE_STOP)


def _resume(errand: Errand, _: Ask) -> Act | None:
    phase = errand.ledger.status(errand.pipeline)["phase"]
    return None if phase == Phase.RUNNING else Act(ActKind.RESUME)


def _resend(errand: Errand, ask: Ask) -> Act | None:
    start = {}
    if ask.to_position is not None:
        start = positions(errand, Goal(position=ask.to_position), ask.partition)
    return sink_changes.accept(errand.setup(), resend=True, start=start)


def _keep(errand: Errand, _: Ask) -> Act | None:
    return sink_changes.accept(errand.setup(), resend=False)


def _move(errand: Errand, _: Ask) -> Act | None:
    return sink_changes.move(errand.setup())


def _held(errand: Errand) -> tuple[BatchKey, ...]:
    """Return all batches that are held now; batches held later were not shown, and are not released with them."""
    blocking = errand.ledger.inspect(errand.pipeline)["batches"]
    return batch_keys(batch["batch"] for batch in blocking if batch["state"] == BatchState.HELD)


_PROPOSALS: Mapping[Remedy, Callable[[Errand, Ask], Act | None]] = {
    Remedy.REWIND: _rewind,
    Remedy.REPLAY_DEAD_LETTERS: _replay,
    Remedy.RELEASE: _release,
    Remedy.SKIP: _skip,
    Remedy.FORCE_STOP: _force_stop,
    Remedy.RESUME: _resume,
    Remedy.RESEND_TO_SINK: _resend,
    Remedy.KEEP_SINK: _keep,
    Remedy.MOVE: _move,
}
