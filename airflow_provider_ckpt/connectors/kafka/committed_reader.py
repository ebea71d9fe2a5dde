"""Read all committed messages of a topic up to given end offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.client import (
    ClientErrors,
    client_config,
    create_client,
    to_error_info,
    to_exception,
)
from airflow_provider_ckpt.core.errors import ErrorType, KafkaProducerError

if TYPE_CHECKING:
    from confluent_kafka import Message

_POLL_SECONDS = 0.5
_MAX_MESSAGES = 1000


def read_committed(
    connection: Connection, topic: str, ends: Mapping[int, int], seconds: float, *, operation: str
) -> Iterator[list[Message]]:
    """Read a topic from its beginning, and yield its messages in lists of up to 1000.

    Messages of open and aborted transactions are left out.

    :param connection: connection to the topic's cluster
    :param topic: the topic's name
    :param ends: offset up to which each partition is read, by partition number; messages that follow may be yielded too
    :param seconds: maximum time in seconds without a new message; an open transaction can cause such a wait
    :param operation: the operation for which the topic is read, for error messages
    :raises KafkaProducerError: if no message arrives for that time, or the broker cannot be reached
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    client_errors = ClientErrors()
    settings = {
        "group.id": "ckpt",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "check.crcs": True,
        "error_cb": client_errors,
    }
    left = dict(ends)
    with closing(
        create_client(Consumer, client_config(connection, "ckpt-committed", settings), connection)
    ) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        deadline = time.monotonic() + seconds
        while left:
            consumed = consumer.consume(_MAX_MESSAGES, _POLL_SECONDS)
            if not consumed and time.monotonic() > deadline:
                raise _timeout_error(connection, topic, client_errors, operation)
            messages = []
            for message in consumed:
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise to_exception(to_error_info(error, ErrorType.KAFKA_PRODUCER, operation, connection))
                elif (message.offset() or 0) >= left.get(message.partition() or 0, 0):
                    left.pop(message.partition() or 0, None)
            if messages:
                deadline = time.monotonic() + seconds
                yield messages


def _timeout_error(connection: Connection, topic: str, client_errors: ClientErrors, operation: str) -> Exception:
    """Return the error for a timeout: the broker did not answer, or a transaction is still open.

    :param connection: connection to the topic's cluster
    :param topic: the topic's name
    :param client_errors: errors that the client reported meanwhile; if one is specific, the broker did not answer
    :param operation: the operation for which the topic is read, for the message
    """
    most_specific = client_errors.most_specific()
    if most_specific is not None:
        return to_exception(to_error_info(most_specific, ErrorType.KAFKA_PRODUCER, operation, connection))
    return KafkaProducerError(
        f"{operation}: a transaction in topic {topic} is still open, so the records after it cannot be read.",
        recoverable=True,
        hint="The broker aborts it after its producer's transaction.timeout.ms at the latest; try again then.",
    )
