"""Batches and partitions as rows, and back. Loading a batch is the hot path of a settlement, so it goes by position."""

from __future__ import annotations

from typing import Any

from airflow_provider_ckpt.core.batch import Batch, BatchKey, BatchState, Instruction, Receipt
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.ledger import tables

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
"""In the order that :func:`batch_from` takes them."""

_STATES = {state.value: state for state in BatchState}
_INSTRUCTIONS = {instruction.value: instruction for instruction in Instruction}


def batch_from(row: Any) -> Batch:
    """The batch that a row of :data:`BATCH_COLUMNS` holds."""
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
    """The row of a batch; :func:`batch_from` is its inverse."""
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
        "receipt": batch.receipt.to_json() if batch.receipt else None,
    }
