"""Apply a user's action to the state of a pipeline: completely, or not at all if the state does not allow it.

The module checks the state of the pipeline and of the batches that the action names, and changes it in memory
(semantics, sections 1, 3 and 4). ``ledger/commands/apply_action.py`` loads and stores that state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from airflow_provider_ckpt.core import side_partitions
from airflow_provider_ckpt.core.action import DEAD_LETTER_ACTIONS, NEED_COLUMNS, SINK_ACTIONS, Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey, SideKind
from airflow_provider_ckpt.core.dead_letters import DeadLetters
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase, PipelineState
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.core.replay_range import check_replay_range, replay_range, require_resolved, resend_range
from airflow_provider_ckpt.core.rewind import rewind
from airflow_provider_ckpt.core.tickets import Event, HeldTicket, InFlightTicket, PlannedTicket

_SIDE_KINDS = {ActionKind.REPLAY: SideKind.REPLAY, ActionKind.RECOVER: SideKind.RECOVERY}


def apply(pipeline_state: PipelineState, action: Action, *, reason: str) -> list[Event]:
    """Apply a user's action to a pipeline's state in memory, completely or not at all.

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
    if action.kind in NEED_COLUMNS:
        return []
    if action.kind in phases:
        return phases[action.kind](reason=reason)
    if action.kind is ActionKind.REWIND:
        _check_cancelled_replays(pipeline_state, action)
        events = _rewind(pipeline_state, action, reason)
        return events + cancel_replays(pipeline_state, action.cancelled_replays, reason)
    if action.kind in _SIDE_KINDS:
        return _re_read(pipeline_state, action, _SIDE_KINDS[action.kind])
    if action.kind in DEAD_LETTER_ACTIONS:
        return _act_on_dead_letters(pipeline_state, action, reason)
    return _act_on_batches(pipeline_state, action, reason)


def _change_sink(pipeline_state: PipelineState, action: Action, reason: str) -> list[Event]:
    """Apply an action on a changed sink: rewind its partitions, read its ranges again, and hold its batches.

    A batch is held if the sink may contain its rows without a receipt. All checks precede the first change, so that a
    refused action changes nothing.

    :param pipeline_state: the pipeline's partitions, which are changed
    :param action: an action of :data:`SINK_ACTIONS`
    :param reason: the actor's reason, stored in the events
    :return: the events for the audit log
    :raises LedgerStateError: if the pipeline's state does not allow the action
    """
    steps = [_batch_step(pipeline_state, ActionKind.HOLD, key, reason) for key in action.batches]
    for name, span in action.ranges:
        require_resolved(pipeline_state, name, span)
    _check_cancelled_replays(pipeline_state, action)
    events = _rewind(pipeline_state, action, reason) if action.positions else []
    for name, span in action.ranges:
        events += resend_range(pipeline_state, name, span)[1]
    events += [event for step in steps for event in step()]
    return events + cancel_replays(pipeline_state, action.cancelled_replays, reason)


def _check_cancelled_replays(pipeline_state: PipelineState, action: Action) -> None:
    for name in action.cancelled_replays:
        if pipeline_state.partition(name).unplanned() and pipeline_state.phase is not Phase.RUNNING:
            raise LedgerStateError(
                f"{name} replays dead letters that are to be read again, and cannot be cancelled while the pipeline "
                f"is {pipeline_state.phase.value}.",
                hint="Resume the pipeline first.",
            )


def cancel_replays(pipeline_state: PipelineState, names: Iterable[str], reason: str) -> list[Event]:
    """Cancel replays of dead letters: skip everything that their side partitions have not delivered yet.

    Only batches can be skipped, so the positions that are not planned yet are planned first. The caller is an action or
    a refresh that reads the records of these dead letters again; if the replays went on, the records would be delivered
    twice.

    :param pipeline_state: the pipeline's partitions, which are changed
    :param names: ids of the side partitions
    :param reason: the reason, stored in the events
    :return: the events for the audit log
    """
    events: list[Event] = []
    for partition in map(pipeline_state.partition, names):
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
        check_replay_range(pipeline_state, name, span)
    return [event for name, span in action.ranges for event in replay_range(pipeline_state, side, name, span)[1]]


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
