"""Load and store batches in the table ``batch``.

Loading batches takes most of the time of a settlement, so values are read from rows by their position.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import RESOLVED, Batch, BatchState, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.ledger.store import bulk_sql, tables

_BATCH = tables.batch.c
BATCH_COLUMNS = (
    _BATCH.generation,
    _BATCH.partition,
    _BATCH.seq,
    _BATCH.range_start,
    _BATCH.range_end,
    _BATCH.state,
    _BATCH.records,
    _BATCH.instruction,
    _BATCH.attempts,
    _BATCH.failures,
    _BATCH.finished,
    _BATCH.round,
    _BATCH.deaths,
    _BATCH.alone,
    _BATCH.not_before,
    _BATCH.epoch,
    _BATCH.cancelled,
    _BATCH.error,
    _BATCH.receipt,
)
"""Columns of the table ``batch``, in the order in which :func:`batch_from` expects their values."""

_MAX_SHARED_UPDATES = 8

Change = tuple[Batch | None, Batch]
"""Pair of a batch as the ledger stores it (None if it has no row yet), and as the command has changed it."""

_STATES = {state.value: state for state in BatchState}
_INSTRUCTIONS = {instruction.value: instruction for instruction in Instruction}


def batch_from(row: Any) -> Batch:
    """Return the batch that a row of the table ``batch`` stores.

    :param row: values of the columns :data:`BATCH_COLUMNS`, in their order
    """
    generation, partition, seq, start, end, state, records, instruction, *numbers, cancelled, error, receipt = row
    attempts, failures, finished, tries, deaths, alone, not_before, epoch = numbers
    return Batch(
        BatchKey(generation, partition, seq),
        Range(start, end),
        _STATES[state],
        records,
        _INSTRUCTIONS[instruction],
        attempts,
        failures,
        finished,
        tries,
        deaths,
        alone,
        not_before,
        epoch,
        cancelled,
        ErrorInfo.from_json(error) if error is not None else None,
        Receipt.from_json(receipt) if receipt is not None else None,
    )


def batch_row(pipeline: str, batch: Batch) -> dict[str, Any]:
    """Return a batch as a row of the table ``batch``; :func:`batch_from` is the inverse.

    The positions of the records in the batch's receipt are not stored.
    """
    return {
        "pipeline": pipeline,
        "generation": batch.key.generation,
        "partition": batch.key.partition,
        "seq": batch.key.seq,
        "range_start": batch.range.start,
        "range_end": batch.range.end,
        "state": batch.state.value,
        "records": batch.records,
        "instruction": batch.instruction.value,
        "attempts": batch.attempts,
        "failures": batch.failures,
        "finished": batch.finished,
        "round": batch.round,
        "deaths": batch.deaths,
        "alone": batch.alone,
        "not_before": batch.not_before,
        "epoch": batch.epoch,
        "cancelled": batch.cancelled,
        "error": batch.error.to_json() if batch.error else None,
        "receipt": replace(batch.receipt, positions=None).to_json() if batch.receipt else None,
    }


def load_all(connection: Connection, pipeline: str, partitions: Iterable[str] | None) -> Iterable[Any]:
    """Return the rows of all batches of a pipeline or of some of its partitions, by generation, partition and seq.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param partitions: ids of the partitions; None for all
    """
    query = sa.select(*BATCH_COLUMNS).where(_BATCH.pipeline == pipeline)
    if partitions is not None:
        wanted = sorted(set(partitions))
        if not wanted:
            return []
        query = query.where(_BATCH.partition.in_(wanted))
    return connection.execute(query.order_by(_BATCH.generation, _BATCH.partition, _BATCH.seq)).all()


def load_some(
    connection: Connection, pipeline: str, partitions: Iterable[str], keys: Iterable[BatchKey]
) -> Iterable[Any]:
    """Return the rows of some batches, and of all resolved or cancelled batches of their partitions.

    The latter decide how far the checkpoint moves when some batches change. A row may occur twice.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param partitions: ids of the partitions
    :param keys: the batches to change
    """
    resolved_or_cancelled = sa.or_(_BATCH.state.in_([state.value for state in RESOLVED]), _BATCH.cancelled)
    query = sa.select(*BATCH_COLUMNS).where(
        _BATCH.pipeline == pipeline, _BATCH.partition.in_(sorted(partitions)), resolved_or_cancelled
    )
    found = connection.execute(query).all()
    if wanted := key_runs(pipeline, keys):
        named = connection.execute(_rows_of_runs(connection.dialect.name), {"given": bulk_sql.as_json(wanted)})
        return [*found, *named.all()]
    return found


@lru_cache
def _rows_of_runs(dialect: str) -> sa.Select[Any]:
    outer = bulk_sql.given_rows(
        dialect, tables.batch, ("pipeline", "generation", "partition"), numbers=(bulk_sql.FIRST, bulk_sql.LAST)
    )
    where = [_BATCH[name] == outer.c[name] for name in ("pipeline", "generation", "partition")]
    found = bulk_sql.look_up_each(
        dialect, outer, tables.batch, *where, _BATCH.seq.between(outer.c[bulk_sql.FIRST], outer.c[bulk_sql.LAST])
    )
    return found.with_only_columns(*(found.selected_columns[column.name] for column in BATCH_COLUMNS))


def write(connection: Connection, pipeline: str, changed: Sequence[Change]) -> None:
    """Insert new batches and update changed ones.

    Batches with equal changes, which are most of them, share one statement.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param changed: pairs of a batch as it is stored (None if it is new) and as it is now
    """
    fresh: list[dict[str, Any]] = []
    single: list[dict[str, Any]] = []
    keys_by_change: dict[tuple[tuple[str, Any], ...], list[BatchKey]] = {}
    for was, batch in changed:
        row = batch_row(pipeline, batch)
        if was is None:
            fresh.append(row)
            continue
        before = batch_row(pipeline, was)
        changes = tuple((name, value) for name, value in row.items() if value != before[name])
        if not changes:  # a repeated action gives an equal batch
            continue
        if (
            was.error is batch.error
            and was.receipt is batch.receipt
            and (changes in keys_by_change or len(keys_by_change) < _MAX_SHARED_UPDATES)
        ):
            keys_by_change.setdefault(changes, []).append(batch.key)
        else:
            single.append(row)
    bulk_sql.insert(connection, tables.batch, fresh)
    bulk_sql.upsert(connection, tables.batch, single)
    for changes, keys in keys_by_change.items():
        bulk_sql.update_runs(connection, tables.batch, "seq", key_runs(pipeline, keys), dict(changes))


def key_runs(pipeline: str, keys: Iterable[BatchKey]) -> list[dict[str, Any]]:
    """Return a row for each sequence of batches with consecutive seqs: its first and last seq, for :mod:`~.bulk_sql`.

    :param pipeline: name of the pipeline
    :param keys: the batches
    """
    numbers_by_partition: dict[tuple[int, str], list[int]] = {}
    for key in keys:
        numbers_by_partition.setdefault((key.generation, key.partition), []).append(key.seq)
    return [
        {
            "pipeline": pipeline,
            "generation": generation,
            "partition": partition,
            bulk_sql.FIRST: first,
            bulk_sql.LAST: last,
        }
        for (generation, partition), numbers in numbers_by_partition.items()
        for first, last in bulk_sql.runs(numbers)
    ]
