"""What the Kafka source and sink share: a client's configuration from an Airflow connection, and errors by their code.

The connection's extra is confluent-kafka's configuration, as in Airflow's own Kafka provider; secrets stay in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.kafka.allowed_settings import brokers, own_settings, refuse_settings
from airflow_provider_ckpt.connectors.protocols import Connection
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
"""A message as columns, name and Spark SQL type: what the source yields, and what the sink takes unchanged."""

TIMEOUT = 10.0
"""Seconds in which a broker has to answer; ``socket.timeout.ms`` in the connection's extra says otherwise."""

_QUIET = {"log_level": 2, "log.connection.close": False}
"""librdkafka writes to standard error; what matters comes back as an error."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SECRET = re.compile(r"pass(word|phrase)|secret|token|jaas|oauthbearer\.config|\.pem$")

_UNREACHABLE = """
    _ALL_BROKERS_DOWN _DESTROY_BROKER _INCONSISTENT _ISR_INSUFF _MSG_TIMED_OUT _RESOLVE _TIMED_OUT _TIMED_OUT_QUEUE
    _TRANSPORT _WAIT_COORD BROKER_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE
    FENCED_LEADER_EPOCH KAFKA_STORAGE_ERROR LEADER_NOT_AVAILABLE NETWORK_EXCEPTION NOT_CONTROLLER NOT_COORDINATOR
    NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_LEADER_FOR_PARTITION OFFSET_NOT_AVAILABLE
    PREFERRED_LEADER_NOT_AVAILABLE REBOOTSTRAP_REQUIRED REPLICA_NOT_AVAILABLE REQUEST_TIMED_OUT
    THROTTLING_QUOTA_EXCEEDED UNKNOWN_LEADER_EPOCH
"""
"""``_INCONSISTENT`` is what a commit says of messages that timed out before it: those that a broker may refuse for what
they are have been watched."""
_SETTLING = """
    FENCED_LEADER_EPOCH LEADER_NOT_AVAILABLE NOT_LEADER_FOR_PARTITION OFFSET_NOT_AVAILABLE UNKNOWN_LEADER_EPOCH
"""
_REFUSED = """
    _AUTHENTICATION _SSL _UNKNOWN_TOPIC _UNKNOWN_PARTITION _UNSUPPORTED_FEATURE CLUSTER_AUTHORIZATION_FAILED
    DELEGATION_TOKEN_AUTHORIZATION_FAILED DELEGATION_TOKEN_EXPIRED GROUP_AUTHORIZATION_FAILED ILLEGAL_SASL_STATE
    INCONSISTENT_TOPIC_ID SASL_AUTHENTICATION_FAILED SECURITY_DISABLED TOPIC_AUTHORIZATION_FAILED
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED UNKNOWN_TOPIC_ID UNKNOWN_TOPIC_OR_PART UNSUPPORTED_SASL_MECHANISM
    UNSUPPORTED_VERSION
"""
_FENCED = "_FENCED FENCED_INSTANCE_ID INVALID_PRODUCER_EPOCH PRODUCER_FENCED TRANSACTION_COORDINATOR_FENCED"
_UNFIT = """
    _KEY_SERIALIZATION _VALUE_SERIALIZATION INVALID_MSG INVALID_RECORD INVALID_TIMESTAMP MSG_SIZE_TOO_LARGE
    RECORD_LIST_TOO_LARGE
"""


@cache
def codes(names: str) -> frozenset[int]:
    """The numbers of Kafka's error codes."""
    from confluent_kafka import KafkaError

    return frozenset(getattr(KafkaError, name) for name in names.split())


def require(connection: Connection | None, what: str) -> Connection:
    """The connection, or a clear error.

    :raises ConfigError: if there is none, it is of another type, or it sets what it may not set
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
    if not bootstrap(connection):
        raise ConfigError(
            f"connection {connection.id!r} of the kafka {what} names no broker.",
            hint='Put {"bootstrap.servers": "host:port"} into its extra.',
        )
    refuse_settings(connection.id, connection.extra, writes=what != "source")
    return connection


def require_topic(name: str, key: str, pipeline: str) -> str:
    """The name of a topic that may be one.

    :param key: of the pipeline's declaration
    :raises ConfigError: if Kafka takes no such name
    """
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise ConfigError(
            f"{key}: {name[:60]!r} is no name of a topic.",
            pipeline=pipeline,
            hint="It has 1 to 249 letters, digits, dots, hyphens or underscores.",
        )
    return name


def bootstrap(connection: Connection) -> str:
    """The brokers that a client asks first: the extra's, else the connection's host and port."""
    named = brokers(connection.extra)
    if named:
        return named
    return f"{connection.host}:{connection.port or 9092}" if connection.host else ""


def client_config(connection: Connection, client: str, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The configuration of a client; it holds the secrets.

    :param client: client.id, which brokers show
    :param settings: what the connector needs, whatever the connection says
    """
    login = {"sasl.username": connection.login, "sasl.password": connection.password}
    given = {name: value for name, value in login.items() if value} if _with_login(connection) else {}
    return {
        **_QUIET,
        "socket.timeout.ms": int(TIMEOUT * 1000),
        "client.id": client,
        **given,
        **own_settings(connection.extra),
        "bootstrap.servers": bootstrap(connection),
        **(settings or {}),
    }


