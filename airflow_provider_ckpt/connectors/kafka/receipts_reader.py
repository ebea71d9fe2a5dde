"""Read a receipts topic from its beginning to an end offset; later calls continue from there.

Receipts must be read with the isolation level ``read_committed``. It hides everything from the first record of the
oldest open transaction on. Epochs, transactional ids and other records that are written outside any transaction are
read with ``read_uncommitted``, so that open transactions do not delay them.
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
"""Error codes that are ignored: librdkafka requires a consumer group, but no offset is ever committed to it."""


class ReceiptsReader:
    """Reader of one receipts topic, which applies the topic's records to a state; it keeps its connection until closed.

    :param connection: connection to the topic's cluster
    :param topic: the topic's name
    :param state: state to which the records are applied
    :param committed: whether to read only committed records (``read_committed``); required for receipts
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
        """Read all records up to the current end of the topic, or up to the oldest open transaction.

        :param seconds: maximum time in seconds
        :raises KafkaProducerError: if the broker cannot be reached, or does not answer in that time
        :raises SinkError: if another program wrote a record to the topic, which cannot be applied
        """
        self._read(None, seconds)

    def read_to(self, end: int, seconds: float) -> None:
        """Read all records before an offset, and wait for the end of transactions that are open below it.

        :param end: offset after the last record to read, such as the end of the topic including open transactions
        :param seconds: maximum time in seconds, including the wait for open transactions
        :raises KafkaProducerError: if a transaction is still open after that time, or the broker cannot be reached
        :raises SinkError: if another program wrote a record to the topic, which cannot be applied
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
        """Return the error for a timeout: a transaction is still open, or the broker did not answer.

        :param end: offset up to which the topic should have been read; None for the end of the readable records
        :param answered: whether the broker has reported the end of the readable records
        """
        from confluent_kafka import KafkaError

        if answered:
            return KafkaProducerError(
                f"a transaction in receipts topic {self._topic} is still open below offset {end}, so the records after "
                "it cannot be read.",
                recoverable=True,
                hint="The broker aborts it after its producer's transaction.timeout.ms at the latest; run again then.",
            )
        kafka_error = self._client_errors.most_specific() or KafkaError(KafkaError._TIMED_OUT)
        return to_exception(to_error_info(kafka_error, ErrorType.KAFKA_PRODUCER, self._operation, self._connection))
