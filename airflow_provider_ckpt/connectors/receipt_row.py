"""Convert a row of a receipts table to a receipt; the tables of all databases have the same columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict


def to_receipt(row: Sequence[Any]) -> Receipt:
    """Return the receipt that a row of a receipts table contains.

    :param row: generation, partition, seq, start, end, verdict, epoch, attempt, the numbers of records read, delivered,
        filtered and dead-lettered, time, bound and positions; a time without a zone is in UTC
    """
    generation, partition, seq, start, end, verdict, epoch, attempt, *counts, at, bound, positions = row
    assert isinstance(at, datetime)
    return Receipt(
        BatchKey(generation, partition, seq),
        Range(start, end),
        Verdict(verdict),
        epoch,
        attempt,
        Counts(*counts),
        at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC),
        bound,
        positions,
    )
