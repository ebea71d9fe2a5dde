"""Receipts that another ledger may have written to the sink for the same pipeline, with other ranges of batches."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Receipt, Verdict
from tests.formal import questions as q
from tests.formal.worlds import Bounds


def foreign(bounds: Bounds) -> list[frozenset[Receipt]]:
    """Every set of receipts that batches of the configuration's sizes could have got, in one partition."""
    found: dict[frozenset[Receipt], None] = {}
    for ranges in _cuts(0, bounds):
        receipts = [
            q.receipt_of(BatchKey(1, "p", seq), span, Verdict.DELIVERED, epoch=1, attempt=1)
            for seq, span in enumerate(ranges)
        ]
        for count in range(1, len(receipts) + 1):
            found |= dict.fromkeys(frozenset(chosen) for chosen in combinations(receipts, count))
    return list(found)


def _cuts(start: int, bounds: Bounds) -> Iterator[list[Range]]:
    yield []
    for size in bounds.sizes:
        if start + size <= bounds.positions:
            for rest in _cuts(start + size, bounds):
                yield [Range(start, start + size), *rest]
