"""Decide what a run plans: gaps and new positions of source partitions, and ranges that side partitions read again.

Planning stops at ``consumer.max_in_flight`` records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.source_plan import (
    FindUnreceipted,
    Plan,
    PlannedBatch,
    PlanRequest,
    RangeToPlan,
    SourceFile,
)
from airflow_provider_ckpt.connectors.source_protocol import Source
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.refresh import RefreshExtent, publication_due, unplanned_rows

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.ledger.types import PartitionRecord


_DEAD_LETTERS_PER_BATCH = 10_000
"""Number of dead letters in one batch of a replay if the pipeline does not set ``commit_strategy.commit_interval``."""


class Planner:
    """Planner of the batches of one run.

    A partition of a pinned pipeline is *stuck* if it has a batch that is held, or that the run no longer begins, since
    later batches must not overtake this batch. A stuck partition gets no new batches, and its planned batches do not
    count against ``consumer.max_in_flight``.

    :param pipeline: the pipeline's declaration
    :param source: the pipeline's source, open; it knows only its own partitions, so ranges of side partitions are
        requested under the name of their source partition
    :param records: the ledger's partitions
    :param skipped: batches that the run does not begin any more, such as those whose next round is left to a later
        task, or whose source file is gone
    :param find_unreceipted: function that looks up in the receipts which of the source's records below the end of the
        plan were never read; None if there are no receipts yet
    :ivar budget: number of records that may be planned now: ``consumer.max_in_flight`` minus the records of unresolved
        batches
    """

    def __init__(
        self,
        pipeline: Pipeline,
        source: Source,
        records: Mapping[str, PartitionRecord],
        skipped: Collection[BatchKey],
        find_unreceipted: FindUnreceipted | None = None,
    ) -> None:
        self._source = source
        self._find_unreceipted = find_unreceipted
        self._refreshes = pipeline.refreshes
        self._records = pipeline.commit_strategy.records_per_batch
        self._partitions = records
        blocking = {name: record.partition.blocking.values() for name, record in records.items()}
        self._stuck = {
            name
            for name, batches in blocking.items()
            if pipeline.pinned and any(batch.state is BatchState.HELD or batch.key in skipped for batch in batches)
        }
        self.budget = pipeline.consumer.max_in_flight - sum(
            batch.records or 1 for name, batches in blocking.items() if name not in self._stuck for batch in batches
        )

    def plan(self, files: Sequence[SourceFile]) -> Plan:
        """Return a plan of new batches, with as many records as ``max_in_flight`` allows; side partitions come first.

        :param files: source files that the ledger knows
        """
        records, budget = self._partitions, self.budget
        states = {name: record.state for name, record in records.items()}
        committed = {name: record.partition.committed for name, record in records.items()}
        batches: list[PlannedBatch] = []
        for name, record in records.items():
            if name in self._stuck:
                continue
            key = BatchKey(record.partition.generation, name, 0)
            if key.is_replay:
                replayed = self._plan_replay(record, budget)
                batches += replayed
                budget -= sum(batch.records or 1 for batch in replayed)
                continue
            source = key.source
            requested = [RangeToPlan(source, *bounds) for bounds in self._unplanned_ranges(record)]
            if requested and budget > 0:
                found = self._source.plan(PlanRequest(requested, self._records, budget, files, states, committed))
                batches += [replace(batch, partition=name) for batch in found.batches]
                budget -= sum(batch.records or 1 for batch in found.batches)
        if budget <= 0:
            return Plan(batches, more=True)
        if self._refreshes:
            return self._plan_refreshes(batches, budget)
        requested = []
        for name, record in records.items():
            end = record.partition.planned_end
            if record.partition.limit is not None:
                continue
            if name in self._stuck:
                requested.append(RangeToPlan(name, end, end))  # an empty request, so that the source reports its bound
            else:
                requested += [RangeToPlan(name, gap.start, gap.end) for gap in record.partition.gaps()]
                requested.append(RangeToPlan(name, end))
        request = PlanRequest(
            requested, self._records, budget, files, states, committed, find_unreceipted=self._find_unreceipted
        )
        found = self._source.plan(request)
        return replace(found, batches=[*batches, *found.batches])

    def _plan_refreshes(self, batches: Sequence[PlannedBatch], budget: int) -> Plan:
        """Return a plan for the refreshes in progress: rows that have no batch yet, else the publishing batch.

        :param batches: batches of side partitions, which the plan includes
        :param budget: number of records that may be planned
        """
        found = Plan(batches)
        for name, record in self._partitions.items():
            extent = RefreshExtent.of(record.state)
            if record.partition.limit is not None or extent is None or name in self._stuck:
                continue
            ranges = [RangeToPlan(name, span.start, span.end) for span in unplanned_rows(record.partition, extent)]
            rows = self._source.plan(PlanRequest(ranges, self._records, budget)) if ranges else Plan()
            published = [PlannedBatch(name, extent.publication, 0)] if publication_due(record.partition, extent) else []
            unfinished = not published and record.partition.planned_end < extent.publication.end
            found = Plan([*found.batches, *rows.batches, *published], more=found.more or unfinished)
        return found

    def _plan_replay(self, record: PartitionRecord, budget: int) -> list[PlannedBatch]:
        """Return batches of a replay, whose positions are the numbers of its dead letters.

        :param record: side partition of the replay
        :param budget: largest number of dead letters in these batches together
        """
        size = self._records or _DEAD_LETTERS_PER_BATCH
        batches = []
        for start, end in self._unplanned_ranges(record):
            while start < end and budget > 0:
                stop = min(end, start + size)
                batches.append(PlannedBatch(record.partition.id, Range(start, stop), stop - start))
                budget -= stop - start
                start = stop
        return batches

    @staticmethod
    def _unplanned_ranges(record: PartitionRecord) -> list[tuple[int, int]]:
        """Return the ranges of a side partition that no batch covers yet; an empty list for a source partition.

        :param record: the partition
        :return: start and end of each range
        """
        partition = record.partition
        if partition.limit is None:
            return []
        ranges = [(gap.start, gap.end) for gap in partition.gaps()]
        if partition.planned_end < partition.limit:
            ranges.append((partition.planned_end, partition.limit))
        return ranges
