"""Actions of users on a pipeline, as data, and their effect on its partitions (semantics, sections 1, 3 and 4).

An action requested while a run holds the lease is stored, and the lease holder applies it. An action is applied as a
whole or refused as a whole, depending on the state of the pipeline and of the batches that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from airflow_provider_ckpt.core import side_partitions
from airflow_provider_ckpt.core.batch import BatchState, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey, SideKind
from airflow_provider_ckpt.core.dead_letter_index import DeadLetters
from airflow_provider_ckpt.core.dead_letter_replay import Replay
from airflow_provider_ckpt.core.drain_stop_resume import PipelineState
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.rewind import rewind
from airflow_provider_ckpt.core.tickets import Event, HeldTicket, InFlightTicket, PlannedTicket


class ActionKind(StrEnum):
    """Kinds of actions that change a pipeline, from a user's request to the ledger's audit log.

    ``resend_to_sink`` and ``keep_sink`` accept a changed sink: the first sends again what it has lost, the second
    continues from the checkpoint.
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
"""Actions that are applied only under a new epoch: the sink must be fenced and its receipts read first."""

NEED_RECEIPTS_READ = NEED_NEW_EPOCH | {ActionKind.REPLAY, ActionKind.RECOVER, ActionKind.REPLAY_DEAD_LETTERS}
"""Actions that are applied only after the sink's receipts have been read.

All of them except force stop start a generation. A ledger restored from a backup may have lost generations whose
receipts are in the sink; if their numbers were used again, new batches would be taken for delivered.
"""

PHASE_ACTIONS = frozenset({ActionKind.DRAIN, ActionKind.STOP, ActionKind.FORCE_STOP, ActionKind.RESUME})
"""Actions that change the pipeline's phase; if the pipeline is in that phase already, only an event is recorded."""

DEAD_LETTER_ACTIONS = frozenset({ActionKind.REPLAY_DEAD_LETTERS, ActionKind.DISCARD_DEAD_LETTERS})
"""Actions on dead letters; the ledger's index decides which of the selected dead letters are still parked."""

SINK_ACTIONS = frozenset({ActionKind.RESEND_TO_SINK, ActionKind.KEEP_SINK, ActionKind.MOVE})
"""Actions that are never stored: the command acquires the lease, compares and fences the sink, and reconciles."""

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
    """One action on a pipeline, with its arguments.

    :param batches: for hold, release, skip and cancel: the batches to change; a release without any releases all held
        batches. For actions on the sink: batches to hold, because the sink may contain their rows without a receipt
    :param positions: for rewind and resend: by partition, the first position to read again
    :param ranges: for replay, recover and resend: pairs of a source partition and a range of it to read again
    :param dead_letters: for actions on dead letters: the dead letters, oldest first; for resend: those whose replay the
        sink has lost
    :param newest_first: for a replay of dead letters: the newest comes first
    :param unreachable: for move: the previous sink can no longer be asked what it has received
    :param with_replayed: for replay: also read records again whose dead letters a replay has delivered
    :param from_receipts: for resend: the ranges to send again are found under the lease from the sink's receipts
    :param states: for recover: by source partition, new values of the source connector's stored state, with which the
        next planning compares the source
    :param taken_back: for rewind and resend: side partitions that replay dead letters whose records are read again;
        their undelivered batches are skipped
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
        """Return a JSON-ready dict; :meth:`from_json` is its inverse."""
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
    """Apply an action as a whole and return its events.

    :param pipeline_state: the pipeline's partitions and phase, which are changed
    :param action: the action
    :param reason: the actor's reason; stored in the events
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
    """Raise an error if an action lacks its actor, or its reason where one is required.

    :param kind: the kind of action, for the message
    :param actor: the actor
    :param reason: the reason
    :param required: whether this action requires a reason
    :raises ConfigError: if the actor or a required reason is missing or blank
    """
    name = kind.replace("_", " ")
    if not (actor or "").strip():
        raise ConfigError(f"{name}: actor is missing.", hint="Every action names the user who requests it.")
    if required and not (reason or "").strip():
        raise ConfigError(f"{name}: reason is missing.", hint="Give a reason; the audit log stores it.")


def _change_sink(pipeline_state: PipelineState, action: Action, reason: str) -> list[Event]:
    """Rewind or re-read what the sink has lost, and hold the batches whose rows it may contain without a receipt.

    All checks come before the first change.
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

    A rewind or resend reads the records of these dead letters again, so a replay must not deliver them as well.
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

    The caller obtains the functions of all batches before it calls the first one, so nothing is changed in part.

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
    """Skip a batch: in the ledger alone if it was never started, else the next attempt claims ``void`` in the sink."""
    if isinstance(ticket, PlannedTicket) and not partition.batches[ticket.key.seq].started:
        return partition.skip(ticket, reason=reason)
    return partition.instruct(ticket, Instruction.VOID, reason=reason)
