"""Create Kafka clients from an Airflow connection, and classify their errors as recoverable or not by error code.

The connection's extra is the configuration of confluent-kafka, as in Airflow's own Kafka provider. Secrets in it are
masked in error messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.kafka.allowed_settings import client_settings, named_brokers, refuse_settings
from airflow_provider_ckpt.core.errors import (
    CkptError,
    ConfigError,
    ErrorInfo,
    ErrorType,
    FencedError,
    KafkaConsumerError,
    KafkaProducerError,
    SinkError,
)

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

COLUMNS = (
    ("key", "binary"),
    ("value", "binary"),
    ("headers", "array<struct<key:string,value:binary>>"),
    ("timestamp", "timestamp"),
)
"""Names and Spark SQL types of a message's columns, which the source yields and the sink accepts unchanged."""

DEFAULT_TIMEOUT = 10.0
"""Default timeout in seconds of a request to the broker; ``socket.timeout.ms`` in the extra overrides it."""

_SILENT_LOG = {"log_level": 2, "log.connection.close": False}
"""Settings that turn off librdkafka's log on standard error; its API returns the same errors."""

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SECRET_SETTING = re.compile(r"pass(word|phrase)|secret|token|jaas|oauthbearer\.config|\.pem$")

_UNREACHABLE = """
    _ALL_BROKERS_DOWN _DESTROY_BROKER _INCONSISTENT _ISR_INSUFF _MSG_TIMED_OUT _NOENT _RESOLVE _TIMED_OUT
    _TIMED_OUT_QUEUE _TRANSPORT _WAIT_COORD BROKER_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE
    FENCED_LEADER_EPOCH KAFKA_STORAGE_ERROR LEADER_NOT_AVAILABLE NETWORK_EXCEPTION NOT_CONTROLLER NOT_COORDINATOR
    NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_LEADER_FOR_PARTITION OFFSET_NOT_AVAILABLE
    PREFERRED_LEADER_NOT_AVAILABLE REBOOTSTRAP_REQUIRED REPLICA_NOT_AVAILABLE REQUEST_TIMED_OUT
    THROTTLING_QUOTA_EXCEEDED UNKNOWN_LEADER_EPOCH
"""
"""Errors of a cluster that is temporarily unavailable; each is retriable and sets ``ErrorInfo.is_outage``.

``_INCONSISTENT`` is the error of a commit after messages timed out. It never means that the broker refused a message
for its content: messages that may be refused have a delivery callback, so a refusal is known before the commit."""
_LEADER_ELECTION = """
    _NOENT FENCED_LEADER_EPOCH LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION OFFSET_NOT_AVAILABLE UNKNOWN_LEADER_EPOCH
"""
"""Errors of a partition that has no leader at the moment. A request for offsets ends with ``_NOENT`` if no partition of
the topic has a leader, as shortly after the cluster has excluded a broker that did not answer."""
_NOT_RETRIABLE = """
    _AUTHENTICATION _SSL _UNKNOWN_TOPIC _UNKNOWN_PARTITION _UNSUPPORTED_FEATURE CLUSTER_AUTHORIZATION_FAILED
    DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED GROUP_AUTHORIZATION_FAILED ILLEGAL_SASL_STATE
    INCONSISTENT_TOPIC_ID SASL_AUTHENTICATION_FAILED SECURITY_DISABLED TOPIC_AUTHORIZATION_FAILED
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED UNKNOWN_TOPIC_ID UNKNOWN_TOPIC_OR_PART UNSUPPORTED_SASL_MECHANISM
    UNSUPPORTED_VERSION
"""
_FENCED = "_FENCED FENCED_INSTANCE_ID INVALID_PRODUCER_EPOCH PRODUCER_FENCED TRANSACTION_COORDINATOR_FENCED"
_BAD_RECORD = """
    _KEY_SERIALIZATION _VALUE_SERIALIZATION INVALID_MSG INVALID_RECORD INVALID_TIMESTAMP MSG_SIZE_TOO_LARGE
    RECORD_LIST_TOO_LARGE
"""


@cache
def error_codes(names: str) -> frozenset[int]:
    """Return the numeric error codes of Kafka for a list of names.

    :param names: attributes of ``KafkaError``, separated by spaces
    """
    from confluent_kafka import KafkaError

    return frozenset(getattr(KafkaError, name) for name in names.split())


