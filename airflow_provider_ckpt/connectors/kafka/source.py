"""Planning side of the Kafka source: split a topic's offsets up to the last stable offset into batches.

A source partition is a partition of the topic, and a position is an offset. No further record can appear below the last
stable offset. Offsets that the log no longer contains are planned as expired batches, which cannot be read and block
the checkpoint until a user accepts the loss with ``airflow ckpt skip``. A log that lost records after they were planned
is an error; see ``log_continuity.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.batch_size import ONE_BATCH_RECORDS, choose_batch_records
from airflow_provider_ckpt.connectors.kafka.client import COLUMNS, require_connection, require_topic
from airflow_provider_ckpt.connectors.kafka.log_continuity import LogContinuity, LogSnapshot
from airflow_provider_ckpt.connectors.kafka.record_probe import RecordProbe, StartOffset
from airflow_provider_ckpt.connectors.kafka.source_topic import LogOffsets, Topic, TopicClient
from airflow_provider_ckpt.connectors.outputs import Output, WrittenTarget
from airflow_provider_ckpt.connectors.record_positions import PositionDigest
from airflow_provider_ckpt.connectors.source_plan import (
    SOURCE_END,
    Plan,
    PlannedBatch,
    PlanRequest,
    RangeToPlan,
    SourceFile,
    SourcePartition,
    Start,
)
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

log = logging.getLogger(__name__)


class KafkaSource:
    """Planning side of the Kafka source.

    See :class:`~airflow_provider_ckpt.connectors.source_protocol.Source`.

    :param pipeline: ``source.topic`` names the topic
    :param connection: the Airflow connection of the Kafka cluster
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None) -> None:
        self._pipeline = pipeline
        self._name = require_topic(pipeline.source.place, "source.topic", pipeline.name)
        self._connection = require_connection(connection, "source")
        self._topic_client = TopicClient(
            self._connection, self._name, f"ckpt-plan:{pipeline.name}", ErrorType.KAFKA_CONSUMER
        )
        self._probe = RecordProbe(self._connection, pipeline.name, self._name)
        self._continuity = LogContinuity(self._probe, self._topic_client, pipeline.name, self._name)
        self._id: str | None = None
        self._size = 0
        self._warned_at: dict[int, int] = {}

    def check(self) -> None:
        """Raise an error if the topic does not exist, or cannot be reached or read; see :meth:`Source.check`."""
        if not self._topic().readable:
            raise ConfigError(
                f"the user of connection {self._connection.id!r} may not read topic {self._name}.",
                pipeline=self._pipeline.name,
                hint="Grant it Read and Describe on the topic.",
            )

    def reads(self, output: Output) -> bool:
        """Return whether the source's topic, by its topic id, is an output of the sink; see :class:`ReadsOutputs`.

        :param output: a table, topic or directory to which the sink writes
        """
        if not isinstance(output, WrittenTarget) or output.system != "kafka":
            return False
        return output.identity == self._topic().id

    def partitions(self) -> Sequence[SourcePartition]:
        """Return the topic's partitions; their identities contain the topic id, which reveals a recreated topic."""
        topic = self._topic()
        self._id = topic.id
        return [SourcePartition(topic.partition_id(number), f"{topic.id}/{number}") for number in topic.partitions]

    def start(self, partition: str, start_from: str | int) -> Start:
        """Return the offset at which a partition is first read; see :meth:`Source.start`.

        For ``earliest`` it is the first offset in the log, and for ``latest`` the last stable offset.

        :param partition: id of the partition
        :param start_from: ``earliest``, ``latest`` or the offset itself
        :raises ConfigError: if the offset is negative
        """
        if isinstance(start_from, int):
            if start_from < 0:
                raise ConfigError(
                    f"source.start_from: {start_from} is before the first offset, which is 0.",
                    pipeline=self._pipeline.name,
                )
            return Start(start_from)
        number = self._number(partition)
        bounds = self._topic_client.bounds([number])[number]
        return Start(bounds.start if start_from == "earliest" else bounds.end)

    def shape(self) -> RecordShape:
        """Return the columns of a message, :data:`COLUMNS`."""
        return RecordShape(True, COLUMNS)

    def plan(self, request: PlanRequest) -> Plan:
        """Split the requested ranges into batches; see :meth:`Source.plan`.

        Batches are taken from each partition in turn, so that all partitions progress if the number of records is
        limited.

        :raises SourceError: if a log lost records that were planned before
        """
        self._topic_client.require_same(self._id)
        offsets = self._topic_client.bounds({self._number(todo.partition) for todo in request.ranges})
        snapshots = self._snapshots(offsets, request.states)
        if not request.lag_only:
            self._continuity.check_snapshots(snapshots, offsets)
            self._warn_of_open_transactions(offsets)
        cuts = [
            self._split(todo, offsets[self._number(todo.partition)], request.records_per_batch)
            for todo in request.ranges
        ]
        batches: list[PlannedBatch] = []
        left, more = request.max_records, False
        while cuts:
            pending = []
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
                pending.append(cut)
            cuts = pending
        states = self._states(request, offsets, snapshots, batches)
        return Plan(batches, bounds=self._ends(offsets), states=states, more=more)

    def may_have_late_records(self) -> bool:
        """Return False: no record can appear below the last stable offset."""
        return False

    def digests(self, partition: str, ranges: Sequence[Range]) -> Sequence[PositionDigest] | None:  # noqa: ARG002
        """Return None, since no late record can appear in a range that was read.

        Compaction and retention can only remove records from the range.
        """
        return None

    def positions(self, partition: str, span: Range) -> Sequence[int]:  # noqa: ARG002
        """Return no positions, since :meth:`digests` returns no digests to compare them with."""
        return ()

    def locate(self, tasks: Sequence[BatchTask], files: Sequence[SourceFile]) -> Sequence[BatchTask]:  # noqa: ARG002
        """Return the same tasks with partition number and topic id in ``detail``; see :meth:`Source.locate`.

        :raises SourceError: if the topic was deleted and created again, or the log no longer contains all of a task's
            range; a task with the instruction ``void`` reads nothing and is not checked
        """
        topic = self._topic_client.require_same(self._id)
        reading = [task for task in tasks if task.instruction is not Instruction.VOID]
        offsets = self._topic_client.bounds({self._number(task.key.source) for task in reading})
        for task in reading:
            start = offsets[self._number(task.key.source)].start
            if task.range.start < start:
                raise expired_error(self._pipeline.name, topic.name, task, start)
        return [
            replace(task, detail={**task.detail, "topic": topic.id, "number": self._number(task.key.source)})
            for task in tasks
        ]

    def close(self) -> None:
        """Close the connections."""
        self._topic_client.close()
        self._probe.close()

    def _topic(self) -> Topic:
        return self._topic_client.describe()

    def _number(self, partition: str) -> int:
        name, _, number = partition.rpartition("-")
        if name != self._name or not number.isdecimal():
            raise ConfigError(
                f"topic {self._name} has no partition {partition}.",
                pipeline=self._pipeline.name,
                hint="The topic of a pipeline cannot change; declare a pipeline with a new name for another topic.",
            )
        return int(number)

    def _ends(self, offsets: Mapping[int, LogOffsets]) -> dict[str, int]:
        return {f"{self._name}-{number}": bounds.end for number, bounds in offsets.items()}

    def _snapshots(
        self, offsets: Mapping[int, LogOffsets], states: Mapping[str, Mapping[str, Any]]
    ) -> dict[int, LogSnapshot]:
        """Return the log snapshots that the last planning stored in the ledger, by number of the partition.

        A partition without a stored snapshot is left out.

        :param offsets: current offsets of the partitions
        :param states: values that the last planning stored in the ledger, by partition id
        """
        found = {number: LogSnapshot.from_json(states.get(f"{self._name}-{number}", {})) for number in offsets}
        return {number: snapshot for number, snapshot in found.items() if snapshot is not None}

    def _states(
        self,
        request: PlanRequest,
        offsets: Mapping[int, LogOffsets],
        snapshots: Mapping[int, LogSnapshot],
        batches: Sequence[PlannedBatch],
    ) -> dict[str, dict[str, Any]]:
        """Return the values that the ledger is to store for each partition: the end and the snapshot of its log.

        The result contains the partitions whose bound was requested, by partition id.

        :param request: the request that the plan answers
        :param offsets: current offsets of the partitions
        :param snapshots: snapshots that the last planning stored, by partition number
        :param batches: the planned batches
        """
        ends = {self._number(todo.partition): todo.start for todo in request.ranges if todo.needs_bound}
        for batch in batches:
            number = self._number(batch.partition)
            if number in ends:
                ends[number] = max(ends[number], batch.range.end)
        if not request.lag_only:
            snapshots = self._continuity.new_snapshots(ends, offsets, snapshots)
        return {
            f"{self._name}-{number}": {
                SOURCE_END: offsets[number].log_end,
                **(snapshots[number].to_json() if number in snapshots else {}),
            }
            for number in ends
        }

    def _warn_of_open_transactions(self, offsets: Mapping[int, LogOffsets]) -> None:
        """Log a warning about messages after an open transaction, which cannot be read yet.

        The warning appears once for each partition and last stable offset.

        :param offsets: current offsets of the partitions
        """
        waiting = {
            number: bounds
            for number, bounds in offsets.items()
            if bounds.log_end > bounds.end and self._warned_at.get(number) != bounds.end
        }
        if not waiting:
            return
        with closing(
            RecordProbe(self._connection, self._pipeline.name, self._name, isolation="read_uncommitted")
        ) as probe:
            found = probe.first_records({number: StartOffset(bounds.end) for number, bounds in waiting.items()})
        for number, bounds in waiting.items():
            first = found[number].record
            since = ""
            if first is not None and 0 < first.timestamp()[1] < 253_402_300_800_000:
                at = datetime.fromtimestamp(first.timestamp()[1] / 1000, UTC)
                since = f", whose first message is of {at.isoformat(timespec='seconds')}"
            log.warning(
                "%s: %d messages of partition %d of topic %s, from offset %d on, wait for a transaction that is still "
                "open%s. They are read when it ends. If its producer will not come back, see "
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
            self._warned_at[number] = bounds.end

    def _split(self, todo: RangeToPlan, offsets: LogOffsets, records: int | None) -> Iterator[PlannedBatch]:
        """Yield the batches of a requested range; offsets that the log no longer contains are one expired batch.

        :param todo: the requested range
        :param offsets: current offsets of the partition
        :param records: number of messages in a batch; None to choose it
        :raises SourceError: if the range starts beyond the end of the log
        """
        start, end = todo.start, offsets.end if todo.end is None else todo.end
        if start > offsets.end:
            raise SourceError(
                f"{todo.partition} ends at offset {offsets.end}, before {start}, where reading has to continue: the "
                "topic lost records (unclean leader election, a restored cluster), or source.start_from is beyond its "
                "end.",
                pipeline=self._pipeline.name,
                position=start,
                hint=f"Find out what was lost; then `airflow ckpt rewind {self._pipeline.name} --partition "
                f"{todo.partition} --to-position {offsets.end} --reason …`, or correct source.start_from.",
            )
        if start < offsets.start and start < end:
            expired = Range(start, min(offsets.start, end))
            yield PlannedBatch(todo.partition, expired, 0, expired=True)
            start = expired.end
        if start >= end:
            return
        number = self._number(todo.partition)
        size = records or self._choose_batch_records(number, start, end)
        while start < end:
            span = Range(start, min(start + size, end))
            yield PlannedBatch(todo.partition, span, span.end - span.start)
            start = span.end

    def _choose_batch_records(self, number: int, start: int, end: int) -> int:
        """Return the number of messages in a batch; a range of up to :data:`ONE_BATCH_RECORDS` offsets is one batch.

        For longer ranges, the number is computed once, from the size of messages sampled in the first partition that
        has such a range, and is then used for all partitions.

        :param number: number of the partition
        :param start: first offset to plan
        :param end: offset after the last one to plan
        """
        if end - start <= ONE_BATCH_RECORDS:
            return ONE_BATCH_RECORDS
        self._size = self._size or choose_batch_records(
            self._connection, self._pipeline.name, self._name, number, start
        )
        return self._size


def expired_error(pipeline: str | None, topic: str, task: BatchTask, start: int | None) -> SourceError:
    """Return the error for a batch whose offsets the log no longer contains.

    :param pipeline: the pipeline's name
    :param topic: the topic's name
    :param task: the batch
    :param start: first offset in the log; None if unknown
    """
    expired = "some of it" if start is None else f"the offsets before {start}"
    if start is not None and start >= task.range.end:
        expired = "all of it"
    rest = "" if expired == "all of it" else ", then `airflow ckpt replay range` reads the remaining part of the range"
    return SourceError(
        f"topic {topic} no longer holds offsets {task.range}: retention, or a deletion of records, has removed "
        f"{expired} before the batch was read.",
        pipeline=pipeline,
        batch=str(task.key),
        position=task.range.start,
        hint=f"Accept the loss with `airflow ckpt skip`, which gives up the batch and records that{rest}. "
        "Then increase the topic's retention, or run more often.",
    )


def damaged_error(pipeline: str, topic: str, task: BatchTask, message: str) -> SourceError:
    """Return the error for a batch that cannot be read because records do not match their checksum.

    :param pipeline: the pipeline's name
    :param topic: the topic's name
    :param task: the batch
    :param message: the client's error message, which names the offset
    """
    return SourceError(
        f"topic {topic} holds damaged records in offsets {task.range} of {task.key.source}: {message}.",
        pipeline=pipeline,
        batch=str(task.key),
        position=task.range.start,
        hint="Elect an intact replica as leader, or let this broker copy the partition again from one; then run again. "
        "If no replica is intact, `airflow ckpt skip` gives up the batch and records that, and "
        "`airflow ckpt replay range` reads the remaining part of the range.",
    )
