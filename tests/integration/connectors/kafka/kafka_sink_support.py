"""Support for the tests of the kafka sink: targets, a harness, and functions that read topics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.dead_letters import DEAD_LETTER_HEADER
from airflow_provider_ckpt.connectors.kafka.receipts import ReceiptsTopicState, receipts_topic
from airflow_provider_ckpt.connectors.kafka.receipts_reader import ReceiptsReader
from airflow_provider_ckpt.connectors.kafka.sink import KafkaSink
from airflow_provider_ckpt.connectors.kafka.sink_topics import SinkTopicsClient
from airflow_provider_ckpt.connectors.kafka.writer import KafkaWriter
from airflow_provider_ckpt.connectors.sink_protocol import Sink, SinkContext, Writer
from airflow_provider_ckpt.testing.sink_harness import SinkHarness, StoredDeadLetter
from tests.integration.connectors.kafka.kafka_support import connection_to
from tests.services.kafka import KafkaBroker


@dataclass(frozen=True)
class Stored:
    """A record as a consumer that reads committed ones gets it."""

    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int
    partition: int

    @property
    def header(self) -> dict[str, str]:
        """The headers as text."""
        return {name: (value or b"").decode("utf-8", "replace") for name, value in self.headers}


def stored(broker: KafkaBroker, topic: str, isolation: str = "read_committed") -> list[Stored]:
    """All records of a topic, partition by partition.

    A commit returns before its marks are in every partition, so this reads to an end that no open one hides.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    settings = {"enable.partition.eof": True, "enable.auto.commit": False, "fetch.wait.max.ms": 5, "log_level": 2}
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "test", "isolation.level": isolation, **settings}
    )
    partitions = [TopicPartition(topic, number) for number in consumer.list_topics(topic, 10).topics[topic].partitions]
    admin = broker.admin()
    asked = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))
    left = {at.partition: said.result().offset for at, said in asked.items()}
    found: list[Stored] = []
    with closing(consumer):
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        while left:
            message = consumer.poll(20)
            assert message is not None, f"a transaction stays open in {topic} below {left}"
            number, error = message.partition() or 0, message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                if (message.offset() or 0) >= left.get(number, 0):
                    left.pop(number, None)
                continue
            found.append(
                Stored(
                    message.value(),
                    message.key(),
                    list(message.headers() or []),  # type: ignore[arg-type]
                    message.timestamp()[1],
                    number,
                )
            )
    return sorted(found, key=lambda record: record.partition)


class TopicHarness(SinkHarness):
    """A topic, and for each context a pipeline that writes to it.

    The pipelines' names end with the topic's, so that each test has receipts topics of its own.

    :param config: of the topic
    :param settings: further parts of the declaration
    """

    def __init__(
        self, broker: KafkaBroker, partitions: int = 2, config: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        self.broker = broker
        self.topic = broker.new_topic(partitions, config)
        self.name = self.topic
        self.letters_topic = f"letters-{self.topic}"
        self.sink_settings: dict[str, Any] = {}
        self.settings = settings
        self.extra: dict[str, Any] = {"transaction.timeout.ms": 10_000}

    @property
    def connection(self) -> Connection:
        """Return the connection of the pipelines."""
        return connection_to(self.broker, **self.extra)

    def pipeline(self, context: SinkContext) -> Pipeline:
        """The declaration."""
        queue = {"topic": self.letters_topic, **self.settings.get("dead_letter_queue", {})}
        rest = {key: value for key, value in self.settings.items() if key != "dead_letter_queue"}
        return Pipeline.model_validate(
            {
                "name": context.pipeline,
                "source": {"type": "postgres", "connection": "shop", "table": "orders", "cursor": "id"},
                "sink": {"type": "kafka", "connection": "stream", "topic": self.topic, **self.sink_settings},
                "dead_letter_queue": queue,
                **rest,
            }
        )

    def own(self, context: SinkContext) -> SinkContext:
        """The same context, under a name that no other test's pipeline has."""
        return SinkContext(context.ledger, f"{context.pipeline}-{self.name}", context.epoch)

    def sink(self, context: SinkContext) -> Sink:
        """See :class:`SinkHarness`."""
        own = self.own(context)
        return KafkaSink(self.pipeline(own), self.connection, own)

    def writer(self, context: SinkContext) -> Writer:
        """See :class:`SinkHarness`."""
        own = self.own(context)
        return KafkaWriter(self.pipeline(own), self.connection, own)

    def target(self) -> list[int]:
        """See :class:`SinkHarness`."""
        return sorted(int((record.value or b"")[6:-1]) for record in stored(self.broker, self.topic))

    def dead_letters(self, context: SinkContext) -> list[StoredDeadLetter]:
        """See :class:`SinkHarness`."""
        own = self.own(context)
        found = [
            (json.loads(record.header[DEAD_LETTER_HEADER]), record)
            for record in stored(self.broker, self.letters_topic)
        ]
        return sorted(
            (
                StoredDeadLetter(said["batch"][2], said["position"], record.key, record.value, said["error_type"])
                for said, record in found
                if said["pipeline"] == own.pipeline
            ),
            key=lambda dead_letter: dead_letter.position,
        )

    def receipts_topic(self, pipeline: str = "orders") -> str:
        """Return the name of a pipeline's receipts topic."""
        return receipts_topic(f"{pipeline}-{self.name}")

    def books(self, ledger: str, pipeline: str = "orders") -> ReceiptsTopicState:
        """Return the content of its receipts topic, with that of open and aborted transactions."""
        topics = SinkTopicsClient(self.connection, pipeline)
        topic = self.receipts_topic(pipeline)
        with closing(ReceiptsReader(self.connection, topic, ReceiptsTopicState(ledger), committed=False)) as reading:
            reading.read_to(topics.end(topic), 10)
            return reading.state
