"""What a run plans: the gaps, what is new in each source partition, and the stretches of side partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.protocols import Plan, PlannedBatch, PlanRequest, Source, SourceFile, Todo
from airflow_provider_ckpt.core.batch import BatchKey

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.ledger.records import PartitionRecord


class Planner:
    """Asks the source what to do next.

    :param source: open; it knows only its own partitions, so a side partition's stretch is asked for under their name
    """

    def __init__(self, pipeline: Pipeline, source: Source) -> None:
        self._source = source
        self._records = pipeline.commit_strategy.records_per_batch

    def plan(self, records: Mapping[str, PartitionRecord], files: Sequence[SourceFile], budget: int) -> Plan:
        """Batches for as many records as the budget allows: side partitions first, since they are bounded.

        :param budget: records that may be planned
        """
        states = {name: record.state for name, record in records.items()}
        batches: list[PlannedBatch] = []
        for name, record in records.items():
            source = BatchKey(record.partition.generation, name, 0).source
            todos = [Todo(source, *stretch) for stretch in self._side(record)]
            if todos and budget > 0:
                found = self._source.plan(PlanRequest(todos, self._records, budget, files, states))
                batches += [replace(batch, partition=name) for batch in found.batches]
                budget -= sum(batch.records or 1 for batch in found.batches)
        if budget <= 0:
            return Plan(batches, more=True)
        todos = []
        for name, record in records.items():
            if record.partition.limit is None:
                todos += [Todo(name, gap.start, gap.end) for gap in record.partition.gaps()]
                todos.append(Todo(name, record.partition.planned_end))
        found = self._source.plan(PlanRequest(todos, self._records, budget, files, states))
        return replace(found, batches=[*batches, *found.batches])

    @staticmethod
    def _side(record: PartitionRecord) -> list[tuple[int, int]]:
        """The stretches of a side partition that no batch owns yet; none of a source partition's."""
        partition = record.partition
        if partition.limit is None:
            return []
        stretches = [(gap.start, gap.end) for gap in partition.gaps()]
        if partition.planned_end < partition.limit:
            stretches.append((partition.planned_end, partition.limit))
        return stretches
