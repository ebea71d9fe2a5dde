"""The producer of dead letters to a separate topic: durable, compressed, and to the declared brokers."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors.batch_content import DeadLetter
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka import dead_letter_store
from airflow_provider_ckpt.connectors.kafka.dead_letter_store import KafkaDeadLetterStore
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError, ErrorInfo, ErrorType
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask

TASK = BatchTask(BatchKey(1, "p", 3), Range(0, 10), 2)
SASL = {
    "bootstrap.servers": "broker:9093",
    "security.protocol": "SASL_SSL",
    "ssl.ca.location": "/ca.pem",
    "transactional.id": "mine",
}


class Client:
    """A producer that remembers what it was given; nothing of it is taken unless it is flushed."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.flushes = 0
        self.left = 0

    def produce(self, topic: str, value: bytes, on_delivery: Any, **rest: Any) -> None:
        self.sent.append((topic, value, rest["key"], rest["headers"][-1][0]))

    def flush(self, seconds: float) -> int:
        self.flushes += 1
        return self.left

    def purge(self) -> None:
        self.sent.clear()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> tuple[Client, list[dict[str, Any]]]:
    """The producer that will be opened, and its configurations."""
    made, configs = Client(), []

    def opened(_: object, config: dict[str, Any], __: Connection) -> Client:
        configs.append(config)
        return made

    monkeypatch.setattr(dead_letter_store, "create_client", opened)
    return made, configs


def kafka_box(connection: Connection | None, **queue: Any) -> KafkaDeadLetterStore:
    pipeline = build(
        {
            "name": "orders",
            "source": {"type": "postgres", "connection": "c", "table": "t", "cursor": "id"},
            "sink": {"type": "delta", "path": "/t"},
            "dead_letter_queue": {"sink": "kafka", "connection": "stream", **queue},
        }
    )
    return KafkaDeadLetterStore(pipeline, connection, SinkContext("ledger", "orders", 5))


def dead_letters(count: int) -> list[DeadLetter]:
    return [DeadLetter(at, b"k", b"v", ErrorInfo(ErrorType.SINK, "too long")) for at in range(count)]


def test_the_client_is_durable_compressed_and_outside_of_transactions(
    client: tuple[Client, list[dict[str, Any]]],
) -> None:
    made, (configs) = client
    connection = Connection("stream", "kafka", login="ann", password="secret", extra=SASL)

    kafka_box(connection, brokers="other:9092", compression="zstd", topic="dead").store(TASK, dead_letters(3), 1)

    (config,) = configs
    assert config["bootstrap.servers"] == "other:9092"
    assert (config["acks"], config["enable.idempotence"], config["compression.type"]) == ("all", True, "zstd")
    assert (config["security.protocol"], config["sasl.username"]) == ("SASL_SSL", "ann")
    assert "transactional.id" not in config
    assert made.sent == [("dead", b"v", b"k", "ckpt-dead-letter")] * 2
    assert made.flushes == 1


def test_brokers_need_no_connection(client: tuple[Client, list[dict[str, Any]]]) -> None:
    kafka_box(None, brokers="other:9092").store(TASK, dead_letters(1), 0)

    assert client[1][0]["bootstrap.servers"] == "other:9092"
    with pytest.raises(ConfigError, match="the kafka dead_letter_queue has no connection"):
        kafka_box(None)


def test_many_letters_are_waited_for_in_parts(client: tuple[Client, list[dict[str, Any]]]) -> None:
    kafka_box(None, brokers="b:1").store(TASK, dead_letters(4001), 0)

    assert client[0].flushes == 3


def test_what_was_not_taken_in_time_is_an_error_and_the_next_try_has_a_client_of_its_own(
    client: tuple[Client, list[dict[str, Any]]],
) -> None:
    made, configs = client
    made.left = 1
    kept = kafka_box(None, brokers="b:1")

    for _ in range(2):
        with pytest.raises(Exception, match="writing a dead letter to topic streamforge-dlq at b:1") as caught:
            kept.store(TASK, dead_letters(1), 0)
        assert caught.value.recoverable  # type: ignore[attr-defined]  # of any CkptError

    assert len(configs) == 2
