"""How many messages make a good batch: read a few, and see how big they are."""

from __future__ import annotations

from airflow_provider_ckpt.connectors.kafka.client import consumer_config, opened
from airflow_provider_ckpt.connectors.protocols import Connection

TARGET = 16 << 20
"""Bytes that a batch should have when the pipeline leaves the size to the source."""

MOST = 50_000
"""Messages in such a batch at most."""

FEW = 100
"""So few messages fit into one batch, whatever their size."""

_SAMPLE = 200
_WAIT = 1.0


def batch_records(connection: Connection, pipeline: str, topic: str, number: int, start: int) -> int:
    """A good number of messages for a batch, judged by the first of a partition.

    :param start: the first offset that will be planned
    """
    width = _width(connection, pipeline, topic, number, start)
    return max(1, min(MOST, round(TARGET / width))) if width else MOST


def _width(connection: Connection, pipeline: str, topic: str, number: int, start: int) -> float:
    """Mean bytes of some messages from ``start`` on, 0 if none came in time."""
    from confluent_kafka import Consumer, TopicPartition

    little = {"fetch.message.max.bytes": 1 << 18, "queued.min.messages": 1}
    config = consumer_config(connection, f"ckpt-plan:{pipeline}", pipeline, little)
    consumer = opened(Consumer, config, connection)
    try:
        consumer.assign([TopicPartition(topic, number, start)])
        first = consumer.consume(1, _WAIT)
        found = [*first, *consumer.consume(_SAMPLE, 0.02)] if first else []
        sizes = [len(message.value() or b"") + len(message.key() or b"") for message in found if not message.error()]
    finally:
        consumer.close()
    return sum(sizes) / len(sizes) if sizes else 0.0
