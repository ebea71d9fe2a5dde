"""Producers of the Kafka sink: a transactional producer, which fences earlier ones, and one for single records."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sized
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.client import (
    ClientErrors,
    answer_timeout,
    client_config,
    create_client,
    error_codes,
    from_kafka_exception,
    to_error_info,
    to_exception,
)
from airflow_provider_ckpt.core.errors import ErrorType

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

DEFAULT_TRANSACTION_MS = 60_000
"""Default transaction timeout in ms: the time for which a killed lane's transaction hides later records from consumers.
"""

_INIT_SECONDS = 30.0
_POLL_SECONDS = 0.2
_DEFAULTS = {
    "partitioner": "murmur2_random",  # as in Java's client: a key gets the same partition as from other producers
    "linger.ms": 20,
    "queue.buffering.max.messages": 0,
    "transaction.timeout.ms": DEFAULT_TRANSACTION_MS,
}
"""Default settings of a producer, which the connection's extra overrides."""

_MAY_BE_FENCED = """
    _FENCED _STATE INVALID_PRODUCER_EPOCH PRODUCER_FENCED INVALID_PRODUCER_ID_MAPPING UNKNOWN_PRODUCER_ID
    INVALID_TXN_STATE TRANSACTION_COORDINATOR_FENCED
"""


def transaction_timeout(connection: Connection) -> float:
    """Return the transaction timeout of a connection's producers in seconds."""
    return float(connection.extra.get("transaction.timeout.ms", DEFAULT_TRANSACTION_MS)) / 1000


def may_be_fenced(error: KafkaError) -> bool:
    """Return whether an error may mean that another producer has initialised the transactional id."""
    return error.code() in error_codes(_MAY_BE_FENCED)


class TransactionalProducer:
    """Producer with an initialised transactional id; earlier producers with the same id cannot commit any more.

    The methods raise the exceptions of Kafka's client unless stated otherwise. After an error, the producer must not be
    used again.

    :param connection: the Airflow connection of the Kafka cluster
    :param identity: the transactional id
    :param topic: a topic that will be written; its metadata are requested first, to connect to the cluster
    :param batch_bytes: maximum size in bytes of a producer batch of several records
    :ivar producer: confluent-kafka's producer, with which the caller begins transactions and sends messages
    :raises KafkaProducerError: if the transactional id cannot be initialised
    """

    def __init__(self, connection: Connection, identity: str, topic: str, batch_bytes: int = 1_000_000) -> None:
        from confluent_kafka import KafkaException, Producer

        self._client_errors = ClientErrors()
        settings = {
            "transactional.id": identity,
            "message.max.bytes": 1_000_000_000,  # the broker checks: it knows the limit and the compressed size
            "error_cb": self._client_errors,
        }
        config = client_config(connection, "ckpt-sink", settings)
        config = {**_DEFAULTS, "batch.size": min(batch_bytes, 2_147_483_647), **config}
        self._seconds = transaction_timeout(connection)
        self.producer: Producer = create_client(Producer, config, connection)
        operation = f"initialising transactional id {identity}"
        try:
            # Connect first: without a connection, the request for the coordinator fails and is retried after 0.5 s.
            self.producer.list_topics(topic, answer_timeout(connection))
            _retry_step(self.producer.init_transactions, _INIT_SECONDS)
        except KafkaException as error:
            self._run_callbacks()
            self.close()
            raise from_kafka_exception(
                error, ErrorType.KAFKA_PRODUCER, operation, connection, self._client_errors
            ) from None

    def flush(self, refused: Sized) -> None:
        """Wait until all records are acknowledged, one is refused, or the transaction timeout has passed.

        It returns without an error in each of these cases.

        :param refused: collection to which the delivery callbacks add refused records
        """
        deadline = time.monotonic() + self._seconds
        while self.producer.flush(_POLL_SECONDS) and not refused and time.monotonic() < deadline:
            pass

    def commit(self) -> None:
        """Commit the transaction; if this raises an error, the transaction may nevertheless be committed."""
        _retry_step(self.producer.commit_transaction, self._seconds)

    def abort(self) -> None:
        """Try to abort the open transaction, so that consumers need not wait for its timeout; errors are ignored."""
        from confluent_kafka import KafkaException

        try:
            self.producer.purge()
            self.producer.abort_transaction(1.0)
        except KafkaException:
            return  # fenced, or the broker does not answer; the next initialisation of the id ends the transaction

    def most_specific_error(self, error: KafkaError) -> KafkaError:
        """Return the most specific error that the client has reported, or the given error if none is specific.

        :param error: error of the failed call
        """
        self._run_callbacks()
        return self._client_errors.most_specific() or error

    def close(self) -> None:
        """Close the connection and discard queued messages."""
        self.producer.purge()
        self._run_callbacks()
        del self.producer  # close() of the client would wait for the broker again

    def _run_callbacks(self) -> None:
        """Run the client's callbacks, which collects its errors; the exception of a fenced client is ignored."""
        from confluent_kafka import KafkaException

        with suppress(KafkaException):
            self.producer.poll(0)


def _retry_step(step: Any, seconds: float) -> None:
    """Call a step of a transaction, and repeat it while the client marks its error as retriable.

    :param step: the step, which takes its timeout in seconds
    :param seconds: time after which the step is not repeated any more
    :raises confluent_kafka.KafkaException: if the step fails and is not repeated
    """
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


def write_records(connection: Connection, topic: str, records: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Write records outside any transaction, to partition 0, and wait until they are durable.

    :param connection: the Airflow connection of the Kafka cluster
    :param topic: the topic's name
    :param records: key and value of each record
    :raises KafkaProducerError: if a record may not be durable
    """
    from confluent_kafka import KafkaError, Producer

    client_errors = ClientErrors()
    seconds = answer_timeout(connection)
    settings = {"acks": "all", "message.timeout.ms": int(seconds * 1000), "linger.ms": 0, "error_cb": client_errors}
    config = client_config(connection, "ckpt-sink", settings)
    config = {name: value for name, value in config.items() if not name.startswith("transaction")}
    producer: Producer = create_client(Producer, config, connection)
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    for key, value in records:
        producer.produce(topic, value, key, 0, on_delivery=delivered)
    left = producer.flush(seconds + 1)
    producer.close()
    if failed or left:
        kafka_error = failed[0] if failed else KafkaError(KafkaError._TIMED_OUT)
        specific = (
            client_errors.most_specific() if kafka_error.code() == KafkaError._MSG_TIMED_OUT else None
        ) or kafka_error
        raise to_exception(to_error_info(specific, ErrorType.KAFKA_PRODUCER, f"writing to topic {topic}", connection))
