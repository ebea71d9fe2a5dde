"""The planning half of the kafka source: a topic, whose partitions are ours and whose offsets are our positions.

A plan ends at the last stable offset, below which nothing can appear any more. What the log no longer holds is planned
as batches that say so and cannot be read: nothing passes them but a person's word (``airflow ckpt skip``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.kafka.common import COLUMNS, require
from airflow_provider_ckpt.connectors.kafka.sample import FEW, batch_records
from airflow_provider_ckpt.connectors.kafka.topic import Asking, Bounds, Topic
from airflow_provider_ckpt.connectors.protocols import (
    Connection,
    Plan,
    PlannedBatch,
    PlanRequest,
    Shape,
    SourceFile,
    SourcePartition,
    Start,
    Todo,
)
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave import BatchTask

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline


class KafkaSource:
    """See :class:`~airflow_provider_ckpt.connectors.protocols.Source`."""

    def __init__(self, pipeline: Pipeline, connection: Connection | None) -> None:
        assert pipeline.source.topic is not None
        self._pipeline = pipeline
        self._name = pipeline.source.topic
        self._connection = require(connection, "source")
        self._asking = Asking(self._connection, self._name, f"ckpt-plan:{pipeline.name}", ErrorType.KAFKA_CONSUMER)
        self._id: str | None = None
        self._size = 0

    def check(self) -> None:
        """Fail clearly if the topic cannot be reached, does not exist or may not be read."""
        if not self._topic().readable:
            raise ConfigError(
                f"the user of connection {self._connection.id!r} may not read topic {self._name}.",
                pipeline=self._pipeline.name,
                hint="Grant it Read and Describe on the topic.",
            )

    def partitions(self) -> Sequence[SourcePartition]:
        """The topic's partitions; their identity holds the topic's id, which one created anew does not get."""
        topic = self._topic()
        self._id = topic.id
        return [SourcePartition(topic.partition_id(number), f"{topic.id}/{number}") for number in topic.partitions]

    def start(self, partition: str, start_from: str | int) -> Start:
        """The base: an offset as it stands, the log's first for ``earliest``, the last stable one for ``latest``."""
        if isinstance(start_from, int):
            if start_from < 0:
                raise ConfigError(
                    f"source.start_from: {start_from} is before the first offset, which is 0.",
                    pipeline=self._pipeline.name,
                )
            return Start(start_from)
        number = self._number(partition)
        bounds = self._asking.bounds([number])[number]
        return Start(bounds.start if start_from == "earliest" else bounds.end)

    def shape(self) -> Shape:
        """Messages as they are: :data:`COLUMNS`."""
        return Shape(True, COLUMNS)

    def plan(self, request: PlanRequest) -> Plan:
        """Cut each stretch into ranges of offsets, taking turns, so that no partition waits for another."""
        self._asking.same(self._id)
        held = self._asking.bounds({self._number(todo.partition) for todo in request.todo})
        cuts = [self._cut(todo, held[self._number(todo.partition)], request.records_per_batch) for todo in request.todo]
        batches: list[PlannedBatch] = []
        left, more = request.max_records, False
        while cuts:
            going = []
            for cut in cuts:
                batch = next(cut, None)
                if batch is None:
                    continue
                size = batch.records or 0
                if batches and size > left:
                    more = True
                    continue
                batches.append(batch)
                left -= size
                going.append(cut)
            cuts = going
        return Plan(batches, bounds=self._ends(held), more=more)

    def late(self) -> bool:
        """Nothing appears below the last stable offset."""
        return False

    def count(self, partition: str, ranges: Sequence[Range]) -> Sequence[int] | None:  # noqa: ARG002
        """None: what was read can only become less, by compaction and retention."""
        return None

    def locate(self, tasks: Sequence[BatchTask], files: Sequence[SourceFile]) -> Sequence[BatchTask]:  # noqa: ARG002
        """The same tasks, each with its partition's number and the topic's id; what expired since is an error.

        A task that only lets its range go (``void``) reads nothing and so needs nothing.
        """
        topic = self._asking.same(self._id)
        reading = [task for task in tasks if task.instruction is not Instruction.VOID]
        held = self._asking.bounds({self._number(task.key.source) for task in reading})
        for task in reading:
            start = held[self._number(task.key.source)].start
            if task.range.start < start:
                raise expired(self._pipeline.name, topic.name, task, start)
        return [
            replace(task, detail={**task.detail, "topic": topic.id, "number": self._number(task.key.source)})
            for task in tasks
        ]

    def close(self) -> None:
        """Let go of the connection."""
        self._asking.close()

    def _topic(self) -> Topic:
        return self._asking.describe()

    def _number(self, partition: str) -> int:
        name, _, number = partition.rpartition("-")
        if name != self._name or not number.isdecimal():
            raise ConfigError(
                f"topic {self._name} has no partition {partition}.",
                pipeline=self._pipeline.name,
                hint="A pipeline keeps its topic; declare one of a new name for another topic.",
            )
        return int(number)

    def _ends(self, held: Mapping[int, Bounds]) -> dict[str, int]:
        return {f"{self._name}-{number}": bounds.end for number, bounds in held.items()}

    def _cut(self, todo: Todo, held: Bounds, records: int | None) -> Iterator[PlannedBatch]:
        """Ranges of a stretch; the part that the log no longer holds is one of its own."""
        start, end = todo.start, held.end if todo.end is None else todo.end
        if start > held.end:
            raise SourceError(
                f"{todo.partition} ends at offset {held.end}, before {start}, where reading is to go on: the topic "
                "lost records (unclean leader election, a restored cluster), or source.start_from is beyond its end.",
                pipeline=self._pipeline.name,
                position=start,
                hint="Find out what was lost; then rewind to the topic's end, or declare a pipeline of a new name.",
            )
        if start < held.start and start < end:
            gone = Range(start, min(held.start, end))
            yield PlannedBatch(todo.partition, gone, 0, expired=True)
            start = gone.end
        if start >= end:
            return
        number = self._number(todo.partition)
        size = records or self._good_size(number, start, end)
        while start < end:
            span = Range(start, min(start + size, end))
            yield PlannedBatch(todo.partition, span, span.end - span.start)
            start = span.end

    def _good_size(self, number: int, start: int, end: int) -> int:
        """How many messages make a good batch, by the size of some of the first partition that is planned."""
        if end - start <= FEW:
            return FEW
        self._size = self._size or batch_records(self._connection, self._pipeline.name, self._name, number, start)
        return self._size


def expired(pipeline: str | None, topic: str, task: BatchTask, start: int | None) -> SourceError:
    """Why a batch cannot be read any more, and how its loss is owned up to.

    :param start: the first offset that the log still holds, where that is known
    """
    gone = "some of it" if start is None else f"what is before {start}"
    if start is not None and start >= task.range.end:
        gone = "all of it"
    rest = "" if gone == "all of it" else ", then `airflow ckpt replay range` reads again what is left of the range"
    return SourceError(
        f"topic {topic} no longer holds offsets {task.range}: retention, or a deletion of records, has removed {gone} "
        "before it was read.",
        pipeline=pipeline,
        batch=str(task.key),
        position=task.range.start,
        hint=f"The loss stays yours to accept: `airflow ckpt skip` lets the batch go and records it{rest}. "
        "Then give the topic more retention, or run more often.",
    )
