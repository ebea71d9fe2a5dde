"""Read single records of a topic's partitions, so that the log can be compared with an earlier snapshot of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.client import (
    ClientErrors,
    answer_timeout,
    consumer_config,
    create_client,
    is_not_retriable,
    to_error_info,
    to_exception,
)
from airflow_provider_ckpt.core.errors import ErrorType, KafkaConsumerError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

_POLL_SECONDS = 0.05
_FETCH_SETTINGS = {
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 5,
    "fetch.message.max.bytes": 1 << 16,
    "fetch.queue.backoff.ms": 5,
    "queued.min.messages": 1,
}
_NEAR, _FAR = 2, 64
"""Numbers of offsets that a first and a second search look back for the last record before an offset.

Usually only a transaction marker follows that record, so the first search finds it.
"""


class StartOffset(NamedTuple):
    """Offset from which to read a partition.

    :param offset: the offset
    :param leader_epoch: leader epoch under which the log reached the offset; the client checks that the log still
        reaches it (``OffsetForLeaderEpoch``). None for no check
    """

    offset: int
    leader_epoch: int | None = None


class ProbeResult(NamedTuple):
    """Result of reading at an offset: a record, the end of the log, or an error that the log ends before the offset.

    All fields are None if the record does not match its checksum; the lane that reads the batch reports this error.

    :param record: first record at the offset or after it
    :param end: end of the log, if there is no record at the offset or after it
    :param lost: the client's message, if the log no longer reaches the offset
    """

    record: Message | None = None
    end: int | None = None
    lost: str | None = None


class RecordProbe:
    """Reader of single records of one topic.

    :param connection: connection to the topic's cluster
    :param pipeline: the pipeline's name, for the client id
    :param topic: the topic's name
    :param isolation: the consumer's ``isolation.level``
    """

    def __init__(self, connection: Connection, pipeline: str, topic: str, *, isolation: str = "read_committed") -> None:
        self._connection = connection
        self._pipeline = pipeline
        self._topic = topic
        self._isolation = isolation
        self._client_errors = ClientErrors()
        self._open_consumer: Consumer | None = None

    def first_records(self, starts: Mapping[int, StartOffset]) -> dict[int, ProbeResult]:
        """Return for each partition the first record at an offset or after it, or the reason why there is none.

        :param starts: offset in each partition, by partition number
        :raises KafkaConsumerError: if the broker cannot be reached, or sends nothing in time
        """
        found: dict[int, ProbeResult] = {}

        def take(message: Message, error: KafkaError | None) -> None:
            number = message.partition()
            if number is None or number not in starts or number in found:
                return
            found[number] = ProbeResult(message) if error is None else self._result_of_error(message, error)

        self._read(starts, take, lambda: starts.keys() - found.keys())
        return found

    def last_records(self, ends: Mapping[int, int], starts: Mapping[int, int]) -> dict[int, Message]:
        """Return the last record before an offset of each partition, by partition number.

        A partition is left out if its last record is more than 64 offsets before the given offset.

        :param ends: the offset in each partition, by partition number
        :param starts: first offset in the log of each partition
        :raises KafkaConsumerError: if the broker cannot be reached, or sends nothing in time
        """
        found = self._before(ends, starts, _NEAR)
        missing = {number: end for number, end in ends.items() if number not in found}
        return {**found, **self._before(missing, starts, _FAR)}

    def close(self) -> None:
        """Close the connection."""
        if self._open_consumer is not None:
            self._open_consumer.close()
        self._open_consumer = None

    def _before(self, ends: Mapping[int, int], starts: Mapping[int, int], reach: int) -> dict[int, Message]:
        """Return the last record before an offset of each partition, if it is at most ``reach`` offsets before it.

        For the parameters see :meth:`last_records`.
        """
        probe_starts = {number: StartOffset(max(starts[number], end - reach, 0)) for number, end in ends.items()}
        left = {number for number, start in probe_starts.items() if start.offset < ends[number]}
        found: dict[int, Message] = {}

        def take(message: Message, error: KafkaError | None) -> None:
            number, offset = message.partition(), message.offset() or 0
            if number is None or number not in left:
                return
            if error is not None:
                self._result_of_error(message, error)
            elif offset < ends[number]:
                found[number] = message
            if error is not None or offset >= ends[number] - 1:
                left.discard(number)

        self._read({number: probe_starts[number] for number in left}, take, lambda: left)
        return found

    def _read(
        self,
        starts: Mapping[int, StartOffset],
        take: Callable[[Message, KafkaError | None], None],
        left: Callable[[], Iterable[int]],
    ) -> None:
        """Read messages and pass each to a function, until no partition is left to read.

        :param starts: offset at which to begin in each partition, by partition number
        :param take: function that receives a message and the error that it carries, if any
        :param left: function that returns the numbers of the partitions that are still to be read
        :raises KafkaConsumerError: if the broker cannot be reached, or sends nothing in time
        """
        from confluent_kafka import TopicPartition

        if not starts:
            return
        consumer = self._consumer()
        self._client_errors.clear()
        consumer.assign(
            [
                TopicPartition(self._topic, number, start.offset)
                if start.leader_epoch is None
                else TopicPartition(self._topic, number, start.offset, leader_epoch=start.leader_epoch)
                for number, start in starts.items()
            ]
        )
        wait = answer_timeout(self._connection)
        deadline = time.monotonic() + wait
        while left():
            message = consumer.poll(_POLL_SECONDS)
            if message is not None:
                take(message, message.error())
                continue
            reason = self._client_errors.most_specific()
            if reason is not None and is_not_retriable(reason):
                raise to_exception(to_error_info(reason, *self._error_context))
            if time.monotonic() > deadline:
                raise self._timeout_error(wait, reason, min(left()))
        consumer.unassign()

    def _result_of_error(self, message: Message, error: KafkaError) -> ProbeResult:
        """Return the result for a message that carries an error instead of a record.

        :param message: the message
        :param error: the error
        :raises KafkaConsumerError: if the partition cannot be read
        """
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._PARTITION_EOF:
            return ProbeResult(end=message.offset() or 0)
        if error.code() == KafkaError._BAD_MSG:
            return ProbeResult()
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE):
            return ProbeResult(lost=error.str())
        raise to_exception(to_error_info(error, *self._error_context))

    def _consumer(self) -> Consumer:
        if self._open_consumer is None:
            from confluent_kafka import Consumer

            settings = {**_FETCH_SETTINGS, "isolation.level": self._isolation, "error_cb": self._client_errors}
            config = consumer_config(self._connection, f"ckpt-plan:{self._pipeline}", self._pipeline, settings)
            self._open_consumer = create_client(Consumer, config, self._connection)
        return self._open_consumer

    def _timeout_error(self, wait: float, reason: KafkaError | None, number: int) -> Exception:
        if reason is not None:
            return to_exception(to_error_info(reason, *self._error_context))
        return KafkaConsumerError(
            f"planning topic {self._topic}: the broker of partition {number} (connection {self._connection.id!r}) "
            f"sent nothing for {wait:g} s.",
            recoverable=True,
            is_outage=True,
            hint="Check that the broker is up; socket.timeout.ms in the connection's extra limits the waiting time.",
        )

    @property
    def _error_context(self) -> tuple[ErrorType, str, Connection]:
        return ErrorType.KAFKA_CONSUMER, f"planning topic {self._topic}", self._connection
