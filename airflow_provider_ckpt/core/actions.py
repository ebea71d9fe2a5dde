"""Actions of users on a pipeline, such as hold, skip or rewind: their data, and their effect on the pipeline's state.

An action that is requested while a run holds the lease is stored in the ledger, and the lease holder applies it. An
action is applied as a whole or refused as a whole, depending on the state of the pipeline and of the batches that the
action names (semantics, sections 1, 3 and 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from airflow_provider_ckpt.core import side_partitions
from airflow_provider_ckpt.core.batch import BatchState, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey, SideKind
from airflow_provider_ckpt.core.dead_letter_replay import Replay
from airflow_provider_ckpt.core.dead_letters import DeadLetters
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase, PipelineState
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.rewind import rewind
from airflow_provider_ckpt.core.tickets import Event, HeldTicket, InFlightTicket, PlannedTicket


class ActionKind(StrEnum):
    """Kinds of actions by which users change a pipeline; the audit log records each action under its kind.

    - ``hold``, ``release``, ``skip`` and ``cancel`` change single batches.
    - ``drain``, ``stop``, ``force_stop`` and ``resume`` change the phase of the pipeline.
    - ``rewind``, ``replay`` and ``recover`` read parts of the source again.
    - ``replay_dead_letters`` and ``discard_dead_letters`` change dead letters.
    - ``resend_to_sink`` and ``keep_sink`` accept a sink that has changed: the first sends again what the sink has lost,
      the second continues from the checkpoint. ``move`` lets the next run deliver to another sink.
    """

    HOLD = "hold"
    RELEASE = "release"
    SKIP = "skip"
    CANCEL = "cancel"
    DRAIN = "drain"
    STOP = "stop"
    FORCE_STOP = "force_stop"
    RESUME = "resume"
    REWIND = "rewind"
    REPLAY = "replay"
    RECOVER = "recover"
    REPLAY_DEAD_LETTERS = "replay_dead_letters"
    DISCARD_DEAD_LETTERS = "discard_dead_letters"
    RESEND_TO_SINK = "resend_to_sink"
    KEEP_SINK = "keep_sink"
    MOVE = "move"


NEED_NEW_EPOCH = frozenset({ActionKind.FORCE_STOP, ActionKind.REWIND})
"""Actions that only the holder of a new epoch may apply, after it has fenced the sink and read its receipts."""

NEED_RECEIPTS_READ = NEED_NEW_EPOCH | {ActionKind.REPLAY, ActionKind.RECOVER, ActionKind.REPLAY_DEAD_LETTERS}
"""Actions that a run applies only after it has read the sink's receipts.

All of them except force stop start a generation. A ledger that was restored from a backup may have lost generations
whose receipts are in the sink. If their numbers were used again, those receipts would be taken for receipts of the new
batches, which would then never be sent.
"""

PHASE_ACTIONS = frozenset({ActionKind.DRAIN, ActionKind.STOP, ActionKind.FORCE_STOP, ActionKind.RESUME})
"""Actions that change the pipeline's phase; on a pipeline that is in that phase already, they only record an event."""

DEAD_LETTER_ACTIONS = frozenset({ActionKind.REPLAY_DEAD_LETTERS, ActionKind.DISCARD_DEAD_LETTERS})
"""Actions on dead letters. They change only those of the selected dead letters that are still parked."""

SINK_ACTIONS = frozenset({ActionKind.RESEND_TO_SINK, ActionKind.KEEP_SINK, ActionKind.MOVE})
"""Actions that accept or leave a changed sink.

They are never stored for a later run. The command itself acquires the lease, compares and fences the sink, reconciles,
and applies the action.
"""

NEED_REASON = SINK_ACTIONS | {
    ActionKind.SKIP,
    ActionKind.DISCARD_DEAD_LETTERS,
    ActionKind.REWIND,
    ActionKind.FORCE_STOP,
}
"""Actions that require a reason, because they give records up or send records again."""

_SIDE_KINDS = {ActionKind.REPLAY: SideKind.REPLAY, ActionKind.RECOVER: SideKind.RECOVERY}


