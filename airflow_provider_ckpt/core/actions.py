"""Actions of users on a pipeline, as data, and their effect on its partitions (semantics, sections 1, 3 and 4).

An action requested while a run holds the lease is stored, and the lease holder applies it. An action is applied as a
whole or refused as a whole, depending on the state of the pipeline and of the batches that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from airflow_provider_ckpt.core.batch import BatchKey, BatchState, Instruction
from airflow_provider_ckpt.core.dead_letters import Letters, Replay
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.pipeline_phases import PipelineMachine, Side
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.reconcile import rewind
from airflow_provider_ckpt.core.tickets import Event, HeldTicket, InFlightTicket, Phase, PlannedTicket


class ActKind(StrEnum):
    """Kinds of actions that change a pipeline."""

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
    REPLAY_LETTERS = "replay_letters"
    DISCARD_LETTERS = "discard_letters"
    ACCEPT_SINK = "accept_sink"
    MOVE = "move"


BEHIND_FENCE = frozenset({ActKind.FORCE_STOP, ActKind.REWIND})
"""Actions that are applied only under a new epoch: the sink must be fenced and its receipts read first."""

BY_A_RUN = BEHIND_FENCE | {ActKind.REPLAY, ActKind.RECOVER, ActKind.REPLAY_LETTERS}
"""Actions that are applied only after the sink's receipts have been read.

All of them except force stop start a generation. A ledger restored from a backup may have lost generations whose
receipts are in the sink; if their numbers were used again, new batches would be taken for delivered.
"""

OF_PHASES = frozenset({ActKind.DRAIN, ActKind.STOP, ActKind.FORCE_STOP, ActKind.RESUME})
"""Actions that change the pipeline's phase; if the pipeline is in that phase already, only an event is recorded."""

OF_LETTERS = frozenset({ActKind.REPLAY_LETTERS, ActKind.DISCARD_LETTERS})
"""Actions on dead letters; the ledger's index decides which of the selected dead letters are still parked."""

OF_THE_SINK = frozenset({ActKind.ACCEPT_SINK, ActKind.MOVE})
"""Actions that are never stored: the command acquires the lease, compares and fences the sink, and reconciles."""

NEED_A_REASON = OF_THE_SINK | {ActKind.SKIP, ActKind.DISCARD_LETTERS, ActKind.REWIND, ActKind.FORCE_STOP}
"""Actions that require a reason, because they give records up or send records again."""

_SIDES = {ActKind.REPLAY: Side.REPLAY, ActKind.RECOVER: Side.RECOVERY}


