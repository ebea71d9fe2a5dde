"""Producers of the sink: one that writes with a transactional id, and one that notes epochs and ids outside of any."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sized
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.kafka.client import (
    Noticed,
    client_config,
    codes,
    error_info,
    failure,
    opened,
    raised,
    timeout,
)
from airflow_provider_ckpt.connectors.protocols import Connection
from airflow_provider_ckpt.core.errors import ErrorType

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

TRANSACTION_MS = 60_000
"""How long a transaction may take by default; a dead lane's open one hides later records from consumers for as long."""

_INIT_SECONDS = 30.0
_GLANCE = 0.2
_TUNED = {
    "partitioner": "murmur2_random",  # Java's, so that a key goes where other producers send it
    "linger.ms": 20,
    "queue.buffering.max.messages": 0,
    "transaction.timeout.ms": TRANSACTION_MS,
}
"""Where the connection's extra says nothing else."""

_SUPERSEDED = """
    _FENCED _STATE INVALID_PRODUCER_EPOCH PRODUCER_FENCED INVALID_PRODUCER_ID_MAPPING UNKNOWN_PRODUCER_ID
    INVALID_TXN_STATE TRANSACTION_COORDINATOR_FENCED
"""


def transaction_seconds(connection: Connection) -> float:
    """How long a transaction may take."""
    return float(connection.extra.get("transaction.timeout.ms", TRANSACTION_MS)) / 1000


def superseded(error: KafkaError) -> bool:
    """Whether the error may mean that somebody else has initialised the producer's transactional id since."""
    return error.code() in codes(_SUPERSEDED)


class Transactions:
    """One producer with a transactional id, initialised: whoever used the id before can commit no more.

    What its methods raise is Kafka's own, unless they say otherwise; after an error the producer is of no further use.

    :param topic: one that it is going to write to
    :param batch_bytes: no batch of several records is larger
    :raises KafkaProducerError: if it cannot be initialised
    """

    def __init__(self, connection: Connection, identity: str, topic: str, batch_bytes: int = 1_000_000) -> None:
        from confluent_kafka import KafkaException, Producer

        self._noticed = Noticed()
        settings = {
            "transactional.id": identity,
            "message.max.bytes": 1_000_000_000,  # the broker judges: it knows the topic's limit and what compresses
            "error_cb": self._noticed,
        }
        config = client_config(connection, "ckpt-sink", settings)
        config = {**_TUNED, "batch.size": min(batch_bytes, 2_147_483_647), **config}
        self._seconds = transaction_seconds(connection)
        self.producer: Producer = opened(Producer, config, connection)
        doing = f"initialising transactional id {identity}"
        try:
            # Without a connection the client would ask for the coordinator in vain, and again half a second later.
            self.producer.list_topics(topic, timeout(connection))
            _persist(self.producer.init_transactions, _INIT_SECONDS)
        except KafkaException as error:
            self._serve()
            self.close()
            raise failure(error, ErrorType.KAFKA_PRODUCER, doing, connection, self._noticed) from None

    def flush(self, refused: Sized) -> None:
        """Wait until every record was taken, or one was refused: then the client sends no more of the transaction."""
        deadline = time.monotonic() + self._seconds
        while self.producer.flush(_GLANCE) and not refused and time.monotonic() < deadline:
            pass

    def commit(self) -> None:
        """Commit; when this returns, it has happened. When it raises, nobody knows, unless :meth:`abort` returns."""
        _persist(self.producer.commit_transaction, self._seconds)

    def abort(self) -> None:
        """Try to end the open transaction without effect, so that consumers need not wait for its timeout."""
        from confluent_kafka import KafkaException

        try:
            self.producer.purge()
            self.producer.abort_transaction(1.0)
        except KafkaException:
            return  # it was fenced, or nobody answers; the id's next initialisation ends it

    def better(self, error: KafkaError) -> KafkaError:
        """What says more than ``error`` of why the broker did not do as it was asked."""
        self._serve()
        return self._noticed.telling() or error

    def close(self) -> None:
        """Let go of the connection and of whatever is still in the queue."""
        self.producer.purge()
        self._serve()
        del self.producer  # its own close() would wait for the broker once more

    def _serve(self) -> None:
        """Let the client say what it met meanwhile; one that was fenced says no more than that."""
        from confluent_kafka import KafkaException

        with suppress(KafkaException):
            self.producer.poll(0)


def _persist(step: Any, seconds: float) -> None:
    """Call a step of a transaction, and again as long as Kafka's client says that it may be called again."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + seconds
    while True:
        try:
            step(max(deadline - time.monotonic(), 0.1))
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def note(connection: Connection, topic: str, records: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Write records outside of any transaction, and wait until they are durable.

    :raises KafkaProducerError: if one may not be
    """
    from confluent_kafka import KafkaError, Producer

    noticed = Noticed()
    seconds = timeout(connection)
    settings = {"acks": "all", "message.timeout.ms": int(seconds * 1000), "linger.ms": 0, "error_cb": noticed}
    config = client_config(connection, "ckpt-sink", settings)
    config = {name: value for name, value in config.items() if not name.startswith("transaction")}
    producer: Producer = opened(Producer, config, connection)
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    for key, value in records:
        producer.produce(topic, value, key, 0, on_delivery=delivered)
    left = producer.flush(seconds + 1)
    producer.close()
    if failed or left:
        plain = failed[0] if failed else KafkaError(KafkaError._TIMED_OUT)
        better = (noticed.telling() if plain.code() == KafkaError._MSG_TIMED_OUT else None) or plain
        raise raised(error_info(better, ErrorType.KAFKA_PRODUCER, f"writing to topic {topic}", connection))
