"""Convert batches to rows and back, and load and store them.

Loading batches dominates the time of a settlement, so rows are read by position.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import RESOLVED, Batch, BatchKey, BatchState, Instruction, Receipt
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.ledger.store import bulk_sql, tables

_B = tables.batch.c
BATCH_COLUMNS = (
    _B.generation,
    _B.partition,
    _B.seq,
    _B.range_start,
    _B.range_end,
    _B.state,
    _B.records,
    _B.instruction,
    _B.attempts,
    _B.failures,
    _B.finished,
    _B.round,
    _B.deaths,
    _B.alone,
    _B.not_before,
    _B.epoch,
    _B.cancelled,
    _B.error,
    _B.receipt,
)
"""Columns in the order in which :func:`batch_from` takes them."""

_KINDS = 8

Change = tuple[Batch | None, Batch]
"""Batch as its row has it, or None if it has no row, and batch as it is now."""

_STATES = {state.value: state for state in BatchState}
_INSTRUCTIONS = {instruction.value: instruction for instruction in Instruction}


def batch_from(row: Any) -> Batch:
    """Return the batch that a row of :data:`BATCH_COLUMNS` holds."""
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
    """Return the row of a batch; :func:`batch_from` is the inverse."""
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


def every(connection: Connection, pipeline: str, partitions: Iterable[str] | None) -> Iterable[Any]:
    """Return the rows of all batches in order, or of those of some partitions.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param partitions: ids of the partitions; None for all
    """
    query = sa.select(*BATCH_COLUMNS).where(_B.pipeline == pipeline)
    if partitions is not None:
        query = query.where(_B.partition.in_(sorted(set(partitions))))
    return connection.execute(query.order_by(_B.generation, _B.partition, _B.seq)).all()


def some(connection: Connection, pipeline: str, partitions: Iterable[str], keys: Iterable[BatchKey]) -> Iterable[Any]:
    """Return the rows of some batches, and of all resolved or cancelled batches of some partitions.

    A row may occur twice.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param partitions: ids of the partitions
    :param keys: the batches
    """
    ahead = sa.or_(_B.state.in_([state.value for state in RESOLVED]), _B.cancelled)
    query = sa.select(*BATCH_COLUMNS).where(_B.pipeline == pipeline, _B.partition.in_(sorted(partitions)), ahead)
    found = connection.execute(query).all()
    if wanted := runs(pipeline, keys):
        named = connection.execute(_named(connection.dialect.name), {"given": bulk_sql.as_json(wanted)})
        return [*found, *named.all()]
    return found


@lru_cache
def _named(dialect: str) -> sa.Select[Any]:
    outer = bulk_sql.given(
        dialect, tables.batch, ("pipeline", "generation", "partition"), numbers=(bulk_sql.FIRST, bulk_sql.LAST)
    )
    where = [_B[name] == outer.c[name] for name in ("pipeline", "generation", "partition")]
    found = bulk_sql.for_each(
        dialect, outer, tables.batch, *where, _B.seq.between(outer.c[bulk_sql.FIRST], outer.c[bulk_sql.LAST])
    )
    return found.with_only_columns(*(found.selected_columns[column.name] for column in BATCH_COLUMNS))


def write(connection: Connection, pipeline: str, changed: Sequence[Change]) -> None:
    """Insert new batches and update the others; batches with equal changes, which most have, share one statement.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param changed: batches before and after
    """
    fresh: list[dict[str, Any]] = []
    single: list[dict[str, Any]] = []
    alike: dict[tuple[tuple[str, Any], ...], list[BatchKey]] = {}
    for was, batch in changed:
        row = batch_row(pipeline, batch)
        if was is None:
            fresh.append(row)
            continue
        before = batch_row(pipeline, was)
        changes = tuple((name, value) for name, value in row.items() if value != before[name])
        if not changes:  # a repeated action gives an equal batch
            continue
        if was.error is batch.error and was.receipt is batch.receipt and (changes in alike or len(alike) < _KINDS):
            alike.setdefault(changes, []).append(batch.key)
        else:
            single.append(row)
    bulk_sql.insert(connection, tables.batch, fresh)
    bulk_sql.upsert(connection, tables.batch, single)
    for changes, keys in alike.items():
        bulk_sql.update_runs(connection, tables.batch, "seq", runs(pipeline, keys), dict(changes))


def runs(pipeline: str, keys: Iterable[BatchKey]) -> list[dict[str, Any]]:
    """Return batches as rows of runs of numbers, as :mod:`~airflow_provider_ckpt.ledger.store.bulk_sql` takes them."""
    places: dict[tuple[int, str], list[int]] = {}
    for key in keys:
        places.setdefault((key.generation, key.partition), []).append(key.seq)
    return [
        {
            "pipeline": pipeline,
            "generation": generation,
            "partition": partition,
            bulk_sql.FIRST: first,
            bulk_sql.LAST: last,
        }
        for (generation, partition), numbers in places.items()
        for first, last in bulk_sql.runs(numbers)
    ]
