"""Read a receipts topic from its beginning to an end offset, and continue from there.

Receipts are read with isolation ``read_committed``, up to the last stable offset, where the oldest open transaction
begins. Epochs, ids and other records written outside any transaction are read with ``read_uncommitted``, which also
shows records of open and aborted transactions.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.client import (
    ClientErrors,
    client_config,
    create_client,
    error_codes,
    to_error_info,
    to_exception,
)
from airflow_provider_ckpt.connectors.kafka.receipts import ReceiptsTopicState
from airflow_provider_ckpt.core.errors import ErrorType, KafkaProducerError, SinkError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_POLL_SECONDS = 0.5
_IGNORED_ERRORS = "GROUP_AUTHORIZATION_FAILED"
"""Errors to ignore: offsets are never committed, so the consumer group, which librdkafka requires, is not used."""


class ReceiptsReader:
    """Reader of one receipts topic.

    :param connection: of the topic's cluster
    :param topic: the topic's name
    :param state: state to which the records are applied
    :param committed: whether to read only committed records, which is necessary for receipts (see the module)
    """

    def __init__(self, connection: Connection, topic: str, state: ReceiptsTopicState, *, committed: bool) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.state = state
        self._connection = connection
        self._topic = topic
        self._client_errors = ClientErrors()
        settings = {
            "group.id": "ckpt",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 5,
            "check.crcs": True,
            "error_cb": self._client_errors,
        }
        self._consumer: Consumer = create_client(
            Consumer, client_config(connection, "ckpt-receipts", settings), connection
        )
        self._consumer.assign(
            [TopicPartition(topic, 0, 0)]
        )  # offset 0: a request for the beginning would take half a second
        self._offset = 0

    def read_to_stable_end(self, seconds: float) -> None:
        """Read all records up to the current end.

        :param seconds: maximum time
        :raises KafkaProducerError: if the broker cannot be reached
        """
        self._read(None, seconds)

    def read_to(self, end: int, seconds: float) -> None:
        """Read all records before an offset, and wait for the end of transactions that are open below it.

        :param end: offset after the last record to read, such as the end of the topic including open transactions
        :param seconds: maximum time, including the wait for open transactions
        :raises KafkaProducerError: if a transaction stays open for longer, or the broker cannot be reached
        """
        if self._offset < end:
            self._read(end, seconds)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _read(self, end: int | None, seconds: float) -> None:
        from confluent_kafka import KafkaError

        deadline = time.monotonic() + seconds
        answered = False
        while True:
            message = self._consumer.poll(_POLL_SECONDS)
            if message is None:
                if time.monotonic() > deadline:
                    raise self._timeout_error(end, answered=answered)
                continue
            error = message.error()
            if error is None:
                self._apply(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                answered = True
                self._offset = message.offset() or 0
                if end is None:
                    return
            elif error.code() not in error_codes(_IGNORED_ERRORS):
                raise to_exception(to_error_info(error, ErrorType.KAFKA_PRODUCER, self._operation, self._connection))
            if end is not None and self._offset >= end:
                return

    def _apply(self, message: Message) -> None:
        try:
            self.state.apply(message.key(), message.value())
        except (ValueError, TypeError, IndexError) as error:
            raise SinkError(
                f"receipts topic {self._topic} holds a record at offset {message.offset()} that is not a receipt.",
                hint="Another program writes to it. Stop that program, then write a record with the same key and "
                "no value, which removes this one. Do not delete or empty the topic: without its receipts, delivered "
                "batches would be sent again.",
            ) from error
        self._offset = (message.offset() or 0) + 1

    @property
    def _operation(self) -> str:
        return f"reading receipts topic {self._topic}"

    def _timeout_error(self, end: int | None, *, answered: bool) -> Exception:
        """Return the error for a timeout: a transaction is open, or the broker does not answer."""
        from confluent_kafka import KafkaError

        if answered:
            return KafkaProducerError(
                f"a transaction stays open in receipts topic {self._topic} below offset {end}, so the records after "
                "it cannot be read.",
                recoverable=True,
                hint="It ends after its producer's transaction.timeout.ms at the latest; run again then.",
            )
        kafka_error = self._client_errors.most_specific() or KafkaError(KafkaError._TIMED_OUT)
        return to_exception(to_error_info(kafka_error, ErrorType.KAFKA_PRODUCER, self._operation, self._connection))
