"""Choose the batch size of a topic: the number of messages in a batch, from the mean size of a few sample messages."""

from __future__ import annotations

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.client import consumer_config, create_client

TARGET_BYTES = 16 << 20
"""Intended size of a batch in bytes if the pipeline does not set a batch size."""

MAX_RECORDS = 50_000
"""Maximum number of messages in a batch, if the pipeline does not set a batch size."""

ONE_BATCH_RECORDS = 100
"""Maximum number of messages in a range that is planned as one batch without sampling their size."""

_SAMPLE_MESSAGES = 200
_WAIT_SECONDS = 1.0


def choose_batch_records(connection: Connection, pipeline: str, topic: str, number: int, start: int) -> int:
    """Return the number of messages that make a batch of about :data:`TARGET_BYTES`, by the mean size of a sample.

    :param connection: connection to the topic's cluster
    :param pipeline: the pipeline's name, for the client id
    :param topic: the topic's name
    :param number: number of the partition to sample
    :param start: the first offset to sample
    :return: between 1 and :data:`MAX_RECORDS`; :data:`MAX_RECORDS` if no message arrives in time
    """
    width = _mean_message_bytes(connection, pipeline, topic, number, start)
    return max(1, min(MAX_RECORDS, round(TARGET_BYTES / width))) if width else MAX_RECORDS


def _mean_message_bytes(connection: Connection, pipeline: str, topic: str, number: int, start: int) -> float:
    """Return the mean size in bytes, key and value, of up to 201 messages from an offset on.

    The result is 0 if no message arrives in time, or if all keys and values are empty.

    For the parameters see :func:`choose_batch_records`.
    """
    from confluent_kafka import Consumer, TopicPartition

    little = {"fetch.message.max.bytes": 1 << 18, "queued.min.messages": 1}
    config = consumer_config(connection, f"ckpt-plan:{pipeline}", pipeline, little)
    consumer = create_client(Consumer, config, connection)
    try:
        consumer.assign([TopicPartition(topic, number, start)])
        first = consumer.consume(1, _WAIT_SECONDS)
        found = [*first, *consumer.consume(_SAMPLE_MESSAGES, 0.02)] if first else []
        sizes = [len(message.value() or b"") + len(message.key() or b"") for message in found if not message.error()]
    finally:
        consumer.close()
    return sum(sizes) / len(sizes) if sizes else 0.0
