"""Reads a receipts topic from its beginning to an end, and on from there.

Committed reading shows receipts, and ends where the oldest open transaction begins: the last stable offset. Reading all
shows records whose transaction is open or was aborted too, and is for epochs and ids, which know no transaction.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.kafka.client import Noticed, client_config, codes, error_info, opened, raised
from airflow_provider_ckpt.connectors.kafka.receipts import Books
from airflow_provider_ckpt.connectors.protocols import Connection
from airflow_provider_ckpt.core.errors import ErrorType, KafkaProducerError, SinkError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_POLL = 0.5
_IRRELEVANT = "GROUP_AUTHORIZATION_FAILED"
"""Offsets are never committed, so the group that a consumer must name plays no part."""


class Reading:
    """Reads one receipts topic into :class:`Books`.

    :param committed: whether to show receipts (see the module)
    """

    def __init__(self, connection: Connection, topic: str, books: Books, *, committed: bool) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.books = books
        self._connection = connection
        self._topic = topic
        self._noticed = Noticed()
        settings = {
            "group.id": "ckpt",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 5,
            "check.crcs": True,
            "error_cb": self._noticed,
        }
        self._consumer: Consumer = opened(Consumer, client_config(connection, "ckpt-receipts", settings), connection)
        self._consumer.assign([TopicPartition(topic, 0, 0)])  # a number: to ask for the beginning takes half a second
        self._at = 0

    def to_stable_end(self, seconds: float) -> None:
        """Read all that can be read now.

        :param seconds: how long the broker may take for a step
        :raises KafkaProducerError: if the broker cannot be reached
        """
        self._read(None, seconds)

    def to(self, end: int, seconds: float) -> None:
        """Read on until every record before an offset was seen, waiting for transactions that are open below it.

        :param end: an end of the topic as :meth:`WrittenTopics.end` gave it
        :param seconds: how long they may stay open
        :raises KafkaProducerError: if one stays open for longer, or the broker cannot be reached
        """
        if self._at < end:
            self._read(end, seconds)

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    def _read(self, end: int | None, seconds: float) -> None:
        from confluent_kafka import KafkaError

        deadline = time.monotonic() + seconds
        answered = False
        while True:
            message = self._consumer.poll(_POLL)
            if message is None:
                if time.monotonic() > deadline:
                    raise self._silence(end, answered=answered)
                continue
            error = message.error()
            if error is None:
                self._take(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                answered = True
                self._at = message.offset() or 0
                if end is None:
                    return
            elif error.code() not in codes(_IRRELEVANT):
                raise raised(error_info(error, ErrorType.KAFKA_PRODUCER, self._doing, self._connection))
            if end is not None and self._at >= end:
                return

    def _take(self, message: Message) -> None:
        try:
            self.books.take(message.key(), message.value())
        except (ValueError, TypeError, IndexError) as error:
            raise SinkError(
                f"receipts topic {self._topic} holds a record at offset {message.offset()} that is no receipt.",
                hint="Somebody else writes to it. Stop that, and take the record back by one of the same key without a "
                "value. Do not delete or empty the topic: without its receipts what was delivered would be sent again.",
            ) from error
        self._at = (message.offset() or 0) + 1

    @property
    def _doing(self) -> str:
        return f"reading receipts topic {self._topic}"

    def _silence(self, end: int | None, *, answered: bool) -> Exception:
        """Why no further record came: somebody's transaction is open, or nobody answers."""
        from confluent_kafka import KafkaError

        if answered:
            return KafkaProducerError(
                f"a transaction stays open in receipts topic {self._topic} below offset {end}; what lies behind it "
                "cannot be known.",
                recoverable=True,
                hint="It ends with its producer's transaction.timeout.ms at the latest; run again then.",
            )
        plain = self._noticed.telling() or KafkaError(KafkaError._TIMED_OUT)
        return raised(error_info(plain, ErrorType.KAFKA_PRODUCER, self._doing, self._connection))
