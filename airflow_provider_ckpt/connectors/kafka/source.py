"""The planning half of the kafka source: a topic, whose partitions are ours and whose offsets are our positions.

A plan ends at the last stable offset, below which nothing can appear any more. What the log no longer holds is planned
as batches that say so and cannot be read: nothing passes them but a person's word (``airflow ckpt skip``). A log that
lost what was planned already is an error, see ``continuity.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.kafka.batch_size import FEW, batch_records
from airflow_provider_ckpt.connectors.kafka.client import COLUMNS, require, require_topic
from airflow_provider_ckpt.connectors.kafka.log_continuity import LogContinuity, LogMark
from airflow_provider_ckpt.connectors.kafka.record_probe import Place, Probe
from airflow_provider_ckpt.connectors.kafka.source_topic import Asking, Bounds, Topic
from airflow_provider_ckpt.connectors.outputs import Output, WrittenTarget
from airflow_provider_ckpt.connectors.protocols import (
    REACHES,
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
from airflow_provider_ckpt.connectors.record_positions import Digest
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave import BatchTask

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

log = logging.getLogger(__name__)


class KafkaSource:
    """See :class:`~airflow_provider_ckpt.connectors.protocols.Source`."""

    def __init__(self, pipeline: Pipeline, connection: Connection | None) -> None:
        assert pipeline.source.topic is not None
        self._pipeline = pipeline
        self._name = require_topic(pipeline.source.topic, "source.topic", pipeline.name)
        self._connection = require(connection, "source")
        self._asking = Asking(self._connection, self._name, f"ckpt-plan:{pipeline.name}", ErrorType.KAFKA_CONSUMER)
        self._probe = Probe(self._connection, pipeline.name, self._name)
        self._continuity = LogContinuity(self._probe, self._asking, pipeline.name, self._name)
        self._id: str | None = None
        self._size = 0
        self._told: dict[int, int] = {}

    def check(self) -> None:
        """Fail clearly if the topic cannot be reached, does not exist or may not be read."""
        if not self._topic().readable:
            raise ConfigError(
                f"the user of connection {self._connection.id!r} may not read topic {self._name}.",
                pipeline=self._pipeline.name,
                hint="Grant it Read and Describe on the topic.",
            )

    def reads(self, output: Output) -> bool:
        """See :class:`ReadsOutputs`; topics are compared by id, through whatever connections they are named."""
        if not isinstance(output, WrittenTarget) or output.connector != "kafka":
            return False
        return output.identity == self._topic().id

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
        """Cut each stretch into ranges of offsets, taking turns, so that no partition waits for another.

        :raises SourceError: if a log lost what was planned before
        """
        self._asking.same(self._id)
        held = self._asking.bounds({self._number(todo.partition) for todo in request.todo})
        marks = self._marks(held, request.states)
        if not request.look:
            self._continuity.check(marks, held)
            self._tell_waiting(held)
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
        states = self._states(request, held, marks, batches)
        return Plan(batches, bounds=self._ends(held), states=states, more=more)

    def late(self) -> bool:
        """Nothing appears below the last stable offset."""
        return False

    def digests(self, partition: str, ranges: Sequence[Range]) -> Sequence[Digest] | None:  # noqa: ARG002
        """None: what was read can only become less, by compaction and retention."""
        return None

    def positions(self, partition: str, span: Range) -> Sequence[int]:  # noqa: ARG002
        """None: see :meth:`digests`."""
        return ()

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
        """Let go of the connections."""
        self._asking.close()
        self._probe.close()

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

    def _marks(self, held: Mapping[int, Bounds], states: Mapping[str, Mapping[str, Any]]) -> dict[int, LogMark]:
        """Return the marks of the partitions' logs that the ledger keeps, by partition number."""
        found = {number: LogMark.from_json(states.get(f"{self._name}-{number}", {})) for number in held}
        return {number: mark for number, mark in found.items() if mark is not None}

    def _states(
        self,
        request: PlanRequest,
        held: Mapping[int, Bounds],
        marks: Mapping[int, LogMark],
        batches: Sequence[PlannedBatch],
    ) -> dict[str, dict[str, Any]]:
        """Return the states for the ledger to keep: the end of each log, and its mark at the end of this plan."""
        ends = {self._number(todo.partition): todo.start for todo in request.todo if todo.asks_bound}
        for batch in batches:
            number = self._number(batch.partition)
            if number in ends:
                ends[number] = max(ends[number], batch.range.end)
        if not request.look:
            marks = self._continuity.marks(ends, held, marks)
        return {
            f"{self._name}-{number}": {
                REACHES: held[number].log_end,
                **(marks[number].to_json() if number in marks else {}),
            }
            for number in ends
        }

    def _tell_waiting(self, held: Mapping[int, Bounds]) -> None:
        """Warn of messages that cannot be read since a transaction is open before them; once a partition and place."""
        waiting = {
            number: bounds
            for number, bounds in held.items()
            if bounds.log_end > bounds.end and self._told.get(number) != bounds.end
        }
        if not waiting:
            return
        with closing(Probe(self._connection, self._pipeline.name, self._name, isolation="read_uncommitted")) as probe:
            found = probe.first({number: Place(bounds.end) for number, bounds in waiting.items()})
        for number, bounds in waiting.items():
            first = found[number].record
            since = ""
            if first is not None and 0 < first.timestamp()[1] < 253_402_300_800_000:
                at = datetime.fromtimestamp(first.timestamp()[1] / 1000, UTC)
                since = f", whose first message is of {at.isoformat(timespec='seconds')}"
            log.warning(
                "%s: %d messages of partition %d of topic %s, from offset %d on, wait for a transaction that is still "
                "open%s. They are read when it ends. If its producer is gone for good, see "
                "`kafka-transactions.sh find-hanging --topic %s --partition %d` and its command `abort`.",
                self._pipeline.name,
                bounds.log_end - bounds.end,
                number,
                self._name,
                bounds.end,
                since,
                self._name,
                number,
            )
            self._told[number] = bounds.end

    def _cut(self, todo: Todo, held: Bounds, records: int | None) -> Iterator[PlannedBatch]:
        """Ranges of a stretch; the part that the log no longer holds is one of its own."""
        start, end = todo.start, held.end if todo.end is None else todo.end
        if start > held.end:
            raise SourceError(
                f"{todo.partition} ends at offset {held.end}, before {start}, where reading is to go on: the topic "
                "lost records (unclean leader election, a restored cluster), or source.start_from is beyond its end.",
                pipeline=self._pipeline.name,
                position=start,
                hint=f"Find out what was lost; then `airflow ckpt rewind {self._pipeline.name} --partition "
                f"{todo.partition} --to-position {held.end} --reason …`, or correct source.start_from.",
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


def damaged(pipeline: str, topic: str, task: BatchTask, said: str) -> SourceError:
    """Return the error for a batch that is not delivered because records do not match their checksum.

    :param pipeline: its name
    :param topic: its name
    :param task: the batch
    :param said: the client's message, with the offset
    """
    return SourceError(
        f"topic {topic} holds damaged records in offsets {task.range} of {task.key.source}: {said}.",
        pipeline=pipeline,
        batch=str(task.key),
        position=task.range.start,
        hint="Let the broker read them from another replica (elect another leader, or let this one copy the partition "
        "anew), then run again. If none is whole, `airflow ckpt skip` lets the batch go and records it, and `airflow "
        "ckpt replay range` reads what is left of the range.",
    )
