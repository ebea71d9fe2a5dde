"""Parts of planning that sources with a cursor share: loop over the ranges to split, and choose the size of batches.

Each connector finds the positions at which batches end in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from airflow_provider_ckpt.connectors.source_plan import Plan, PlannedBatch, PlanRequest
from airflow_provider_ckpt.core.ranges import Range

AUTO_RECORDS = 50_000
"""Greatest number of records in a batch if the pipeline's ``commit_interval`` sets no number."""

AUTO_BYTES = 16_000_000
"""Approximate maximum size of a batch in bytes, if the pipeline does not set the number of records in a batch."""

_ONE_BATCH_RECORDS = 20_000
"""Number of records from which a range is worth the work of several lanes.

A range with more records becomes at least :data:`_MIN_BATCHES` batches; the size of a batch alone divides others.
"""

_MIN_BATCHES = 4

MAX_COUNTED = _MIN_BATCHES * AUTO_RECORDS
"""Number at which a caller may stop counting: :func:`batch_records` has the same result for any higher number."""

MAX_BATCHES = 2_000
"""Greatest number of batches in one plan of a connector that needs queries to find the end of each batch."""


@dataclass(frozen=True, slots=True)
class Split:
    """The batches into which a range was split.

    :param batches: the batches, in order
    :param more: whether rows of the range remain beyond the last batch
    """

    batches: Sequence[PlannedBatch]
    more: bool

    @classmethod
    def without_rows(cls, partition: str, span: Range) -> Self:
        """Return a result with one batch that covers a range without rows, so that the checkpoint can move over it.

        :param partition: id of the source partition
        :param span: the range
        """
        return cls([PlannedBatch(partition, span, 0)], False)

    @property
    def records(self) -> int:
        """Expected number of records in the batches."""
        return sum(batch.records or 0 for batch in self.batches)


def plan_ranges(request: PlanRequest, plan: Plan, split: Callable[[Range, int], Split]) -> Plan:
    """Return a plan with batches for the requested ranges, up to the number of records that the request allows.

    A range without an end extends to the closed bound of its partition. A gap whose rows are gone becomes a batch
    without records, since the checkpoint must pass it.

    :param request: the ranges, and the maximum of records
    :param plan: plan that has the closed bound of each partition, and no batches yet
    :param split: function that splits a range into batches; its second argument is the greatest number of records in
        all of them, but it returns at least one batch if there are rows
    """
    batches: list[PlannedBatch] = []
    left, more = request.max_records, plan.more
    for todo in request.ranges:
        end = plan.bounds.get(todo.partition) if todo.end is None else todo.end
        if end is None or end <= todo.start:
            continue
        if left <= 0:
            more = True
            break
        span = Range(todo.start, end)
        found = split(span, left)
        if not found.batches and todo.end is not None:
            found = Split.without_rows(todo.partition, span)
        batches.extend(found.batches)
        left -= found.records
        more = more or found.more
    return replace(plan, batches=batches, more=more)


def batch_records(counted: int, most: int = AUTO_RECORDS) -> int:
    """Return the number of records that each batch of a range should have.

    It is at most ``most``, and less if the range would otherwise yield too few batches for several lanes.

    :param counted: number of records in the range, or :data:`MAX_COUNTED` if the range has at least that number
    :param most: greatest number of records in a batch
    """
    return most if counted <= _ONE_BATCH_RECORDS else min(most, -(-counted // _MIN_BATCHES))
