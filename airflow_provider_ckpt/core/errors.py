"""Define errors: their stable types, the actions of the delivery policy on them, and the exceptions that users may see.

The names of the types are those of StreamForge, a tool that replicates Kafka topics, wherever it has one. ``ErrorInfo``
is an error as data, as it is stored in the outcomes of attempts and in the ledger. ``CkptError`` is the base of all
exceptions and adds the pipeline, batch and position that are affected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from airflow_provider_ckpt.core.ranges import position_text


class ErrorAction(StrEnum):
    """Action of the delivery policy on an error of a record or of a batch.

    - ``retry``: attempt the batch again
    - ``dead_letter``: store the record, or all records of the batch, as dead letters
    - ``skip_and_log``: drop the record or the batch, and log the error
    - ``halt``: end the run as failed
    """

    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    SKIP_AND_LOG = "skip_and_log"
    HALT = "halt"


class ErrorType(StrEnum):
    """Type of an error, which determines the action on it; the values are stable names, such as ``KafkaProducer``.

    Users name them in ``error_policy`` and select dead letters by them.
    """

    KAFKA = "Kafka"
    KAFKA_PRODUCER = "KafkaProducer"
    KAFKA_CONSUMER = "KafkaConsumer"
    OFFSET_COMMIT = "OffsetCommit"
    SERIALIZATION = "Serialization"
    MESSAGE_DESERIALIZATION = "MessageDeserialization"
    CONFIG = "Config"
    CONFIG_WITH_FIELD = "ConfigWithField"
    CONFIG_MISSING = "ConfigMissing"
    CONFIG_INVALID = "ConfigInvalid"
    DSL_PARSE = "DslParse"
    INVALID_FILTER = "InvalidFilter"
    INVALID_TRANSFORM = "InvalidTransform"
    PROCESSING = "Processing"
    PROCESSING_WITH_CONTEXT = "ProcessingWithContext"
    FILTER_EVALUATION = "FilterEvaluation"
    TRANSFORM_EVALUATION = "TransformEvaluation"
    JSON_PATH_NOT_FOUND = "JsonPathNotFound"
    COMPRESSION = "Compression"
    COMPRESSION_WITH_CODEC = "CompressionWithCodec"
    DECOMPRESSION = "Decompression"
    CACHE = "Cache"
    REDIS = "Redis"
    IO = "Io"
    RETRY_EXHAUSTED = "RetryExhausted"
    DEAD_LETTER_QUEUE = "DeadLetterQueue"
    GENERIC = "Generic"
    SINK = "Sink"
    SOURCE = "Source"
    STALE_EPOCH = "StaleEpoch"
    LEDGER_UNAVAILABLE = "LedgerUnavailable"
    FENCED = "Fenced"
    DEADLINE = "Deadline"


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error as data, as it is stored in the outcomes of attempts, in dead letters and in the ledger.

    :param type: the error type
    :param message: description of the error; contains no secret
    :param recoverable: whether a retry can help, according to the driver or connector
    :param sqlstate: the five-character SQLSTATE; None if no database reported one
    :param is_outage: whether the sink or source as a whole failed (unreachable, refused, full), not only this batch
    :param trace: the stack trace; None unless it is known and ``include_stack_trace`` is set
    """

    type: ErrorType
    message: str
    recoverable: bool = False
    sqlstate: str | None = None
    is_outage: bool = False
    trace: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the error as a JSON-ready dict; :meth:`from_json` is the inverse."""
        return {
            "type": self.type.value,
            "message": self.message,
            "recoverable": self.recoverable,
            "sqlstate": self.sqlstate,
            "whole": self.is_outage,
            "trace": self.trace,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ErrorInfo:
        """Restore an error from the output of :meth:`to_json`."""
        return cls(
            ErrorType(data["type"]),
            data["message"],
            data["recoverable"],
            data.get("sqlstate"),
            data.get("whole", False),
            data.get("trace"),
        )


class CkptError(Exception):
    """Base of all errors that a user may see; its text says what went wrong, where, and what to do next.

    :param message: description of the error
    :param pipeline: the pipeline's name; None if unknown
    :param batch: the batch, as ``partition#seq``; None if no single batch is affected
    :param position: the source position; None if unknown
    :param hint: instruction for the user; None if there is none
    :param sqlstate: the SQLSTATE; None if no database reported one
    :param recoverable: whether a retry can help; None for the default of the exception class
    :param is_outage: whether the sink or source as a whole failed, not only this batch
    """

    type: ErrorType = ErrorType.GENERIC
    recoverable: bool = False

    def __init__(
        self,
        message: str,
        *,
        pipeline: str | None = None,
        batch: str | None = None,
        position: int | str | None = None,
        hint: str | None = None,
        sqlstate: str | None = None,
        recoverable: bool | None = None,
        is_outage: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.pipeline = pipeline
        self.batch = batch
        self.position = position
        self.hint = hint
        self.sqlstate = sqlstate
        self.is_outage = is_outage
        if recoverable is not None:
            self.recoverable = recoverable

    def __str__(self) -> str:
        position = position_text(self.position) if isinstance(self.position, int) else self.position
        where = [
            f"{name} {value}"
            for name, value in (("pipeline", self.pipeline), ("batch", self.batch), ("position", position))
            if value is not None
        ]
        return f"[{self.type.value}] " + (", ".join(where) + ": " if where else "") + self._message_with_hint()

    @property
    def info(self) -> ErrorInfo:
        """The error as :class:`ErrorInfo`, the form in which outcomes and the ledger store it."""
        return ErrorInfo(self.type, self._message_with_hint(), self.recoverable, self.sqlstate, self.is_outage)

    def _message_with_hint(self) -> str:
        """Return the message, followed by the hint if there is one."""
        if not self.hint:
            return self.message
        return f"{self.message}{'' if self.message.endswith(('.', '!', '?')) else '.'} {self.hint}"


class ConfigError(CkptError):
    """Error of an invalid declaration of a pipeline, or of an invalid argument of a command; nothing was sent."""

    type = ErrorType.CONFIG


class MissingConnectionError(ConfigError):
    """Error of an Airflow connection that is not defined, or whose secrets backend did not answer.

    Airflow reports both cases in the same way, so they cannot be told apart.
    """

    type = ErrorType.CONFIG_MISSING
    recoverable = True


class DslParseError(ConfigError):
    """Error of an SQL expression of the transform that does not parse."""

    type = ErrorType.DSL_PARSE


class InvalidFilterError(ConfigError):
    """Error of an invalid ``transform.where``: an unknown column, a wrong type, or a reference to other records."""

    type = ErrorType.INVALID_FILTER


class InvalidTransformError(ConfigError):
    """Error of an invalid ``transform.select`` or ``transform.schema``."""

    type = ErrorType.INVALID_TRANSFORM


class SinkChangedError(ConfigError):
    """Error of a sink that is not as this ledger left it; nothing was sent.

    The sink has lost commits or was recreated, or the pipeline now names another sink.
    """


class SourceError(CkptError):
    """Error of a source that cannot be read or refused a request, or that is not the source which was read before."""

    type = ErrorType.SOURCE


class SinkError(CkptError):
    """Error of a sink that cannot be reached or refused a request; ``sqlstate`` is set if a database reported it."""

    type = ErrorType.SINK


class ReceiptsUnreadableError(SinkError):
    """Error of receipts in the sink that are gone or damaged.

    Without these receipts, it is unknown which batches the sink has received.
    """


class KafkaConsumerError(SourceError):
    """Error that the Kafka client or a broker reported while a run planned batches of a topic, or read the topic."""

    type = ErrorType.KAFKA_CONSUMER


class KafkaProducerError(SinkError):
    """Error that the Kafka client or a broker reported while a topic was written."""

    type = ErrorType.KAFKA_PRODUCER


class IoError(CkptError):
    """Error of a file operation: the file system is full, or a file is unreadable or missing."""

    type = ErrorType.IO
    recoverable = True


class DeadLetterQueueError(CkptError):
    """Error of a dead letter that could not be written.

    The run halts and the checkpoint does not move, so nothing is lost.
    """

    type = ErrorType.DEAD_LETTER_QUEUE


class StaleEpochError(CkptError):
    """Error of a run that no longer holds the lease under its epoch, so that it must not write any more.

    Usually a newer run has acquired the lease.
    """

    type = ErrorType.STALE_EPOCH


class FencedError(CkptError):
    """Error of a transaction that the sink refused, because a run with a newer epoch has fenced the sink."""

    type = ErrorType.FENCED


class DeadlineError(CkptError):
    """Error of a wave that exceeded the run's time budget and was cancelled.

    Of its batches, those without a receipt in the sink wait for their next attempt, or for a user if they are held.
    Batches that are sent at most once are not attempted again.
    """

    type = ErrorType.DEADLINE


class LeaseBusyError(CkptError):
    """Error of a run that cannot start, because another owner holds the pipeline's lease, which has not expired."""

    type = ErrorType.STALE_EPOCH


class LedgerUnavailableError(CkptError):
    """Error of a ledger that cannot be opened, has the wrong schema revision, or did not answer."""

    type = ErrorType.LEDGER_UNAVAILABLE


class OffsetCommitError(LedgerUnavailableError):
    """Error of a run that could not store the verdicts of batches in the ledger in time.

    The checkpoint does not move, and nothing is lost: the next run reads the verdicts from the sink's receipts.
    """

    type = ErrorType.OFFSET_COMMIT


class LedgerStateError(CkptError):
    """Error of a transition that the state of a batch, partition or pipeline does not allow; nothing was changed."""

    type = ErrorType.PROCESSING


class EngineError(CkptError):
    """Error of a Spark application that could not be started, or was lost during a run.

    The results of the wave's batches are unknown until the sink's receipts are read.
    """

    type = ErrorType.PROCESSING
