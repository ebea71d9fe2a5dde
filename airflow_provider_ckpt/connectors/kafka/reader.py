"""Reading side of the Kafka source: read ranges of a topic's partitions into Arrow, in a lane.

Only committed records are read. The reader reads the whole range or raises an error; it never continues at another
offset. After the last record of each range it checks the topic's id again, which costs one round trip per batch:
Kafka's client continues to read when a topic is deleted and created again, so a batch could contain records of both
topics.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.client import (
    ClientErrors,
    answer_timeout,
    consumer_config,
    create_client,
    from_kafka_exception,
    is_not_retriable,
    require_connection,
    to_error_info,
    to_exception,
)
from airflow_provider_ckpt.connectors.kafka.deserialize import to_record_batch
from airflow_provider_ckpt.connectors.kafka.source import damaged_error, expired_error
from airflow_provider_ckpt.connectors.kafka.source_topic import TopicClient
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.core.errors import CkptError, ErrorType, KafkaConsumerError

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Consumer, KafkaError, Message

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.core.wave_messages import BatchTask

MAX_ROWS = 10_000
"""Maximum number of messages in one Arrow batch."""

_WAIT_SECONDS = 0.05
"""Maximum time in seconds to wait for a full Arrow batch; then the messages that have arrived are returned."""

_ID_REQUESTS = 2
"""Maximum number of requests for the topic's id.

