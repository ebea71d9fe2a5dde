"""Harness of a source for its conformance suite, and a small ledger that plans and reads the harness's records.

The harness adds records to a real source; everything else goes through the source's protocol.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.source_plan import Plan, PlannedBatch, PlanRequest, RangeToPlan, SourceFile
from airflow_provider_ckpt.connectors.source_protocol import POSITION, Reader, RecordShape, Source
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    import pyarrow as pa

EVERYTHING = 10**9
"""Maximum number of records of a plan that is practically unlimited."""


class SourceHarness(ABC):
    """Harness of a source with one partition, whose records are numbered from 0 in the order of their positions."""

    @abstractmethod
    def add(self, count: int) -> None:
        """Add records to the source; as soon as this method returns, planning must find all of them.

        :param count: number of records, whose numbers continue those that were added before
        """

    @abstractmethod
    def open(self) -> Source:
        """Open the source."""

    @abstractmethod
    def reader(self, shape: RecordShape) -> Reader:
        """Open a reader of the source.

        :param shape: the columns that :meth:`.Source.shape` returned
        """

    @abstractmethod
    def numbers(self, records: pa.RecordBatch) -> list[int]:
        """Return the number of each record: 0 for the record that was added first, and so on.

        :param records: records as a reader yielded them
        """


class ShrinkingSourceHarness(SourceHarness):
    """Harness of a source from which records may be removed, such as a table."""

    @abstractmethod
    def remove(self, first: int, end: int) -> None:
        """Remove records from the source.

        :param first: number of the first record
        :param end: number after the last record
        """


@dataclass
class Ledger:
    """State of a source's only partition, as a ledger stores it: discovered files, planned batches and bounds.

    :param harness: harness of the source
    :param source: the source, open
    :param files: files that were discovered so far
    :param states: states that the last planning returned
    :param planned: batches that were planned so far
    :param bounds: closed bounds that the last planning returned
    """

    harness: SourceHarness
    source: Source
    files: list[SourceFile] = field(default_factory=list)
    states: dict[str, Any] = field(default_factory=dict)
    planned: list[PlannedBatch] = field(default_factory=list)
    bounds: dict[str, int] = field(default_factory=dict)

    @property
    def partition(self) -> str:
        """Id of the source's only partition."""
        (partition,) = self.source.partitions()
        return partition.id

    @property
    def end(self) -> int:
        """Position at which planning continues."""
        return self.planned[-1].range.end if self.planned else self.source.start(self.partition, "earliest").position

    def ask(self, start: int, end: int | None, number: int | None, most: int) -> Plan:
        """Return a plan of a range. Its files, states and bounds are stored for the next plan, its batches are not.

        :param start: first position to plan
        :param end: end of the range; None for the end of the source
        :param number: number of records in a batch; None if the source chooses
        :param most: approximate maximum number of records to plan
        """
        request = PlanRequest([RangeToPlan(self.partition, start, end)], number, most, self.files, self.states)
        plan = self.source.plan(request)
        self.files += plan.files
        self.states |= plan.states
        self.bounds |= plan.bounds
        return plan

    def plan(self, number: int | None = None, most: int = EVERYTHING) -> Plan:
        """Return a plan of all new records. Its batches, files, states and bounds are stored for the next plan.

        :param number: number of records in a batch; None if the source chooses
        :param most: approximate maximum number of records to plan
        """
        plan = self.ask(self.end, None, number, most)
        self.planned += plan.batches
        return plan

    def tasks(self, batches: Sequence[PlannedBatch]) -> Sequence[BatchTask]:
        """Return planned batches as tasks, in the form in which a lane receives them.

        :param batches: the batches
        """
        keys = [BatchKey(1, batch.partition, seq) for seq, batch in enumerate(batches)]
        tasks = [BatchTask(key, batch.range, 1) for key, batch in zip(keys, batches, strict=True)]
        return self.source.locate(tasks, self.files)

    def read(self, batches: Sequence[PlannedBatch]) -> list[list[tuple[int, int]]]:
        """Read batches, and return position and number of every record, by batch.

        :param batches: the batches
        """
        with closing(self.harness.reader(self.source.shape())) as reader:
            return [
                [
                    pair
                    for records in reader.read(task)
                    for pair in zip(records.column(POSITION).to_pylist(), self.harness.numbers(records), strict=True)
                ]
                for task in self.tasks(batches)
            ]

    def numbers(self, batches: Sequence[PlannedBatch]) -> list[int]:
        """Read batches, and return the number of every record, in the order in which they were read.

        :param batches: the batches
        """
        return [number for batch in self.read(batches) for _, number in batch]
