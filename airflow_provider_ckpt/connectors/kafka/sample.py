"""How many messages make a good batch: read a few, and see how big they are."""

from __future__ import annotations

from airflow_provider_ckpt.connectors.kafka.common import client_config, opened
from airflow_provider_ckpt.connectors.protocols import Connection

TARGET = 16 << 20
"""Bytes that a batch should have when the pipeline leaves the size to the source."""

MOST = 50_000
"""Messages in such a batch at most."""

_FEW = 1_000
_SAMPLE = 200
_WAIT = 1.0


def batch_records(connection: Connection, topic: str, number: int, start: int, end: int) -> int:
    """A good number of messages for batches of a partition.

    :param start: the first offset that will be planned
    :param end: where the plan ends; so few that they fit into one batch anyway are not looked at
    """
    if end - start <= _FEW:
        return _FEW
    width = _width(connection, topic, number, start)
    return max(1, min(MOST, round(TARGET / width))) if width else MOST


def _width(connection: Connection, topic: str, number: int, start: int) -> float:
    """Mean bytes of some messages from ``start`` on, 0 if none came in time."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {
        "group.id": connection.extra.get("group.id", "ckpt"),
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.message.max.bytes": 1 << 18,
        "queued.min.messages": 1,
    }
    consumer = opened(Consumer, client_config(connection, "ckpt-sample", settings), connection)
    try:
        consumer.assign([TopicPartition(topic, number, start)])
        first = consumer.consume(1, _WAIT)
        found = [*first, *consumer.consume(_SAMPLE, 0.02)] if first else []
        sizes = [len(message.value() or b"") + len(message.key() or b"") for message in found if not message.error()]
    finally:
        consumer.close()
    return sum(sizes) / len(sizes) if sizes else 0.0
