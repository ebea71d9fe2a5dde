"""Load and store the index of dead letters: one entry per run of a batch's dead letters with one error type and state.

``core/dead_letters.py`` decides; this module loads and stores. The index is written in the transaction that stores a
receipt, so it holds every dead letter that counts. The receipts of replays then change the state of its entries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import Batch, BatchKey, Receipt, Verdict, side_generation
from airflow_provider_ckpt.core.dead_letters import (
    OPEN,
    UNTYPED,
    AttemptKey,
    Entry,
    Forgotten,
    Letters,
    LetterState,
    Replay,
    Reread,
    move,
    read_again,
)
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.ledger.store import bulk_sql, tables

_D = tables.dead_letter.c
_AT_ONCE = 500

Fresh = Sequence[tuple[Receipt, Mapping[str, int]]]
"""Receipts that the ledger did not know, each with its dead letters counted by error type.

Types come from a lane's report; dead letters beyond those that it names get the type ``unknown``.
"""


def load(connection: Connection, pipeline: str, batches: Iterable[BatchKey] | None = None) -> list[Entry]:
    """Return the entries of the index in order, all of them or those of some batches.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param batches: the batches; None for all
    """
    query = sa.select(tables.dead_letter).where(_D.pipeline == pipeline)
    order = (_D.generation, _D.partition, _D.seq, _D.error_type, _D.ordinal)
    if batches is None:
        return [_entry(row) for row in connection.execute(query.order_by(*order)).mappings()]
    places: dict[tuple[int, str], list[int]] = {}
    for key in set(batches):
        places.setdefault((key.generation, key.partition), []).append(key.seq)
    found: list[Entry] = []
    for (generation, partition), numbers in sorted(places.items()):
        here = query.where(_D.generation == generation, _D.partition == partition).order_by(*order)
        for at in range(0, len(numbers), _AT_ONCE):
            rows = connection.execute(here.where(_D.seq.in_(sorted(numbers)[at : at + _AT_ONCE]))).mappings()
            found += [_entry(row) for row in rows]
    return found


def rereads(connection: Connection, pipeline: str) -> list[Reread]:
    """Return the ranges that rewinds and replays of ranges have read again."""
    g, p = tables.generation.c, tables.partition.c
    limit = sa.select(p.side_end).where(p.pipeline == pipeline, p.partition == g.partition).scalar_subquery()
    rows = connection.execute(
        sa.select(g.generation, g.partition, g.base, g.committed, limit).where(g.pipeline == pipeline)
    )
    found = []
    for generation, partition, base, committed, side_end in rows:
        key = BatchKey(generation, partition, 0)
        if not key.letters:
            end = (side_end if side_end is not None else committed) if key.side else None
            found.append(Reread(key.source, generation, base, end))
    return found


def forgotten(connection: Connection, pipeline: str, partitions: Mapping[str, int]) -> list[str]:
    """Return the side partitions that this ledger has never known, in order.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param partitions: generation of each side partition, by id
    """
    c = tables.generation.c
    query = sa.select(c.generation, c.partition).where(c.pipeline == pipeline, c.generation.in_(partitions.values()))
    known = {(row.generation, row.partition) for row in connection.execute(query)}
    return sorted(name for name, generation in partitions.items() if (generation, name) not in known)


def index(
    connection: Connection,
    pipeline: str,
    fresh: Fresh,
    replays: Mapping[str, Replay],
    recalled: Forgotten = Forgotten(),  # noqa: B008  # immutable
) -> None:
    """Add the dead letters of receipts to the index, and update those that a replay has sent.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param fresh: receipts that the ledger did not know
    :param replays: dead letters that each side partition replays, by its id
    :param recalled: those of the replays that the ledger had forgotten
    """
    plain = [item for item in fresh if not item[0].key.letters]
    bulk_sql.insert_missing(connection, tables.dead_letter, [row for r, t in plain for row in _new(pipeline, r, t)])
    receipts: dict[str, list[tuple[Receipt, Mapping[str, int]]]] = {name: [] for name in recalled.replays}
    for item in fresh:
        if item[0].key.letters and item[0].key.partition in replays:
            receipts.setdefault(item[0].key.partition, []).append(item)
    for name in sorted(receipts, key=side_generation):  # a later replay may send what an earlier one parked again
        if name in recalled.replays:
            _recall(connection, pipeline, name, recalled)
        for receipt, types in receipts[name]:
            _replayed(connection, pipeline, receipt, types, replays[name])


def _recall(connection: Connection, pipeline: str, name: str, recalled: Forgotten) -> None:
    sent = recalled.replays[name].letters
    types = {source: recalled.types[source] for source in {letters.source for letters in sent}}
    name_types(connection, pipeline, types)
    become(connection, pipeline, sent, LetterState.REPLAYING, name)


def _replayed(
    connection: Connection, pipeline: str, receipt: Receipt, types: Mapping[str, int], replay: Replay
) -> None:
    """Update the index after a batch of a replay got its verdict.

    Its dead letters are replayed, or parked again if the batch was skipped. Dead letters that the replay itself
    produced are added as parked again.
    """
    sent = [placed.letters for placed in replay.within(receipt.range)]
    entries = load(connection, pipeline, {letters.key for letters in sent})
    if receipt.verdict is Verdict.VOID:
        put_back(connection, pipeline, sent)
        return
    own = {letters.source for letters in sent}
    known = [entry for entry in entries if entry.letters.source in own]
    _, changed = move(
        entries, sent, {*OPEN, LetterState.REPLAYING}, state=LetterState.REPLAYED, replay=receipt.key.partition
    )
    _store(connection, pipeline, changed)
    if receipt.counts.dead_lettered and known:
        span = Range(min(e.range.start for e in known), max(e.range.end for e in known))
        more = {"replays": 1 + max(e.replays for e in known), "range_start": span.start, "range_end": span.end}
        rows = [row | more for row in _new(pipeline, receipt, types)]
        bulk_sql.insert_missing(connection, tables.dead_letter, rows)


def sent(connection: Connection, pipeline: str, begun: Iterable[Batch], replays: Mapping[str, Replay]) -> None:
    """Set dead letters of at-most-once replays to replayed when their attempt begins, like records of such batches.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param begun: batches whose attempt begins
    :param replays: dead letters that each side partition replays, by its id
    """
    for batch in begun:
        if batch.key.partition in replays:
            own = [placed.letters for placed in replays[batch.key.partition].within(batch.range)]
            entries = load(connection, pipeline, {letters.key for letters in own})
            _, changed = move(entries, own, {LetterState.REPLAYING}, state=LetterState.REPLAYED)
            _store(connection, pipeline, changed)


def put_back(connection: Connection, pipeline: str, letters: Sequence[Letters]) -> None:
    """Park dead letters again whose replay was skipped.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param letters: the dead letters
    """
    entries = load(connection, pipeline, {item.key for item in letters})
    for state in OPEN:
        chosen = [entry for entry in entries if entry.at_rest is state]
        _, changed = move(chosen, letters, {LetterState.REPLAYING}, state=state, replay=None)
        _store(connection, pipeline, changed)


def replay_lost(connection: Connection, pipeline: str, letters: Sequence[Letters]) -> None:
    """Park dead letters again whose replay the sink has lost; the sink lost that replay's own dead letters as well.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param letters: the dead letters
    """
    entries = load(connection, pipeline, {item.key for item in letters})
    for state in OPEN:
        chosen = [entry for entry in entries if entry.at_rest is state]
        _, changed = move(chosen, letters, {LetterState.REPLAYED}, state=state, replay=None)
        _store(connection, pipeline, changed)


def still_open(connection: Connection, pipeline: str, letters: Sequence[Letters]) -> list[Letters]:
    """Return those dead letters that may be replayed or discarded, in the given order.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param letters: dead letters to look up
    """
    stretches = rereads(connection, pipeline)
    entries = [
        entry
        for entry in load(connection, pipeline, {item.key for item in letters})
        if read_again(entry, stretches) is None
    ]
    return [part for item in letters for part in move(entries, [item], OPEN)[0]]


def become(
    connection: Connection, pipeline: str, letters: Sequence[Letters], state: LetterState, replay: str | None = None
) -> None:
    """Set the state of those dead letters that are parked.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param letters: dead letters to change
    :param state: their new state
    :param replay: id of the side partition that replays them, if one does
    """
    entries = load(connection, pipeline, {item.key for item in letters})
    _, changed = move(entries, letters, OPEN, state=state, replay=replay)
    _store(connection, pipeline, changed)


def name_types(connection: Connection, pipeline: str, types: Mapping[AttemptKey, Mapping[str, int]]) -> None:
    """Replace the error type ``unknown`` by the types that the sink reports.

    An attempt's dead letters keep their types once any of them was replayed or discarded.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param types: dead letters of each attempt, counted by error type
    """
    entries: dict[AttemptKey, list[Entry]] = {}
    for entry in load(connection, pipeline, {source.key for source in types}):
        entries.setdefault(entry.letters.source, []).append(entry)
    changed: list[tuple[Entry, list[Entry]]] = []
    for source, found in entries.items():
        counts = types.get(source, {})
        known = sum(entry.letters.records for entry in found)
        untyped = any(entry.letters.error_type == UNTYPED for entry in found)
        if untyped and sum(counts.values()) == known and all(entry.state is entry.at_rest for entry in found):
            first, *others = found
            named = [
                _with(first, Letters(source.key, name, 0, records, source.attempt, source.epoch))
                for name, records in sorted(counts.items())
            ]
            changed += [(first, named), *((other, []) for other in others)]
    _store(connection, pipeline, changed)


def _with(entry: Entry, letters: Letters) -> Entry:
    return Entry(letters, entry.range, entry.state, entry.at, entry.replays, entry.replay)


def _store(connection: Connection, pipeline: str, changed: Collection[tuple[Entry, list[Entry]]]) -> None:
    names = [column.name for column in tables.dead_letter.primary_key]
    old = [_row(pipeline, before) for before, _ in changed]
    bulk_sql.delete(connection, tables.dead_letter, [{name: row[name] for name in names} for row in old])
    bulk_sql.insert(connection, tables.dead_letter, [_row(pipeline, entry) for _, after in changed for entry in after])


def _new(pipeline: str, receipt: Receipt, types: Mapping[str, int]) -> list[dict[str, Any]]:
    if not receipt.counts.dead_lettered:
        return []
    key, rest = receipt.key, receipt.counts.dead_lettered - sum(types.values())
    named = {**types, **({UNTYPED: rest} if rest > 0 else {})}
    entries = [
        Entry(
            Letters(key, name, 0, records, receipt.attempt, receipt.epoch),
            receipt.range,
            LetterState.PARKED_AGAIN if key.letters else LetterState.PARKED,
            receipt.at,
        )
        for name, records in named.items()
    ]
    return [_row(pipeline, entry) for entry in entries]


def _row(pipeline: str, entry: Entry) -> dict[str, Any]:
    letters = entry.letters
    return {
        "pipeline": pipeline,
        "generation": letters.key.generation,
        "partition": letters.key.partition,
        "seq": letters.key.seq,
        "error_type": letters.error_type,
        "ordinal": letters.first,
        "attempt": letters.attempt,
        "epoch": letters.epoch,
        "range_start": entry.range.start,
        "range_end": entry.range.end,
        "records": letters.records,
        "state": entry.state.value,
        "at": entry.at,
        "replays": entry.replays,
        "replay": entry.replay,
    }


def _entry(row: sa.RowMapping) -> Entry:
    key = BatchKey(row["generation"], row["partition"], row["seq"])
    return Entry(
        Letters(key, row["error_type"], row["ordinal"], row["records"], row["attempt"], row["epoch"]),
        Range(row["range_start"], row["range_end"]),
        LetterState(row["state"]),
        row["at"],
        row["replays"],
        row["replay"],
    )
