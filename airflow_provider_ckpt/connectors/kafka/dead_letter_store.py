"""Store dead letters in a Kafka topic for a sink that is not Kafka, or on another cluster than the sink's.

Pipelines may share the topic. The producer is idempotent and waits for all in-sync replicas, so a dead letter is
durable before the receipt of its batch is claimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.batch_content import DeadLetter, StoredDeadLetter
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.client import (
    ClientErrors,
    answer_timeout,
    client_config,
    create_client,
    require_connection,
    require_topic,
    to_error_info,
    to_exception,
)
from airflow_provider_ckpt.connectors.kafka.connector import KafkaSinkSection, KafkaSourceSection
from airflow_provider_ckpt.connectors.kafka.dead_letter_reader import DeadLetterReader
from airflow_provider_ckpt.connectors.kafka.dead_letters import dead_letter_headers
from airflow_provider_ckpt.connectors.kafka.producers import transaction_timeout
from airflow_provider_ckpt.connectors.kafka.receipts import refuse_receipts_topics
from airflow_provider_ckpt.connectors.kafka.sender import Sender
from airflow_provider_ckpt.connectors.kafka.sink_topics import SinkTopicsClient
from airflow_provider_ckpt.connectors.outputs import Output, WrittenTarget
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

    from airflow_provider_ckpt.config.pipeline import Pipeline

_MAX_UNACKNOWLEDGED = 2000
"""Maximum number of dead letters to send before waiting for their acknowledgement."""

_PRODUCER_SETTINGS = {
    "partitioner": "murmur2_random",  # as in Java's client: a key gets the same partition as from other producers
    "acks": "all",
    "enable.idempotence": True,
    "message.max.bytes": 1_000_000_000,  # the broker checks: it knows the limit and the compressed size
    "queue.buffering.max.messages": 0,
    "linger.ms": 5,
}


class KafkaDeadLetterStore:
    """Dead letter store in a Kafka topic.

    See :class:`~airflow_provider_ckpt.connectors.dead_letter_store.DeadLetterStore`.

    :param pipeline: ``dead_letter_queue`` names the topic, and may name its brokers
    :param connection: connection to the cluster; None if ``dead_letter_queue.brokers`` is enough
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._pipeline = pipeline
        self._queue = pipeline.dead_letter_queue
        self._connection = require_connection(_with_brokers(connection, self._queue.brokers), "dead_letter_queue")
        self._context = context
        self._client_errors = ClientErrors()
        self._producer: Producer | None = None

    def check(self) -> None:
        """Create the topic if it is missing; raise ConfigError if it is compacted or already used for another purpose.

        The topic must not be the source's, the sink's, or a receipts topic. See :meth:`DeadLetterStore.check`.
        """
        for part, where in ((self._pipeline.source, "source"), (self._pipeline.sink, "sink")):
            if isinstance(part, KafkaSourceSection | KafkaSinkSection) and part.topic == self._queue.topic:
                raise ConfigError(
                    f"{where}.topic and dead_letter_queue.topic are the same, {self._queue.topic}.",
                    pipeline=self._pipeline.name,
                    hint="Name a topic of its own for each.",
                )
        named = {
            "dead_letter_queue.topic": require_topic(self._queue.topic, "dead_letter_queue.topic", self._pipeline.name)
        }
        refuse_receipts_topics(named, None, self._pipeline.name)
        self._topics().ensure_dead_letter_topic(self._queue.topic, None, self._queue.compression)

    def outputs(self) -> Sequence[Output]:
        """Return the dead letter topic as the only output, none if it does not exist; see :class:`NamesOutputs`."""
        found = self._topics().find(self._queue.topic)
        return [WrittenTarget("dead_letter_queue.topic", found.name, "kafka", found.id)] if found else []

    def store(self, task: BatchTask, dead_letters: Sequence[DeadLetter], first: int) -> None:
        """Send dead letters and wait for their acknowledgement; see :meth:`DeadLetterStore.store`.

        :param task: the batch and its attempt
        :param dead_letters: all dead letters of the attempt so far
        :param first: number of the first dead letter that is not stored yet
        """
        for start in range(first, len(dead_letters), _MAX_UNACKNOWLEDGED):
            self._send(task, dead_letters, range(start, min(start + _MAX_UNACKNOWLEDGED, len(dead_letters))))

    def _send(self, task: BatchTask, dead_letters: Sequence[DeadLetter], numbers: Iterable[int]) -> None:
        """Send some dead letters of an attempt, and wait until all in-sync replicas have acknowledged them.

        :param task: the batch and its attempt
        :param dead_letters: all dead letters of the attempt so far
        :param numbers: indexes of the dead letters to send
        :raises CkptError: if a dead letter is refused or not acknowledged in time
        """
        failures: list[KafkaError] = []

        def watch(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(error)

        producer = self._get_producer()
        sender = Sender(producer, self._queue.topic, {})
        for number in numbers:
            dead_letter = dead_letters[number]
            headers = dead_letter_headers(dead_letter, task, self._context, number)
            sender.send_one(dead_letter.value, watch, {"key": dead_letter.key, "headers": headers})
        left = producer.flush(self._seconds + 1)
        if failures or left:
            raise self._close_and_describe(failures)

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of the given attempts, after reading the topic once.

        See :meth:`DeadLetterStore.dead_letters`.
        """
        wanted = list(sources)
        topics = self._topics()
        topic = topics.find(self._queue.topic)
        if topic is None:
            return
        reader = DeadLetterReader(self._connection, self._queue.topic, self._context)
        seconds = self._seconds + transaction_timeout(self._connection)
        found = reader.read(dict.fromkeys(wanted), topics.ends(self._queue.topic, topic.partitions), seconds)
        for source in wanted:
            yield from found.get(source, ())

    def close(self) -> None:
        """Close the connection and discard queued messages."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    @property
    def _seconds(self) -> float:
        return answer_timeout(self._connection)

    def _topics(self) -> SinkTopicsClient:
        return SinkTopicsClient(self._connection, self._pipeline.name)

    def _get_producer(self) -> Producer:
        if self._producer is None:
            from confluent_kafka import Producer

            own = {
                **_PRODUCER_SETTINGS,
                "compression.type": self._queue.compression,
                "message.timeout.ms": int(self._seconds * 1000),
                "error_cb": self._client_errors,
            }
            config: dict[str, Any] = client_config(self._connection, "ckpt-letters", own)
            config = {name: value for name, value in config.items() if not name.startswith("transaction")}
            self._producer = create_client(Producer, config, self._connection)
        return self._producer

    def _close_and_describe(self, failures: Sequence[KafkaError]) -> Exception:
        """Close the producer after a failed send, and return the exception to raise.

        The exception describes the first refusal or, if no answer arrived in time, the most specific error of the
        client.

        :param failures: errors of the dead letters that the broker did not accept
        """
        from confluent_kafka import KafkaError

        self.close()
        kafka_error = failures[0] if failures else KafkaError(KafkaError._TIMED_OUT)
        unanswered = kafka_error.code() in (KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT)
        specific = (self._client_errors.most_specific() if unanswered else None) or kafka_error
        self._client_errors.clear()
        operation = f"writing a dead letter to topic {self._queue.topic}"
        return to_exception(to_error_info(specific, ErrorType.KAFKA_PRODUCER, operation, self._connection))


def _with_brokers(connection: Connection | None, brokers: str | None) -> Connection | None:
    """Return the connection, with ``dead_letter_queue.brokers`` as its bootstrap servers if the pipeline names any.

    :param connection: the Airflow connection; if it is None and there are brokers, a new connection is returned
    :param brokers: value of ``dead_letter_queue.brokers``; None or empty to return ``connection`` unchanged
    """
    if not brokers:
        return connection
    base = connection or Connection("dead_letter_queue.brokers", "kafka")
    return replace(base, extra={**base.extra, "bootstrap.servers": brokers})