def require_connection(connection: Connection | None, what: str) -> Connection:
    """Return the connection if it can be used for Kafka.

    :param connection: the connection, or None if the pipeline names none
    :param what: section of the pipeline's declaration that names the connection, such as ``source``
    :raises ConfigError: if there is no connection, or it has another type, names no broker, or has a setting that is
        not allowed
    """
    if connection is None:
        raise ConfigError(
            f"the kafka {what} has no connection.", hint=f"Name an Airflow connection in {what}.connection."
        )
    if connection.type != "kafka":
        raise ConfigError(
            f"connection {connection.id!r} of the kafka {what} has type {connection.type!r}, not kafka.",
            hint="Name a connection of type kafka.",
        )
    if not bootstrap_servers(connection):
        raise ConfigError(
            f"connection {connection.id!r} of the kafka {what} names no broker.",
            hint='Put {"bootstrap.servers": "host:port"} into its extra.',
        )
    refuse_settings(connection.id, connection.extra, writes=what != "source")
    return connection


def require_topic(name: str, key: str, pipeline: str) -> str:
    """Return the name of a topic if Kafka allows it.

    :param name: the topic's name
    :param key: key of the pipeline's declaration that has the name, for the error message
    :param pipeline: the pipeline's name, for the error message
    :raises ConfigError: if Kafka does not allow the name
    """
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise ConfigError(
            f"{key}: {name[:60]!r} is not a valid topic name.",
            pipeline=pipeline,
            hint="A topic name has 1 to 249 letters, digits, dots, hyphens or underscores.",
        )
    return name


def bootstrap_servers(connection: Connection) -> str:
    """Return a connection's bootstrap servers: those in its extra, else its host and port; empty if it has neither."""
    named = named_brokers(connection.extra)
    if named:
        return named
    return f"{connection.host}:{connection.port or 9092}" if connection.host else ""


