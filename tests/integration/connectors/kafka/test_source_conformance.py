"""The kafka source passes the conformance suite."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.kafka.reader import KafkaReader
from airflow_provider_ckpt.connectors.kafka.source import KafkaSource
from airflow_provider_ckpt.connectors.source_protocol import Reader, RecordShape, Source
from airflow_provider_ckpt.testing.source_conformance import SourceConformance
from airflow_provider_ckpt.testing.source_harness import SourceHarness
from tests.integration.connectors.kafka.kafka_support import connection_to, numbered, pipeline, put
from tests.services.kafka import KafkaBroker


class KafkaTopic(SourceHarness):
    """A topic of one partition."""

    def __init__(self, broker: KafkaBroker) -> None:
        self._broker = broker
        self._topic = broker.new_topic()
        self._pipeline = pipeline(self._topic)
        self._held = 0

    def add(self, count: int) -> None:
        put(self._broker, self._topic, numbered(count, self._held))
        self._held += count

    def open(self) -> Source:
        return KafkaSource(self._pipeline, connection_to(self._broker))

    def reader(self, shape: RecordShape) -> Reader:
        return KafkaReader(self._pipeline, connection_to(self._broker), shape)

    def numbers(self, records: pa.RecordBatch) -> list[int]:
        return [int(json.loads(value)["id"]) for value in records.column("value").to_pylist()]


class TestKafka(SourceConformance):
    @pytest.fixture
    def harness(self, kafka_broker: KafkaBroker) -> SourceHarness:
        return KafkaTopic(kafka_broker)