def consumer_config(
    connection: Connection, client: str, pipeline: str, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The configuration of a consumer that is told what to read and commits nothing.

    :param pipeline: names its group, which a client must have, unless the connection does
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


def timeout(connection: Connection) -> float:
    """Seconds in which a broker has to answer."""
    return float(connection.extra.get("socket.timeout.ms", TIMEOUT * 1000)) / 1000


def error_info(error: KafkaError, kind: ErrorType, doing: str, connection: Connection) -> ErrorInfo:
    """An error of Kafka's client or broker as data (semantics, section 7).

    :param kind: ``KafkaConsumer`` or ``KafkaProducer``: who met it
    :param doing: what was being done, for the message
    """
    text = _without_secrets(
        f"{doing} at {bootstrap(connection)} (connection {connection.id!r}): {error.str()}", connection
    )
    code = error.code()
    if kind is ErrorType.KAFKA_PRODUCER and code in codes(_FENCED):
        return ErrorInfo(ErrorType.FENCED, text)
    if kind is ErrorType.KAFKA_PRODUCER and code in codes(_UNFIT):
        return ErrorInfo(ErrorType.SERIALIZATION, text)
    if code in codes(_REFUSED):
        return ErrorInfo(kind, text, False, whole=True)
    if code in codes(_UNREACHABLE):
        return ErrorInfo(kind, text, True, whole=True)
    return ErrorInfo(kind, text, bool(error.retriable()))


def refuses(error: KafkaError) -> bool:
    """Whether trying again cannot help: wrong password, no right, no such topic."""
    return error.code() in codes(_REFUSED)


def settles(error: KafkaError) -> bool:
    """Whether a partition is without a leader for a moment, as after a broker's restart."""
    return error.code() in codes(_SETTLING)


def raised(info: ErrorInfo, hint: str | None = None) -> CkptError:
    """The exception for an error of a consumer or a producer."""
    if info.type is ErrorType.FENCED:
        return FencedError(info.message, hint=hint)
    kind: type[CkptError] = SinkError
    if info.type in (ErrorType.KAFKA_CONSUMER, ErrorType.KAFKA_PRODUCER):
        kind = KafkaConsumerError if info.type is ErrorType.KAFKA_CONSUMER else KafkaProducerError
    error = kind(info.message, recoverable=info.recoverable, whole=info.whole, hint=hint)
    error.type = info.type
    return error


class Noticed:
    """Collects what a client's threads meet, to say why a question was not answered: give it as ``error_cb``."""

    def __init__(self) -> None:
        self._errors: list[KafkaError] = []

    def __call__(self, error: KafkaError) -> None:
        self._errors.append(error)

    def telling(self) -> KafkaError | None:
        """The error that says most: one that trying again cannot help, else the first that tells more than silence."""
        from confluent_kafka import KafkaError

        dull = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT}
        found = [error for error in self._errors if refuses(error)]
        found += [error for error in self._errors if error.code() not in dull]
        return next(iter(found), None)

    def clear(self) -> None:
        """Forget what was noticed."""
        self._errors.clear()


def failure(
    error: Exception, kind: ErrorType, doing: str, connection: Connection, noticed: Noticed | None = None
) -> CkptError:
    """The exception for a ``KafkaException``.

    :param noticed: what the client met meanwhile, which may say more than the error itself
    """
    plain: KafkaError = error.args[0]
    better = noticed.telling() if noticed is not None and plain.code() in codes(_UNREACHABLE) else None
    return raised(error_info(better or plain, kind, doing, connection))


def opened(make: Any, config: Mapping[str, Any], connection: Connection) -> Any:
    """A client.

    :param make: its class
    :raises ConfigError: if the configuration does not hold
    """
    from confluent_kafka import KafkaException

    try:
        return make(dict(config))
    except (KafkaException, TypeError, ValueError) as error:
        said = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise ConfigError(
            f"connection {connection.id!r} does not configure a Kafka client: {_without_secrets(said, connection)}",
            hint="Its extra is confluent-kafka's configuration: bootstrap.servers, security.protocol and so on.",
        ) from None


def _with_login(connection: Connection) -> bool:
    return "SASL" in str(connection.extra.get("security.protocol", "")).upper()


def _without_secrets(text: str, connection: Connection) -> str:
    secrets = [str(value) for name, value in connection.extra.items() if value and _SECRET.search(name)]
    for secret in sorted({*secrets, connection.password or ""} - {""}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