@dataclass(frozen=True, slots=True)
class Action:
    """One action on a pipeline, with its arguments. Each kind uses some of the fields; the others keep their defaults.

    :param kind: the kind of action
    :param batches: for hold, release, skip and cancel: the batches to change; a release without any releases all held
        batches. For actions on the sink: batches to hold, because the sink may contain their rows without a receipt
    :param positions: for rewind and resend: by partition, the first position to read again
    :param ranges: for replay, recover and resend: pairs of a source partition and a range of it to read again
    :param dead_letters: for actions on dead letters: the dead letters, oldest first; for resend: the dead letters whose
        replay the sink has lost
    :param newest_first: for a replay of dead letters: whether the newest is sent first
    :param unreachable: for move: whether the previous sink can no longer be read to find out which batches it has
        received
    :param with_replayed: for replay: whether records are also read again if a replay of their dead letters has
        delivered them
    :param from_receipts: for resend: whether the fields above were derived from the sink's receipts; they are then
        derived again under the lease, and the action is refused if the result differs
    :param states: for recover: by source partition, the new values of the state that the source connector stores in the
        ledger, with which the next planning compares the source
    :param taken_back: for rewind and resend: ids of side partitions that replay dead letters whose records are read
        again; their undelivered batches are skipped
    """

    kind: ActionKind
    batches: tuple[BatchKey, ...] = ()
    positions: Mapping[str, int] = field(default_factory=dict)
    ranges: tuple[tuple[str, Range], ...] = ()
    dead_letters: tuple[DeadLetters, ...] = ()
    newest_first: bool = False
    unreachable: bool = False
    with_replayed: bool = False
    from_receipts: bool = False
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    taken_back: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the action as a JSON-ready dict, which the ledger stores; :meth:`from_json` is the inverse."""
        return {
            "kind": self.kind.value,
            "batches": [key.to_json() for key in self.batches],
            "positions": dict(self.positions),
            "ranges": [[name, span.start, span.end] for name, span in self.ranges],
            "dead_letters": [dead_letters.to_json() for dead_letters in self.dead_letters],
            "newest_first": self.newest_first,
            "unreachable": self.unreachable,
            "with_replayed": self.with_replayed,
            **({"from_receipts": True} if self.from_receipts else {}),
            **({"states": {name: dict(state) for name, state in self.states.items()}} if self.states else {}),
            **({"taken_back": list(self.taken_back)} if self.taken_back else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Action:
        """Restore an action from the output of :meth:`to_json`."""
        return cls(
            ActionKind(data["kind"]),
            tuple(BatchKey.from_json(key) for key in data["batches"]),
            dict(data["positions"]),
            tuple((name, Range(start, end)) for name, start, end in data["ranges"]),
            tuple(DeadLetters.from_json(item) for item in data.get("dead_letters", ())),
            data.get("newest_first", False),
            data.get("unreachable", False),
            data.get("with_replayed", False),
            data.get("from_receipts", False),
            data.get("states", {}),
            tuple(data.get("taken_back", ())),
        )


def apply(pipeline_state: PipelineState, action: Action, *, reason: str) -> list[Event]:
    """Apply an action to a pipeline's state, as a whole.

    :param pipeline_state: the pipeline's partitions and phase, which are changed
    :param action: the action
    :param reason: the actor's reason; stored in the events
    :return: the events for the audit log
    :raises LedgerStateError: if the pipeline's state does not allow the action; nothing is changed then
    """
    phases: Mapping[ActionKind, Callable[..., list[Event]]] = {
        ActionKind.DRAIN: pipeline_state.drain,
        ActionKind.STOP: pipeline_state.stop,
        ActionKind.FORCE_STOP: pipeline_state.force_stop,
        ActionKind.RESUME: pipeline_state.resume,
    }
    if action.kind in SINK_ACTIONS:
        return _change_sink(pipeline_state, action, reason)
    if action.kind in phases:
        return phases[action.kind](reason=reason)
    if action.kind is ActionKind.REWIND:
        _check_taken_back(pipeline_state, action)
        return _rewind(pipeline_state, action, reason) + _take_back(pipeline_state, action, reason)
    if action.kind in _SIDE_KINDS:
        return _re_read(pipeline_state, action, _SIDE_KINDS[action.kind])
    if action.kind in DEAD_LETTER_ACTIONS:
        return _act_on_dead_letters(pipeline_state, action, reason)
    return _act_on_batches(pipeline_state, action, reason)


def require_reason(kind: str, actor: str | None, reason: str | None, *, required: bool) -> None:
    """Raise an error if the actor of an action is missing, or its reason although the action requires one.

    :param kind: the kind of action, for the error message
    :param actor: the user who requests the action; None or blank if missing
    :param reason: the user's reason; None or blank if missing
    :param required: whether this action requires a reason
    :raises ConfigError: if the actor or a required reason is missing or blank
    """
    name = kind.replace("_", " ")
    if not (actor or "").strip():
        raise ConfigError(f"{name}: actor is missing.", hint="Every action names the user who requests it.")
    if required and not (reason or "").strip():
        raise ConfigError(f"{name}: reason is missing.", hint="Give a reason; the audit log stores it.")


def _change_sink(pipeline_state: PipelineState, action: Action, reason: str) -> list[Event]:
    """Rewind or read again what the sink has lost, and hold the batches whose rows it may contain without a receipt.

    All checks precede the first change, so that a refused action changes nothing.

    :param pipeline_state: the pipeline's partitions, which are changed
    :param action: an action of :data:`SINK_ACTIONS`
    :param reason: the actor's reason, stored in the events
    :return: the events for the audit log
    :raises LedgerStateError: if the pipeline's state does not allow the action
    """
    steps = [_batch_step(pipeline_state, ActionKind.HOLD, key, reason) for key in action.batches]
    for name, span in action.ranges:
        side_partitions.require_resolved(pipeline_state, name, span)
    _check_taken_back(pipeline_state, action)
    events = _rewind(pipeline_state, action, reason) if action.positions else []
    for name, span in action.ranges:
        events += side_partitions.resend_range(pipeline_state, name, span)[1]
    return events + [event for step in steps for event in step()] + _take_back(pipeline_state, action, reason)


def _check_taken_back(pipeline_state: PipelineState, action: Action) -> None:
    for name in action.taken_back:
        if pipeline_state.partition(name).unplanned() and pipeline_state.phase is not Phase.RUNNING:
            raise LedgerStateError(
                f"{name} replays dead letters that are to be read again, and cannot be taken back while the pipeline "
                f"is {pipeline_state.phase.value}.",
                hint="Resume the pipeline first.",
            )


def _take_back(pipeline_state: PipelineState, action: Action, reason: str) -> list[Event]:
    """Plan the rest of each side partition in ``action.taken_back``, then skip all of its unresolved batches.

    These side partitions replay dead letters whose records the rewind or resend reads again. Without this step, the
    records would be delivered twice. The function returns the events for the audit log.
    """
    events: list[Event] = []
    for partition in map(pipeline_state.partition, action.taken_back):
        for span in partition.unplanned():
            events += partition.plan(span)
        for batch in list(partition.blocking.values()):
            events += _batch_step(pipeline_state, ActionKind.SKIP, batch.key, reason)()
    return events


def _rewind(pipeline_state: PipelineState, action: Action, reason: str) -> list[Event]:
    chosen = [(pipeline_state.partition(name), position) for name, position in sorted(action.positions.items())]
    refused = [
        partition.id for partition, position in chosen if position > partition.committed or partition.limit is not None
    ]
    if refused or not chosen:
        raise LedgerStateError(
            f"cannot rewind {', '.join(refused) or 'nothing'}.",
            hint="Name source partitions, each with a position at or before its checkpoint.",
        )
    pipeline_state.generation += 1
    events: list[Event] = []
    for partition, position in chosen:
        events += rewind(partition, position, generation=pipeline_state.generation, reason=reason)
    return events


def _re_read(pipeline_state: PipelineState, action: Action, side: SideKind) -> list[Event]:
    for name, span in action.ranges:
        side_partitions.check_re_read(pipeline_state, name, span)
    return [
        event for name, span in action.ranges for event in side_partitions.re_read(pipeline_state, side, name, span)[1]
    ]


def _act_on_dead_letters(pipeline_state: PipelineState, action: Action, reason: str) -> list[Event]:
    if not action.dead_letters:
        raise LedgerStateError(
            "none of these dead letters is parked any more.",
            hint="See `airflow ckpt dlq list --all`: they are being replayed, were replayed, discarded or read again.",
        )
    by_source: dict[str, list[DeadLetters]] = {}
    for dead_letters in action.dead_letters:
        by_source.setdefault(dead_letters.key.source, []).append(dead_letters)
    chosen = [(pipeline_state.partition(name), found) for name, found in sorted(by_source.items())]
    if action.kind is ActionKind.REPLAY_DEAD_LETTERS:
        replays = [(origin.id, Replay.of(found, newest_first=action.newest_first)) for origin, found in chosen]
        return [event for name, replay in replays for event in side_partitions.replay(pipeline_state, name, replay)[1]]
    return [
        Event("dead_letters_discarded", key.partition, key.generation, key.seq, {"records": records, "reason": reason})
        for key, records in sorted(_records_by_batch(action.dead_letters).items())
    ]


def _records_by_batch(dead_letters: Iterable[DeadLetters]) -> dict[BatchKey, int]:
    records: dict[BatchKey, int] = {}
    for item in dead_letters:
        records[item.key] = records.get(item.key, 0) + item.records
    return records


def _act_on_batches(pipeline_state: PipelineState, action: Action, reason: str) -> list[Event]:
    keys = action.batches
    if action.kind is ActionKind.RELEASE and not keys:
        keys = tuple(
            batch.key
            for partition in pipeline_state.partitions.values()
            for batch in partition.batches.values()
            if batch.state is BatchState.HELD
        )
    steps = [_batch_step(pipeline_state, action.kind, key, reason) for key in dict.fromkeys(keys)]
    return [event for step in steps for event in step()]


def _batch_step(
    pipeline_state: PipelineState, kind: ActionKind, key: BatchKey, reason: str
) -> Callable[[], list[Event]]:
    """Check that an action is allowed on a batch, and return a function that applies it and returns the events.

    The caller checks all batches of an action in this way before it calls the first returned function. If a check
    fails, nothing has been changed.

    :param pipeline_state: the pipeline's partitions; only the returned function changes them
    :param kind: the kind of action: hold, release, skip or cancel
    :param key: the batch
    :param reason: the actor's reason, stored in the events
    :raises LedgerStateError: if the batch's generation has ended, or its state does not allow the action
    """
    partition = pipeline_state.partition(key.partition)
    if key.generation != partition.generation:
        raise LedgerStateError(
            f"generation {key.generation} has ended; the partition is in {partition.generation} now.", batch=str(key)
        )
    batch = partition.batches.get(key.seq)
    if kind is ActionKind.RELEASE:
        held_ticket = partition.held_ticket(key.seq)
        return lambda: partition.release(held_ticket)[1]
    if kind is ActionKind.CANCEL:
        sending = partition.in_flight_ticket(key.seq)
        return lambda: partition.cancel(sending)[1]
    if kind is ActionKind.HOLD:
        ticket = _ticket(partition, key.seq)
        return lambda: partition.hold(ticket, reason=reason)[1]
    if batch is not None and batch.state is BatchState.HELD:
        held_ticket = partition.held_ticket(key.seq)
        return lambda: _release_and_skip(partition, held_ticket, reason)
    ticket = _ticket(partition, key.seq)
    return lambda: _skip(partition, ticket, reason)


def _ticket(partition: Partition, seq: int) -> PlannedTicket | InFlightTicket:
    return partition.in_flight_ticket(seq) if seq in partition.in_flight else partition.planned_ticket(seq)


def _release_and_skip(partition: Partition, ticket: HeldTicket, reason: str) -> list[Event]:
    planned, events = partition.release(ticket)
    return events + _skip(partition, planned, reason)


def _skip(partition: Partition, ticket: PlannedTicket | InFlightTicket, reason: str) -> list[Event]:
    """Skip a planned batch or one in flight, and return the events.

    A batch that was never started becomes ``skipped`` in the ledger at once. A batch that was started may have reached
    the sink, so it is only marked: its next attempt claims the verdict ``void`` in the sink, and that receipt resolves
    it.

    :param partition: the partition of the batch, which is changed
    :param ticket: the batch, in the state that was checked; see :mod:`~airflow_provider_ckpt.core.tickets`
    :param reason: the actor's reason, stored in the events
    """
    if isinstance(ticket, PlannedTicket) and not partition.batches[ticket.key.seq].started:
        return partition.skip(ticket, reason=reason)
    return partition.instruct(ticket, Instruction.VOID, reason=reason)