@dataclass(frozen=True, slots=True)
class Act:
    """One action on a pipeline, with its arguments.

    :param batches: for hold, release, skip and cancel; for release, none means all that are held; for acts of the sink:
        those of which nobody can tell whether they were delivered, which are held
    :param positions: for rewind and accept: by partition, the first position to read again
    :param spans: for replay, recover and accept: source partitions, each with a stretch to read once more
    :param letters: for acts on dead letters: which, oldest first; for accept: those whose replay the sink has lost
    :param newest_first: for their replay: begin with the newest
    :param unreachable: for move: the sink so far cannot be asked any more what it has received
    :param with_replayed: for replay: read dead letters again that a replay of their own has delivered
    :param resend: for accept: the sink's receipts told what to send again; they are asked once more behind the lease
    :param states: for recover: by source partition, what the next planning is to compare the source with
    :param taken_back: for rewind and accept: side partitions of dead letters whose records are read again, and which
        give up what they have not delivered
    """

    kind: ActKind
    batches: tuple[BatchKey, ...] = ()
    positions: Mapping[str, int] = field(default_factory=dict)
    spans: tuple[tuple[str, Range], ...] = ()
    letters: tuple[Letters, ...] = ()
    newest_first: bool = False
    unreachable: bool = False
    with_replayed: bool = False
    resend: bool = False
    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    taken_back: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict; :meth:`from_json` is its inverse."""
        return {
            "kind": self.kind.value,
            "batches": [key.to_json() for key in self.batches],
            "positions": dict(self.positions),
            "spans": [[name, span.start, span.end] for name, span in self.spans],
            "letters": [letters.to_json() for letters in self.letters],
            "newest_first": self.newest_first,
            "unreachable": self.unreachable,
            "with_replayed": self.with_replayed,
            **({"resend": True} if self.resend else {}),
            **({"states": {name: dict(state) for name, state in self.states.items()}} if self.states else {}),
            **({"taken_back": list(self.taken_back)} if self.taken_back else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Act:
        """Restore an action from the output of :meth:`to_json`."""
        return cls(
            ActKind(data["kind"]),
            tuple(BatchKey.from_json(key) for key in data["batches"]),
            dict(data["positions"]),
            tuple((name, Range(start, end)) for name, start, end in data["spans"]),
            tuple(Letters.from_json(item) for item in data.get("letters", ())),
            data.get("newest_first", False),
            data.get("unreachable", False),
            data.get("with_replayed", False),
            data.get("resend", False),
            data.get("states", {}),
            tuple(data.get("taken_back", ())),
        )


def apply(machine: PipelineMachine, act: Act, *, reason: str) -> list[Event]:
    """Apply an action as a whole and return its events.

    :param machine: the pipeline's partitions and phase, which are changed
    :param act: the action
    :param reason: the actor's reason; stored in the events
    :raises LedgerStateError: if the pipeline's state does not allow the action; nothing is changed then
    """
    phases: Mapping[ActKind, Callable[..., list[Event]]] = {
        ActKind.DRAIN: machine.drain,
        ActKind.STOP: machine.stop,
        ActKind.FORCE_STOP: machine.force_stop,
        ActKind.RESUME: machine.resume,
    }
    if act.kind in OF_THE_SINK:
        return _accept(machine, act, reason)
    if act.kind in phases:
        return phases[act.kind](reason=reason)
    if act.kind is ActKind.REWIND:
        _check_taken_back(machine, act)
        return _rewind(machine, act, reason) + _take_back(machine, act, reason)
    if act.kind in _SIDES:
        return _re_read(machine, act, _SIDES[act.kind])
    if act.kind in OF_LETTERS:
        return _letters(machine, act, reason)
    return _each_batch(machine, act, reason)


def require_reason(kind: str, who: str | None, why: str | None, *, reason: bool) -> None:
    """Raise an error if an action lacks its actor, or its reason where one is required.

    :param kind: the kind of action, for the message
    :param who: the actor
    :param why: the reason
    :param reason: whether this action requires a reason
    :raises ConfigError: if the actor or a required reason is missing or blank
    """
    name = kind.replace("_", " ")
    if not (who or "").strip():
        raise ConfigError(f"{name}: actor is missing.", hint="Every action names the user who requests it.")
    if reason and not (why or "").strip():
        raise ConfigError(f"{name}: reason is missing.", hint="Give a reason; the audit log stores it.")


def _accept(machine: PipelineMachine, act: Act, reason: str) -> list[Event]:
    """Plan what the sink has lost once more, and hold the batches that it may contain without a receipt."""
    steps = [_step(machine, ActKind.HOLD, key, reason) for key in act.batches]
    for name, span in act.spans:
        machine.check_lost(name, span)
    _check_taken_back(machine, act)
    events = _rewind(machine, act, reason) if act.positions else []
    for name, span in act.spans:
        events += machine.re_read_lost(name, span)[1]
    return events + [event for step in steps for event in step()] + _take_back(machine, act, reason)


def _check_taken_back(machine: PipelineMachine, act: Act) -> None:
    for name in act.taken_back:
        if machine.partition(name).unplanned() and machine.phase is not Phase.RUNNING:
            raise LedgerStateError(
                f"{name} replays dead letters that are to be read again, and cannot be taken back while the pipeline "
                f"is {machine.phase.value}.",
                hint="Resume the pipeline first.",
            )


def _take_back(machine: PipelineMachine, act: Act, reason: str) -> list[Event]:
    """Give up what replays have not delivered of dead letters whose records are read again."""
    events: list[Event] = []
    for partition in map(machine.partition, act.taken_back):
        for span in partition.unplanned():
            events += partition.plan(span)
        for batch in list(partition.blocking.values()):
            events += _step(machine, ActKind.SKIP, batch.key, reason)()
    return events


def _rewind(machine: PipelineMachine, act: Act, reason: str) -> list[Event]:
    chosen = [(machine.partition(name), to) for name, to in sorted(act.positions.items())]
    ahead = [partition.id for partition, to in chosen if to > partition.committed or partition.limit is not None]
    if ahead or not chosen:
        raise LedgerStateError(
            f"cannot rewind {', '.join(ahead) or 'nothing'}.",
            hint="Name source partitions, each with a position at or before its checkpoint.",
        )
    machine.generation += 1
    events: list[Event] = []
    for partition, to in chosen:
        events += rewind(partition, to, generation=machine.generation, reason=reason)
    return events


def _re_read(machine: PipelineMachine, act: Act, side: Side) -> list[Event]:
    for name, span in act.spans:
        machine.check_re_read(name, span)
    return [event for name, span in act.spans for event in machine.re_read(side, name, span)[1]]


def _letters(machine: PipelineMachine, act: Act, reason: str) -> list[Event]:
    if not act.letters:
        raise LedgerStateError(
            "none of these dead letters is parked any more.",
            hint="See `airflow ckpt dlq list --all`: they are being replayed, were replayed, discarded or read again.",
        )
    by_source: dict[str, list[Letters]] = {}
    for letters in act.letters:
        by_source.setdefault(letters.key.source, []).append(letters)
    chosen = [(machine.partition(name), found) for name, found in sorted(by_source.items())]
    if act.kind is ActKind.REPLAY_LETTERS:
        replays = [(origin.id, Replay.of(found, newest_first=act.newest_first)) for origin, found in chosen]
        return [event for name, replay in replays for event in machine.replay(name, replay)[1]]
    return [
        Event("letters_discarded", key.partition, key.generation, key.seq, {"records": records, "reason": reason})
        for key, records in sorted(_by_batch(act.letters).items())
    ]


def _by_batch(letters: Iterable[Letters]) -> dict[BatchKey, int]:
    records: dict[BatchKey, int] = {}
    for item in letters:
        records[item.key] = records.get(item.key, 0) + item.records
    return records


def _each_batch(machine: PipelineMachine, act: Act, reason: str) -> list[Event]:
    keys = act.batches
    if act.kind is ActKind.RELEASE and not keys:
        keys = tuple(
            batch.key
            for partition in machine.partitions.values()
            for batch in partition.batches.values()
            if batch.state is BatchState.HELD
        )
    steps = [_step(machine, act.kind, key, reason) for key in dict.fromkeys(keys)]
    return [event for step in steps for event in step()]


def _step(machine: PipelineMachine, kind: ActKind, key: BatchKey, reason: str) -> Callable[[], list[Event]]:
    """Return a function that applies an action to one batch and returns the events.

    The batch's state is checked here already, so that all batches are checked before the first one is changed.

    :raises LedgerStateError: if the batch's generation has ended, or its state does not allow the action
    """
    partition = machine.partition(key.partition)
    if key.generation != partition.generation:
        raise LedgerStateError(
            f"generation {key.generation} has ended; the partition is in {partition.generation} now.", batch=str(key)
        )
    batch = partition.batches.get(key.seq)
    if kind is ActKind.RELEASE:
        held = partition.held(key.seq)
        return lambda: partition.release(held)[1]
    if kind is ActKind.CANCEL:
        sending = partition.sending(key.seq)
        return lambda: partition.cancel(sending)[1]
    if kind is ActKind.HOLD:
        ticket = _ticket(partition, key.seq)
        return lambda: partition.hold(ticket, reason=reason)[1]
    if batch is not None and batch.state is BatchState.HELD:
        held = partition.held(key.seq)
        return lambda: _released_and_skipped(partition, held, reason)
    ticket = _ticket(partition, key.seq)
    return lambda: _skip(partition, ticket, reason)


def _ticket(partition: Partition, seq: int) -> PlannedTicket | InFlightTicket:
    return partition.sending(seq) if seq in partition.in_flight else partition.planned(seq)


def _released_and_skipped(partition: Partition, held: HeldTicket, reason: str) -> list[Event]:
    planned, events = partition.release(held)
    return events + _skip(partition, planned, reason)


def _skip(partition: Partition, ticket: PlannedTicket | InFlightTicket, reason: str) -> list[Event]:
    """Skip a batch: in the ledger alone if it was never started, else the next attempt claims ``void`` in the sink."""
    if isinstance(ticket, PlannedTicket) and not partition.batches[ticket.key.seq].begun:
        return partition.skip(ticket, reason=reason)
    return partition.instruct(ticket, Instruction.VOID, reason=reason)