A second request is needed after a broker that was paused has resumed: it serves records before it knows the cluster's
controller, so the first request may time out.
"""

_FETCH_SETTINGS = {
    "enable.partition.eof": True,
    "fetch.message.max.bytes": 4 << 20,
    "fetch.queue.backoff.ms": 10,
}


class KafkaReader:
    """Reading side of the Kafka source in one lane.

    See :class:`~airflow_provider_ckpt.connectors.source_protocol.Reader`. If a range begins where the last range ended,
    the consumer keeps its assignment and the messages that it has fetched.

    :param pipeline: ``source.topic`` names the topic
    :param connection: connection to the topic's cluster
    :param shape: not used, since the columns are always :data:`COLUMNS`
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> None:  # noqa: ARG002
        self._pipeline = pipeline.name
        self._topic = pipeline.source.place
        self._connection = require_connection(connection, "source")
        self._client_errors = ClientErrors()
        self._topic_client = TopicClient(
            self._connection, self._topic, f"ckpt-read:{pipeline.name}", ErrorType.KAFKA_CONSUMER
        )
        self._consumer: Consumer | None = None
        self._partition_number = -1
        self._offset = -1
        self._range_end: int | None = None
        self._fetched: list[Message] = []

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a batch with the columns :data:`COLUMNS`; see :meth:`Reader.read`.

        Offsets without a message (transaction markers, compacted keys) are skipped.

        :param task: the batch; its ``detail`` has partition number and topic id (see :meth:`.KafkaSource.locate`)
        :raises SourceError: if the topic was deleted and created again after the range was planned, so that its offsets
            belong to other records, or if the log no longer contains the range
        """
        from confluent_kafka import KafkaException

        known = task.detail["topic"]
        try:
            if self._consumer is None:
                self._topic_client.require_same(known, str(task.key), _ID_REQUESTS)
            self._assign(task.detail["number"], task.range.start)
            while self._offset < task.range.end:
                found = self._next(task)
                if found is not None:
                    yield found
            self._topic_client.require_same(known, str(task.key), _ID_REQUESTS)
            self._range_end = task.range.end
        except KafkaException as error:
            self.close()
            raise self._with_location(
                from_kafka_exception(error, *self._error_context, self._client_errors), task
            ) from None
        except CkptError as error:
            self.close()
            raise self._with_location(error, task) from None

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the dead letter headers that locate a record: its topic, partition and offset.

        :param task: the batch
        :param position: position of the record
        """
        return {
            "source-topic": self._topic,
            "source-partition": task.key.source.rpartition("-")[2],
            "source-offset": str(position),
            "source-position": str(position),
        }

    def close(self) -> None:
        """Close the connection."""
        self._topic_client.close()
        if self._consumer is not None:
            self._consumer.close()
        self._consumer, self._partition_number, self._offset, self._range_end, self._fetched = None, -1, -1, None, []

    def _assign(self, number: int, start: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        if self._consumer is None:
            settings = {**_FETCH_SETTINGS, "error_cb": self._client_errors}
            config = consumer_config(self._connection, f"ckpt-read:{self._pipeline}", self._pipeline, settings)
            self._consumer = create_client(Consumer, config, self._connection)
        # Offsets after the last range may have no message, and the message after them may be fetched already.
        continues = (
            self._range_end is not None
            and number == self._partition_number
            and self._range_end <= start <= self._offset
        )
        self._range_end = None
        if not continues:
            self._consumer.assign([TopicPartition(self._topic, number, start)])
            self._partition_number, self._offset, self._fetched = number, start, []

    def _next(self, task: BatchTask) -> pa.RecordBatch | None:
        """Return the next messages of a batch's range; None if only offsets without a message were passed over.

        Such offsets are those of transaction markers and of messages that were compacted or aborted. In both cases the
        attribute ``_offset`` is set to the first offset that is not read yet; the range ends when it reaches its end.

        :param task: the batch
        :raises CkptError: if the broker sends nothing in time, or reports an error
        """
        end = task.range.end
        messages, self._fetched = self._fetched or self._consume(min(MAX_ROWS, end - self._offset)), []
        offsets = cast("list[int]", [message.offset() for message in messages])
        errors = [message.error() for message in messages]
        failed = next((at for at, error in enumerate(errors) if error), len(messages)) if any(errors) else len(messages)
        taken = bisect_left(offsets, end, hi=failed)
        if taken < failed:
            self._offset, self._fetched = offsets[taken], messages[taken:]
        elif failed < len(messages):
            self._offset, self._fetched = (
                self._end_of_log(errors[failed], offsets[failed], task),
                messages[failed + 1 :],
            )
        else:
            self._offset = offsets[-1] + 1
        return to_record_batch(messages[:taken], offsets[:taken]) if taken else None

    def _consume(self, most: int) -> list[Message]:
        """Return at least one message or end-of-log event; raise an error if none arrives before the timeout.

        :param most: greatest number of messages to return
        :raises CkptError: if the broker sends nothing in time, or reports an error
        """
        assert self._consumer is not None
        wait = answer_timeout(self._connection)
        deadline = time.monotonic() + wait
        while True:
            messages = self._consumer.consume(most, _WAIT_SECONDS)
            if messages:
                self._client_errors.clear()
                return messages
            reason = self._client_errors.most_specific()
            if reason is not None and is_not_retriable(reason):
                raise to_exception(to_error_info(reason, *self._error_context))
            if time.monotonic() > deadline:
                raise self._timeout_error(wait, reason)

    def _end_of_log(self, error: KafkaError | None, offset: int, task: BatchTask) -> int:
        """Return the offset from which to read on if an error only reports the end of the log; raise any other error.

        :param error: the error of a message, which is never None
        :param offset: offset of that message
        :param task: the batch that is read
        :raises CkptError: if the error is not an end-of-log event
        """
        from confluent_kafka import KafkaError

        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            return max(self._offset, offset)
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise expired_error(self._pipeline, self._topic, task, None)
        if error.code() == KafkaError._BAD_MSG:
            raise damaged_error(self._pipeline, self._topic, task, error.str())
        raise to_exception(to_error_info(error, *self._error_context))

    def _timeout_error(self, wait: float, reason: KafkaError | None) -> CkptError:
        if reason is not None:
            return to_exception(to_error_info(reason, *self._error_context))
        return KafkaConsumerError(
            f"reading topic {self._topic}: the broker of partition {self._partition_number} (connection "
            f"{self._connection.id!r}) sent nothing for {wait:g} s, though offsets from {self._offset} on are planned.",
            recoverable=True,
            is_outage=True,
            hint="Check that the broker is up; socket.timeout.ms in the connection's extra limits the waiting time.",
        )

    def _with_location(self, error: CkptError, task: BatchTask) -> CkptError:
        error.pipeline = error.pipeline or self._pipeline
        error.batch = error.batch or str(task.key)
        error.position = self._offset if error.position is None and self._offset >= 0 else error.position
        return error

    @property
    def _error_context(self) -> tuple[ErrorType, str, Connection]:
        return ErrorType.KAFKA_CONSUMER, f"reading topic {self._topic}", self._connection
