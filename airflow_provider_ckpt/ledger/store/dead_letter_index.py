"""Load and store the index of dead letters in the table ``dead_letter``.

Each row is a group of consecutive dead letters of one batch with the same error type and state;
``core/dead_letters.py`` decides from which state a row may change. The index is written in the transaction that stores
a receipt, so it contains every dead letter that a receipt counts. The receipts of replays then change the state of the
dead letters that were sent again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.batch_key import BatchKey, side_generation
from airflow_provider_ckpt.core.dead_letters import (
    REPLAYABLE,
    UNKNOWN_TYPE,
    AttemptKey,
    DeadLetterEvent,
    DeadLetters,
    DeadLetterState,
    IndexEntry,
    RereadRange,
    attempt_of,
    newest_reread,
    update_entries,
)
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Receipt, Verdict
from airflow_provider_ckpt.core.replay_content import LostReplays, Replay
from airflow_provider_ckpt.ledger.store import bulk_sql, tables

_D = tables.dead_letter.c
_AT_ONCE = 500

NewReceipts = Sequence[tuple[Receipt, Mapping[str, int]]]
"""Receipts that were new to the ledger, each with its dead letters counted by error type.

The types come from a lane's report. If the receipt counts more dead letters than the report names, the rest gets the
type ``unknown``.
"""


def load(connection: Connection, pipeline: str, batches: Iterable[BatchKey] | None = None) -> list[IndexEntry]:
    """Return the entries of the index in order: all entries of a pipeline, or those of some batches.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param batches: the batches; None for all
    """
    query = sa.select(tables.dead_letter).where(_D.pipeline == pipeline)
    order = (_D.generation, _D.partition, _D.seq, _D.error_type, _D.ordinal)
    if batches is None:
        return [entry_from_row(row) for row in connection.execute(query.order_by(*order)).mappings()]
    numbers_by_partition: dict[tuple[int, str], list[int]] = {}
    for key in set(batches):
        numbers_by_partition.setdefault((key.generation, key.partition), []).append(key.seq)
    found: list[IndexEntry] = []
    for (generation, partition), numbers in sorted(numbers_by_partition.items()):
        of_partition = query.where(_D.generation == generation, _D.partition == partition).order_by(*order)
        for at in range(0, len(numbers), _AT_ONCE):
            rows = connection.execute(of_partition.where(_D.seq.in_(sorted(numbers)[at : at + _AT_ONCE]))).mappings()
            found += [entry_from_row(row) for row in rows]
    return found


def load_rereads(connection: Connection, pipeline: str) -> list[RereadRange]:
    """Return the ranges of the source that were read again, by rewinds, range replays or recoveries.

    Dead letters of older generations in these ranges are obsolete. Of several generations that began at the same
    position, such as those of refreshes, only the newest is returned, since it makes the dead letters of the others
    obsolete too.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    """
    g, p = tables.generation.c, tables.partition.c
    limit = sa.select(p.side_end).where(p.pipeline == pipeline, p.partition == g.partition).scalar_subquery()
    rows = connection.execute(
        sa.select(sa.func.max(g.generation), g.partition, g.base, sa.func.max(g.committed), limit)
        .where(g.pipeline == pipeline)
        .group_by(g.partition, g.base)
    )
    found = []
    for generation, partition, base, committed, side_end in rows:
        key = BatchKey(generation, partition, 0)
        if not key.is_replay:
            end = (side_end if side_end is not None else committed) if key.is_side_partition else None
            found.append(RereadRange(key.source, generation, base, end))
    return found


def unknown_side_partitions(connection: Connection, pipeline: str, partitions: Mapping[str, int]) -> list[str]:
    """Return the ids of those given side partitions that this ledger has never stored, sorted.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param partitions: generation of each given side partition, by id
    """
    c = tables.generation.c
    query = sa.select(c.generation, c.partition).where(c.pipeline == pipeline, c.generation.in_(partitions.values()))
    known = {(row.generation, row.partition) for row in connection.execute(query)}
    return sorted(name for name, generation in partitions.items() if (generation, name) not in known)


def update_index(
    connection: Connection,
    pipeline: str,
    fresh: NewReceipts,
    replays: Mapping[str, Replay],
    recalled: LostReplays = LostReplays(),  # noqa: B008  # immutable
) -> None:
    """Add the dead letters that new receipts count to the index, and update the states of those that were replayed.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param fresh: receipts that were new to the ledger
    :param replays: content of each replay, by the id of its side partition
    :param recalled: replays that only the sink still knows, because the ledger was restored from an older backup; their
        dead letters get the state ``replaying`` before the receipts are applied
    """
    of_source = [item for item in fresh if not item[0].key.is_replay]
    bulk_sql.insert_missing(
        connection, tables.dead_letter, [row for r, t in of_source for row in _new_rows(pipeline, r, t)]
    )
    receipts: dict[str, list[tuple[Receipt, Mapping[str, int]]]] = {name: [] for name in recalled.replays}
    for item in fresh:
        if item[0].key.is_replay and item[0].key.partition in replays:
            receipts.setdefault(item[0].key.partition, []).append(item)
    for name in sorted(receipts, key=side_generation):  # a later replay may send what an earlier one parked again
        if name in recalled.replays:
            _restore_replay(connection, pipeline, name, recalled)
        for receipt, types in receipts[name]:
            _apply_replay_receipt(connection, pipeline, receipt, types, replays[name])


def _restore_replay(connection: Connection, pipeline: str, name: str, recalled: LostReplays) -> None:
    sent = recalled.replays[name].dead_letters
    types = {source: recalled.types[source] for source in {dead_letters.source for dead_letters in sent}}
    set_error_types(connection, pipeline, types)
    set_state(connection, pipeline, sent, DeadLetterState.REPLAYING, name)


def _apply_replay_receipt(
    connection: Connection, pipeline: str, receipt: Receipt, types: Mapping[str, int], replay: Replay
) -> None:
    """Update the index after a batch of a replay got its verdict.

    The dead letters that the batch sent get the state ``replayed``. If the verdict is ``void``, they get the state back
    that they had before the replay. Records that failed again in the replay are added to the index with the state
    ``parked_again``.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param receipt: the receipt of the replay's batch
    :param types: number of dead letters that the replay's batch wrote, by error type
    :param replay: the content of the replay
    """
    sent = [placed.dead_letters for placed in replay.within(receipt.range)]
    entries = load(connection, pipeline, {dead_letters.key for dead_letters in sent})
    if receipt.verdict is Verdict.VOID:
        park_again(connection, pipeline, sent)
        return
    own = {dead_letters.source for dead_letters in sent}
    known = [entry for entry in entries if entry.dead_letters.source in own]
    _, changed = update_entries(
        entries,
        sent,
        DeadLetterEvent.REPLAY_RECEIPT,
        state=DeadLetterState.REPLAYED,
        replay=receipt.key.partition,
    )
    _store(connection, pipeline, changed)
    if receipt.counts.dead_lettered and known:
        span = Range(min(e.range.start for e in known), max(e.range.end for e in known))
        more = {"replays": 1 + max(e.replays for e in known), "range_start": span.start, "range_end": span.end}
        rows = [row | more for row in _new_rows(pipeline, receipt, types)]
        bulk_sql.insert_missing(connection, tables.dead_letter, rows)


def resolve_at_most_once(
    connection: Connection, pipeline: str, started: Iterable[Batch], replays: Mapping[str, Replay]
) -> None:
    """Set dead letters to ``replayed`` when a batch that replays them begins, with at-most-once delivery.

    Such a batch is resolved before it is sent, so its dead letters are never replayed a second time.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param started: batches whose attempt begins; batches that are not part of a replay are ignored
    :param replays: content of each replay, by the id of its side partition
    """
    for batch in started:
        if batch.key.partition in replays:
            own = [placed.dead_letters for placed in replays[batch.key.partition].within(batch.range)]
            entries = load(connection, pipeline, {dead_letters.key for dead_letters in own})
            _, changed = update_entries(
                entries, own, DeadLetterEvent.AT_MOST_ONCE_ATTEMPT, state=DeadLetterState.REPLAYED
            )
            _store(connection, pipeline, changed)


def park_again(connection: Connection, pipeline: str, dead_letters: Sequence[DeadLetters]) -> None:
    """Give dead letters in the state ``replaying`` their former state back, because their replay was skipped.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param dead_letters: the dead letters
    """
    _give_back(connection, pipeline, dead_letters, DeadLetterEvent.REPLAY_SKIPPED)


def park_lost_replays(connection: Connection, pipeline: str, dead_letters: Sequence[DeadLetters]) -> None:
    """Give dead letters in the state ``replayed`` their former state back, because the sink has lost their replay.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param dead_letters: the dead letters
    """
    _give_back(connection, pipeline, dead_letters, DeadLetterEvent.REPLAY_LOST)


def _give_back(
    connection: Connection, pipeline: str, dead_letters: Sequence[DeadLetters], event: DeadLetterEvent
) -> None:
    """Set dead letters back to the state that they had before their replay, ``parked`` or ``parked_again``.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param dead_letters: the dead letters
    :param event: the event that undoes the replay; dead letters in a state that it does not change are left as they are
    """
    entries = load(connection, pipeline, {item.key for item in dead_letters})
    for state in REPLAYABLE:
        chosen = [entry for entry in entries if entry.parked_state is state]
        _, changed = update_entries(chosen, dead_letters, event, state=state, replay=None)
        _store(connection, pipeline, changed)


def select_open(connection: Connection, pipeline: str, dead_letters: Sequence[DeadLetters]) -> list[DeadLetters]:
    """Return the given dead letters that may still be replayed or discarded.

    A dead letter must be parked, and its record must not have been read again by a rewind, range replay or recovery.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param dead_letters: the given dead letters
    """
    rereads = load_rereads(connection, pipeline)
    entries = [
        entry
        for entry in load(connection, pipeline, {item.key for item in dead_letters})
        if newest_reread(entry, rereads) is None
    ]
    return [part for item in dead_letters for part in update_entries(entries, [item], DeadLetterEvent.SELECTED)[0]]


def set_state(
    connection: Connection,
    pipeline: str,
    dead_letters: Sequence[DeadLetters],
    state: DeadLetterState,
    replay: str | None = None,
) -> None:
    """Set the state of the given dead letters that are parked; dead letters in another state are not changed.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param dead_letters: the given dead letters
    :param state: their new state
    :param replay: id of the side partition that replays the dead letters; None unless the new state is ``replaying``
    """
    entries = load(connection, pipeline, {item.key for item in dead_letters})
    _, changed = update_entries(entries, dead_letters, DeadLetterEvent.SELECTED, state=state, replay=replay)
    _store(connection, pipeline, changed)


def set_error_types(connection: Connection, pipeline: str, types: Mapping[AttemptKey, Mapping[str, int]]) -> None:
    """Replace the error type ``unknown`` of dead letters by the types that the sink reports.

    If any dead letter of an attempt was replayed or discarded, all dead letters of that attempt keep their types, since
    a dead letter is identified by its number among those of its attempt with the same type.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param types: for each attempt that wrote dead letters, their number by error type
    """
    entries: dict[AttemptKey, list[IndexEntry]] = {}
    for entry in load(connection, pipeline, {source.key for source in types}):
        entries.setdefault(entry.dead_letters.source, []).append(entry)
    changed: list[tuple[IndexEntry, list[IndexEntry]]] = []
    for source, found in entries.items():
        counts = types.get(source, {})
        known = sum(entry.dead_letters.records for entry in found)
        untyped = any(entry.dead_letters.error_type == UNKNOWN_TYPE for entry in found)
        if untyped and sum(counts.values()) == known and all(entry.state is entry.parked_state for entry in found):
            first, *others = found
            named = [
                _with_letters(first, DeadLetters(source.key, name, 0, records, source.attempt, source.epoch))
                for name, records in sorted(counts.items())
            ]
            changed += [(first, named), *((other, []) for other in others)]
    _store(connection, pipeline, changed)


def _with_letters(entry: IndexEntry, dead_letters: DeadLetters) -> IndexEntry:
    return IndexEntry(dead_letters, entry.range, entry.state, entry.at, entry.replays, entry.replay)


def _store(connection: Connection, pipeline: str, changed: Collection[tuple[IndexEntry, list[IndexEntry]]]) -> None:
    names = [column.name for column in tables.dead_letter.primary_key]
    old = [_row(pipeline, before) for before, _ in changed]
    bulk_sql.delete(connection, tables.dead_letter, [{name: row[name] for name in names} for row in old])
    bulk_sql.insert(connection, tables.dead_letter, [_row(pipeline, entry) for _, after in changed for entry in after])


def _new_rows(pipeline: str, receipt: Receipt, types: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the index rows for the dead letters that a receipt counts, one for each error type.

    :param pipeline: name of the pipeline
    :param receipt: the receipt; only dead letters of the attempt that it names are in the index
    :param types: number of dead letters by error type; the rest of the receipt's count gets the type ``unknown``
    """
    if not receipt.counts.dead_lettered:
        return []
    source, rest = attempt_of(receipt), receipt.counts.dead_lettered - sum(types.values())
    named = {**types, **({UNKNOWN_TYPE: rest} if rest > 0 else {})}
    entries = [
        IndexEntry(
            DeadLetters(source.key, name, 0, records, source.attempt, source.epoch),
            receipt.range,
            DeadLetterState.PARKED_AGAIN if source.key.is_replay else DeadLetterState.PARKED,
            receipt.at,
        )
        for name, records in named.items()
    ]
    return [_row(pipeline, entry) for entry in entries]


def _row(pipeline: str, entry: IndexEntry) -> dict[str, Any]:
    dead_letters = entry.dead_letters
    return {
        "pipeline": pipeline,
        "generation": dead_letters.key.generation,
        "partition": dead_letters.key.partition,
        "seq": dead_letters.key.seq,
        "error_type": dead_letters.error_type,
        "ordinal": dead_letters.first,
        "attempt": dead_letters.attempt,
        "epoch": dead_letters.epoch,
        "range_start": entry.range.start,
        "range_end": entry.range.end,
        "records": dead_letters.records,
        "state": entry.state.value,
        "at": entry.at,
        "replays": entry.replays,
        "replay": entry.replay,
    }


def entry_from_row(row: sa.RowMapping) -> IndexEntry:
    """Return the entry of the index that a row of the table ``dead_letter`` stores."""
    key = BatchKey(row["generation"], row["partition"], row["seq"])
    return IndexEntry(
        DeadLetters(key, row["error_type"], row["ordinal"], row["records"], row["attempt"], row["epoch"]),
        Range(row["range_start"], row["range_end"]),
        DeadLetterState(row["state"]),
        row["at"],
        row["replays"],
        row["replay"],
    )
