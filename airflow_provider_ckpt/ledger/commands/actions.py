"""Apply users' actions, or store them while a run holds the lease (semantics, section 4).

Every action leaves one event with actor, reason, and the state before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core import actions
from airflow_provider_ckpt.core.actions import Act, ActKind
from airflow_provider_ckpt.core.batch import AttemptOutcome, BatchKey, BatchState
from airflow_provider_ckpt.core.dead_letters import Entry, LetterState, Replay, replayed_within, replaying_within
from airflow_provider_ckpt.core.errors import CkptError, LedgerStateError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.recovery import WITNESS
from airflow_provider_ckpt.core.tickets import Event
from airflow_provider_ckpt.ledger.commands import generations, sink_state
from airflow_provider_ckpt.ledger.store import bulk_sql, dead_letters, tables
from airflow_provider_ckpt.ledger.store import events as trail
from airflow_provider_ckpt.ledger.types import ActResult, Intent
from airflow_provider_ckpt.ledger.unit_of_work import Work

_I = tables.intent.c

_READ_ON = frozenset({ActKind.REWIND, ActKind.ACCEPT_SINK})
"""Acts after which positions are read again together with what follows them."""


def keep(connection: Connection, pipeline: str, act: Act, who: str, why: str | None, now: Any) -> int:
    """Store an action for the holder of the lease; return its number.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param act: the action
    :param who: the actor
    :param why: the actor's reason, if it was given
    :param now: time of the command
    """
    row = {
        "pipeline": pipeline,
        "kind": act.kind.value,
        "argument": act.to_json(),
        "who": who,
        "why": why,
        "stored_at": now,
    }
    number: int = connection.execute(tables.intent.insert().values(row).returning(_I.id)).scalar_one()
    return number


def waiting(connection: Connection, pipeline: str) -> list[Intent]:
    """Return the stored actions that have not been applied yet, oldest first."""
    rows = connection.execute(
        sa.select(_I.id, _I.argument, _I.who, _I.why, _I.stored_at)
        .where(_I.pipeline == pipeline, _I.applied_at.is_(None))
        .order_by(_I.id)
    )
    return [Intent(row.id, Act.from_json(row.argument), row.who, row.why, row.stored_at) for row in rows]


def apply(work: Work, act: Act, *, who: str, why: str | None) -> ActResult:
    """Apply one action and record its event.

    :param work: the command's unit of work
    :param act: the action
    :param who: the actor
    :param why: the actor's reason, if it was given
    :raises LedgerStateError: if the action does not fit the pipeline's state; nothing is changed then
    """
    pipeline = work.lease.pipeline
    if act.kind in actions.OF_LETTERS:
        act = replace(act, letters=tuple(dead_letters.still_open(work.connection, pipeline, act.letters)))
    _refuse_doubles(work, act)
    if act.kind in _READ_ON:
        act = replace(act, taken_back=_replays_read_again(work, act))
    before = _state(work, act)
    try:
        events = actions.apply(work.machine, act, reason=why or "")
    except CkptError as error:
        error.pipeline = error.pipeline or pipeline
        raise
    _note_endings(work, events)
    generations.note(work, events, why)
    _keep_letters(work, act, events)
    if act.kind in actions.OF_THE_SINK:
        sink_state.forget(work.connection, pipeline)
        for item in work.changing:
            item.receipted = None
    _watch_anew(work, act)
    work.store()
    after = _state(work, act)
    detail = {"act": act.to_json(), "reason": why, "before": before, "after": after}
    rows = [*trail.noteworthy(work.lease, work.now, events), trail.row(work.lease, work.now, act.kind.value, detail)]
    bulk_sql.insert(work.connection, tables.event, [row | {"who": who} for row in rows])
    return ActResult(act, applied=True, before=before, after=after)


def apply_waiting(work: Work, *, leave: Set[ActKind], keep_refused: bool = False) -> list[ActResult]:
    """Apply the stored actions; one that no longer fits is refused, with an event that names the refusal.

    :param work: the command's unit of work
    :param leave: kinds that stay stored for a caller that has fenced the sink, or has read its receipts
    :param keep_refused: keep actions that do not fit for the next run: a stop may fit once that run has fenced the work
        of a dead one
    """
    results = []
    for intent in waiting(work.connection, work.lease.pipeline):
        if intent.act.kind in leave:
            continue
        try:
            result = apply(work, intent.act, who=intent.who, why=intent.why)
        except LedgerStateError as refusal:
            if keep_refused:
                continue
            result = ActResult(intent.act, applied=False, refusal=str(refusal))
            detail = {"act": intent.act.to_json(), "reason": intent.why, "refusal": result.refusal}
            row = trail.row(work.lease, work.now, "act_refused", detail) | {"who": intent.who}
            bulk_sql.insert(work.connection, tables.event, [row])
        work.connection.execute(
            tables.intent.update()
            .where(_I.id == intent.id)
            .values(applied_at=work.now, result={"applied": result.applied, "refusal": result.refusal})
        )
        results.append(result)
    return results


def _refuse_doubles(work: Work, act: Act) -> None:
    """Refuse to re-read ranges whose dead letters a replay has delivered, unless the sink replaces rows by key.

    :raises LedgerStateError: naming the batches and the range
    """
    pipeline = work.lease.pipeline
    if act.kind is not ActKind.REPLAY or act.with_replayed or sink_state.by_key(work.connection, pipeline):
        return
    entries = dead_letters.load(work.connection, pipeline)
    found = replayed_within(entries, act.spans, dead_letters.rereads(work.connection, pipeline))
    if not found:
        return
    records = sum(entry.letters.records for entry in found)
    batches = ", ".join(dict.fromkeys(str(entry.letters.key) for entry in found[:5])) + (" …" if len(found) > 5 else "")
    stretch = Range(min(entry.range.start for entry in found), max(entry.range.end for entry in found))
    raise LedgerStateError(
        f"{records} dead letters of {batches}, within {stretch}, were delivered by a replay of their own, some of them "
        "at least, or are about to be; reading the range again would deliver them twice.",
        pipeline=pipeline,
        position=stretch.start,
        hint="Read the ranges before and after it. If their rows were deleted from the target, or may be there twice, "
        "add --with-replayed.",
    )


def _replays_read_again(work: Work, act: Act) -> tuple[str, ...]:
    """The replays that are not done with dead letters whose records an act has read again: both would deliver them."""
    partitions = work.machine.partitions
    spans = [*act.spans]
    for name, start in act.positions.items():
        end = partitions[name].planned_end if name in partitions else start
        spans += [(name, Range(start, end))] if start < end else []
    waiting = dead_letters.load(work.connection, work.lease.pipeline) if spans else ()
    return tuple(sorted({entry.replay for entry in replaying_within(waiting, spans) if entry.replay in partitions}))


def _state(work: Work, act: Act) -> dict[str, Any]:
    """Return what an action concerns: the phase, the batches that it names, the checkpoints that it moves."""
    partitions, of_the_sink = work.machine.partitions, act.kind in actions.OF_THE_SINK
    batches: dict[str, str | None] = {}
    for key in act.batches:
        batch = partitions[key.partition].batches.get(key.seq) if key.partition in partitions else None
        batches[str(key)] = None if batch is None else batch.state.value
    touched = {*act.positions, *(name for name, _ in act.spans)} & set(partitions)
    found = (
        dead_letters.load(work.connection, work.lease.pipeline, {item.key for item in act.letters})
        if act.letters
        else []
    )
    return {
        "phase": work.machine.phase.value,
        "batches": batches,
        "held": sum(b.state is BatchState.HELD for p in partitions.values() for b in p.batches.values()),
        "checkpoint": {name: [partitions[name].generation, partitions[name].committed] for name in sorted(touched)},
        "dead_letters": _by_state(found),
    } | ({"sink": sink_state.to_json(sink_state.standing(work.connection, work.lease.pipeline))} if of_the_sink else {})


def _by_state(entries: Iterable[Entry]) -> dict[str, int]:
    """Return the number of dead letters in each state."""
    counts = dict.fromkeys(LetterState, 0)
    for entry in entries:
        counts[entry.state] += entry.letters.records
    return {state.value: records for state, records in counts.items() if records}


def _watch_anew(work: Work, act: Act) -> None:
    """Update what plannings compare the source with: as the action says, and nothing in partitions that it rewinds."""
    for name, state in act.states.items():
        if name in work.stored:
            work.stored[name].state = {**work.stored[name].state, **state}
    for name in act.positions:
        item = work.stored[name]
        item.state = {key: value for key, value in item.state.items() if key != WITNESS}


def _keep_letters(work: Work, act: Act, events: Sequence[Event]) -> None:
    """Update the index of dead letters after an action."""
    connection, pipeline = work.connection, work.lease.pipeline
    if act.kind is ActKind.ACCEPT_SINK:
        dead_letters.replay_lost(connection, pipeline, act.letters)
    if act.kind is ActKind.DISCARD_LETTERS:
        dead_letters.become(connection, pipeline, act.letters, LetterState.DISCARDED)
    for event in events:
        if event.kind == "side_partition_started" and "state" in event.detail:
            replay = Replay.from_json(event.detail["state"])
            dead_letters.become(connection, pipeline, replay.letters, LetterState.REPLAYING, event.partition)
        elif event.kind == "skipped" and event.seq is not None and event.partition in work.replays:
            span = Range(*event.detail["range"])
            replay = work.replays[event.partition]
            dead_letters.put_back(connection, pipeline, [placed.letters for placed in replay.within(span)])


_ENDED = {
    "abandoned": AttemptOutcome.ABANDONED,
    "cancelled": AttemptOutcome.CANCELLED,
    "held": AttemptOutcome.ABANDONED,
}


def _note_endings(work: Work, events: Sequence[Event]) -> None:
    for event in events:
        if event.kind in _ENDED and event.seq is not None:
            work.ended(BatchKey(event.generation, event.partition, event.seq), _ENDED[event.kind])