def client_config(connection: Connection, client: str, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the configuration of a client, including the secrets.

    :param connection: the Airflow connection of the Kafka cluster
    :param client: value of ``client.id``, which appears in the brokers' logs and metrics
    :param settings: settings of the connector, which override those of the connection
    """
    login = {"sasl.username": connection.login, "sasl.password": connection.password}
    given = {name: value for name, value in login.items() if value} if _uses_sasl(connection) else {}
    return {
        **_SILENT_LOG,
        "socket.timeout.ms": int(DEFAULT_TIMEOUT * 1000),
        "client.id": client,
        **given,
        **client_settings(connection.extra),
        "bootstrap.servers": bootstrap_servers(connection),
        **(settings or {}),
    }


def consumer_config(
    connection: Connection, client: str, pipeline: str, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the configuration of a consumer that assigns its partitions itself and never commits offsets.

    :param connection: the Airflow connection of the Kafka cluster
    :param client: value of ``client.id``, which appears in the brokers' logs and metrics
    :param pipeline: the pipeline's name; the consumer group, which librdkafka requires, is named after it unless the
        connection sets ``group.id``
    :param settings: further settings of the connector, which override all others
    """
    own = {
        "group.id": connection.extra.get("group.id", f"ckpt-{pipeline}"),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        "check.crcs": True,
    }
    return client_config(connection, client, {**own, **(settings or {})})


def answer_timeout(connection: Connection) -> float:
    """Return the timeout in seconds of a request to the broker."""
    return float(connection.extra.get("socket.timeout.ms", DEFAULT_TIMEOUT * 1000)) / 1000


def to_error_info(error: KafkaError, kind: ErrorType, operation: str, connection: Connection) -> ErrorInfo:
    """Convert an error of the Kafka client or broker to error information (semantics, section 7).

    A producer's error gets the type ``Serialization`` if a record was refused, and ``Fenced`` if the producer is
    fenced. Any other error gets the type ``kind``.

    :param error: the error
    :param kind: ``KafkaConsumer`` or ``KafkaProducer``, the client that reported the error
    :param operation: the operation that failed, for the message, such as ``reading topic orders``
    :param connection: connection to the cluster, for the message; its secrets are masked
    """
    text = _mask_secrets(
        f"{operation} at {bootstrap_servers(connection)} (connection {connection.id!r}): {error.str()}", connection
    )
    code = error.code()
    if kind is ErrorType.KAFKA_PRODUCER and code in error_codes(_FENCED):
        return ErrorInfo(ErrorType.FENCED, text)
    if kind is ErrorType.KAFKA_PRODUCER and code in error_codes(_BAD_RECORD):
        return ErrorInfo(ErrorType.SERIALIZATION, text)
    if code in error_codes(_NOT_RETRIABLE):
        return ErrorInfo(kind, text, False, is_outage=True)
    if code in error_codes(_UNREACHABLE):
        return ErrorInfo(kind, text, True, is_outage=True)
    return ErrorInfo(kind, text, bool(error.retriable()))


def is_not_retriable(error: KafkaError) -> bool:
    """Return whether a retry cannot succeed, as after a wrong password, or if a permission or the topic is missing.

    :param error: the client's error
    """
    return error.code() in error_codes(_NOT_RETRIABLE)


def is_leader_election(error: KafkaError) -> bool:
    """Return whether an error means that a partition temporarily has no leader, as after a restart of a broker.

    :param error: the client's error
    """
    return error.code() in error_codes(_LEADER_ELECTION)


def to_exception(info: ErrorInfo, hint: str | None = None) -> CkptError:
    """Return the exception that carries error information.

    :param info: the error information, as :func:`to_error_info` returned it
    :param hint: advice to the user, if any
    """
    if info.type is ErrorType.FENCED:
        return FencedError(info.message, hint=hint)
    kind: type[CkptError] = SinkError
    if info.type in (ErrorType.KAFKA_CONSUMER, ErrorType.KAFKA_PRODUCER):
        kind = KafkaConsumerError if info.type is ErrorType.KAFKA_CONSUMER else KafkaProducerError
    error = kind(info.message, recoverable=info.recoverable, is_outage=info.is_outage, hint=hint)
    error.type = info.type
    return error


class ClientErrors:
    """Collector of the errors that a Kafka client reports to its callback ``error_cb``.

    The collected errors explain why a later request of the client timed out.
    """

    def __init__(self) -> None:
        self._errors: list[KafkaError] = []

    def __call__(self, error: KafkaError) -> None:
        self._errors.append(error)

    def most_specific(self) -> KafkaError | None:
        """Return the most specific of the collected errors: the first that is not retriable, else the first other one.

        Timeouts and the failure of all brokers do not count as specific. The result is None if there is no other error.
        """
        from confluent_kafka import KafkaError

        unspecific = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
        found = [error for error in self._errors if is_not_retriable(error)]
        found += [error for error in self._errors if error.code() not in unspecific]
        return next(iter(found), None)

    def clear(self) -> None:
        """Remove all collected errors."""
        self._errors.clear()


def from_kafka_exception(
    error: Exception, kind: ErrorType, operation: str, connection: Connection, client_errors: ClientErrors | None = None
) -> CkptError:
    """Return the exception to raise for a ``KafkaException``.

    :param error: the ``KafkaException``
    :param kind: ``KafkaConsumer`` or ``KafkaProducer``, the client that raised it
    :param operation: the operation that failed, for the message, such as ``describing topic orders``
    :param connection: connection to the cluster, for the message; its secrets are masked
    :param client_errors: errors that the client reported during the operation, which may be more specific
    """
    kafka_error: KafkaError = error.args[0]
    specific = (
        client_errors.most_specific()
        if client_errors is not None and kafka_error.code() in error_codes(_UNREACHABLE)
        else None
    )
    return to_exception(to_error_info(specific or kafka_error, kind, operation, connection))


def create_client(make: Any, config: Mapping[str, Any], connection: Connection) -> Any:
    """Create a client of the Kafka library: a consumer, producer or admin client.

    :param make: the client's class
    :param config: the client's configuration
    :param connection: the connection, for the message; its secrets are masked
    :raises ConfigError: if the client does not accept the configuration
    """
    from confluent_kafka import KafkaException

    try:
        return make(dict(config))
    except (KafkaException, TypeError, ValueError) as error:
        message = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise ConfigError(
            f"connection {connection.id!r} does not configure a Kafka client: {_mask_secrets(message, connection)}",
            hint="Its extra is confluent-kafka's configuration: bootstrap.servers, security.protocol and so on.",
        ) from None


def _uses_sasl(connection: Connection) -> bool:
    return "SASL" in str(connection.extra.get("security.protocol", "")).upper()


def _mask_secrets(text: str, connection: Connection) -> str:
    secrets = [str(value) for name, value in connection.extra.items() if value and _SECRET_SETTING.search(name)]
    for secret in sorted({*secrets, connection.password or ""} - {""}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
