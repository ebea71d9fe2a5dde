"""Carry out a user's action in the ledger: load the pipeline's state, apply the action, and store the new state.

``core/apply_action.py`` decides what the action changes. The event of an action contains its actor, its reason, and the
state before and after.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from airflow_provider_ckpt.connectors.source_plan import SNAPSHOT
from airflow_provider_ckpt.core import apply_action
from airflow_provider_ckpt.core.action import DEAD_LETTER_ACTIONS, SINK_ACTIONS, Action, ActionKind, refuse_own_command
from airflow_provider_ckpt.core.batch import AttemptOutcome, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import DeadLetterState, IndexEntry
from airflow_provider_ckpt.core.errors import CkptError, LedgerStateError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.core.replayable_dead_letters import find_replayed, replaying_within
from airflow_provider_ckpt.core.tickets import Event
from airflow_provider_ckpt.ledger.commands import generations
from airflow_provider_ckpt.ledger.commands.sink_state import clear_state
from airflow_provider_ckpt.ledger.queries import sink_state
from airflow_provider_ckpt.ledger.store import bulk_sql, dead_letter_index, tables
from airflow_provider_ckpt.ledger.store import events as event_store
from airflow_provider_ckpt.ledger.types import ActionResult
from airflow_provider_ckpt.ledger.unit_of_work import UnitOfWork

_READ_ON = frozenset({ActionKind.REWIND, ActionKind.RESEND_TO_SINK})
"""Actions that may rewind partitions, so that all records after a position are read again."""


def apply(work: UnitOfWork, action: Action, *, actor: str, reason: str | None) -> ActionResult:
    """Apply a user's action to a pipeline, and write the changed state and the action's events to the ledger.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param action: the action
    :param actor: the user who requests the action, such as ``cli:ann@host7``
    :param reason: the user's explanation, which the audit log stores; None if there is none
    :return: the result, with the values that the action concerns before and after it
    :raises LedgerStateError: if the pipeline's state does not allow the action; nothing is changed then
    """
    pipeline = work.lease.pipeline
    refuse_own_command(action.kind, pipeline)
    if action.kind in DEAD_LETTER_ACTIONS:
        action = replace(
            action, dead_letters=tuple(dead_letter_index.select_open(work.connection, pipeline, action.dead_letters))
        )
    _refuse_duplicates(work, action)
    if action.kind in _READ_ON:
        action = replace(action, cancelled_replays=_replays_read_again(work, action))
    before = _affected_state(work, action)
    try:
        events = apply_action.apply(work.pipeline_state, action, reason=reason or "")
    except CkptError as error:
        error.pipeline = error.pipeline or pipeline
        raise
    _record_outcomes(work, events)
    generations.record_generations(work, events, reason)
    _update_dead_letter_index(work, action, events)
    park_skipped(work, events)
    if action.kind in SINK_ACTIONS:
        clear_state(work.connection, pipeline)
        for item in work.touched_partitions:
            item.receipted = None
    _update_source_states(work, action)
    work.store()
    after = _affected_state(work, action)
    detail = {"action": action.to_json(), "reason": reason, "before": before, "after": after}
    rows = [
        *event_store.event_rows(work.lease, work.now, events),
        event_store.event_row(work.lease, work.now, action.kind.value, detail),
    ]
    bulk_sql.insert(work.connection, tables.event, [row | {"actor": actor} for row in rows])
    return ActionResult(action, applied=True, before=before, after=after)


def _refuse_duplicates(work: UnitOfWork, action: Action) -> None:
    """Refuse a range replay if a replay of dead letters delivers some of the same records: rows would come twice.

    Replays of dead letters count whether they are complete or still going on. The check is omitted for other actions,
    if the user chose ``--with-replayed``, and if the sink replaces rows by key.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param action: the action
    :raises LedgerStateError: if there are such dead letters; the error names their batches and range
    """
    pipeline = work.lease.pipeline
    if (
        action.kind is not ActionKind.REPLAY
        or action.with_replayed
        or sink_state.replaces_by_key(work.connection, pipeline)
    ):
        return
    entries = dead_letter_index.load(work.connection, pipeline)
    found = find_replayed(entries, action.ranges, dead_letter_index.load_rereads(work.connection, pipeline))
    if not found:
        return
    records = sum(entry.dead_letters.records for entry in found)
    batches = ", ".join(dict.fromkeys(str(entry.dead_letters.key) for entry in found[:5])) + (
        " …" if len(found) > 5 else ""
    )
    affected = Range(min(entry.range.start for entry in found), max(entry.range.end for entry in found))
    raise LedgerStateError(
        f"a replay has delivered, or is about to deliver, at least some of the {records} dead letters of {batches} in "
        f"{affected}; reading the range again would deliver them twice.",
        pipeline=pipeline,
        position=affected.start,
        hint=f"Read only the ranges before and after {affected}. If their rows were deleted from the target, or may be "
        "there twice, add --with-replayed.",
    )


def _replays_read_again(work: UnitOfWork, action: Action) -> tuple[str, ...]:
    """Return the ids of the side partitions of unfinished replays of dead letters whose records an action reads again.

    Otherwise both the replay and the action would deliver these records, so the caller cancels the replays.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param action: a rewind, or a resend to a sink that has lost records
    """
    partitions = work.pipeline_state.partitions
    ranges = [*action.ranges]
    for name, start in action.positions.items():
        end = partitions[name].planned_end if name in partitions else start
        ranges += [(name, Range(start, end))] if start < end else []
    return unfinished_replays(work, ranges) if ranges else ()


def unfinished_replays(work: UnitOfWork, ranges: Collection[tuple[str, Range]]) -> tuple[str, ...]:
    """Return the ids of side partitions that are still replaying dead letters of the given ranges of the source.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param ranges: pairs of a source partition and a range of it
    """
    partitions = work.pipeline_state.partitions
    waiting = dead_letter_index.load(work.connection, work.lease.pipeline)
    return tuple(sorted({entry.replay for entry in replaying_within(waiting, ranges) if entry.replay in partitions}))


def _affected_state(work: UnitOfWork, action: Action) -> dict[str, Any]:
    """Return the values that an action may change, JSON-ready; called before and after the action for the audit log.

    These are the phase, the number of held batches, the states of the batches and dead letters and the checkpoints of
    the partitions that the action names and, for actions on the sink, the stored state of the sink.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param action: the action
    """
    partitions, of_the_sink = work.pipeline_state.partitions, action.kind in SINK_ACTIONS
    batches: dict[str, str | None] = {}
    for key in action.batches:
        batch = partitions[key.partition].batches.get(key.seq) if key.partition in partitions else None
        batches[str(key)] = None if batch is None else batch.state.value
    touched = {*action.positions, *(name for name, _ in action.ranges)} & set(partitions)
    found = (
        dead_letter_index.load(work.connection, work.lease.pipeline, {item.key for item in action.dead_letters})
        if action.dead_letters
        else []
    )
    return {
        "phase": work.pipeline_state.phase.value,
        "batches": batches,
        "held": sum(b.state is BatchState.HELD for p in partitions.values() for b in p.batches.values()),
        "checkpoint": {name: [partitions[name].generation, partitions[name].committed] for name in sorted(touched)},
        "dead_letters": _count_by_state(found),
    } | (
        {"sink": sink_state.to_json(sink_state.load_expected_state(work.connection, work.lease.pipeline))}
        if of_the_sink
        else {}
    )


def _count_by_state(entries: Iterable[IndexEntry]) -> dict[str, int]:
    """Return the number of dead letters by state; states without dead letters are left out."""
    counts = dict.fromkeys(DeadLetterState, 0)
    for entry in entries:
        counts[entry.state] += entry.dead_letters.records
    return {state.value: records for state, records in counts.items() if records}


def _update_source_states(work: UnitOfWork, action: Action) -> None:
    """Update the JSON-ready values that the source connector stores with each partition and compares at each planning.

    The values in ``action.states`` replace stored ones. For rewound partitions the description of the source at the
    last planning (key ``snapshot``) is removed, since it concerns records that are read again.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param action: the action
    """
    for name, state in action.states.items():
        if name in work.stored:
            work.stored[name].state = {**work.stored[name].state, **state}
    for name in action.positions:
        item = work.stored[name]
        item.state = {key: value for key, value in item.state.items() if key != SNAPSHOT}


def _update_dead_letter_index(work: UnitOfWork, action: Action, events: Sequence[Event]) -> None:
    """Update the states of dead letters in the index after an action, for example to ``replaying`` or ``discarded``.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param action: the action
    :param events: the events that the action caused
    """
    connection, pipeline = work.connection, work.lease.pipeline
    if action.kind is ActionKind.RESEND_TO_SINK:
        dead_letter_index.park_lost_replays(connection, pipeline, action.dead_letters)
    if action.kind is ActionKind.DISCARD_DEAD_LETTERS:
        dead_letter_index.set_state(connection, pipeline, action.dead_letters, DeadLetterState.DISCARDED)
    for event in events:
        if event.kind == "side_partition_started" and "state" in event.detail:
            replay = Replay.from_json(event.detail["state"])
            dead_letter_index.set_state(
                connection, pipeline, replay.dead_letters, DeadLetterState.REPLAYING, event.partition
            )


def park_skipped(work: UnitOfWork, events: Iterable[Event]) -> None:
    """Set dead letters whose replay was skipped back to their state before the replay, ``parked`` or ``parked_again``.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param events: the events of a command; only skipped batches of replays are considered
    """
    for event in events:
        if event.kind == "skipped" and event.seq is not None and event.partition in work.replays:
            span = Range(*event.detail["range"])
            replay = work.replays[event.partition]
            sent = [placed.dead_letters for placed in replay.within(span)]
            dead_letter_index.park_again(work.connection, work.lease.pipeline, sent)


_ATTEMPT_OUTCOMES = {
    "abandoned": AttemptOutcome.ABANDONED,
    "cancelled": AttemptOutcome.CANCELLED,
    "held": AttemptOutcome.ABANDONED,
}


def _record_outcomes(work: UnitOfWork, events: Sequence[Event]) -> None:
    for event in events:
        if event.kind in _ATTEMPT_OUTCOMES and event.seq is not None:
            work.ended(BatchKey(event.generation, event.partition, event.seq), _ATTEMPT_OUTCOMES[event.kind])
