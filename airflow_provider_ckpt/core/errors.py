"""The vocabulary of errors: a stable type, whether trying again can help, and the one action that follows.

Type names are StreamForge's where it has one. ``ErrorInfo`` is an error as data, as it travels in outcomes, receipts
and the ledger; ``CkptError`` is the exception that carries one, with the pipeline, batch and position it speaks of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Action(StrEnum):
    """What the delivery policy does about an error."""

    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    SKIP_AND_LOG = "skip_and_log"
    HALT = "halt"


class ErrorType(StrEnum):
    """Every error type, by its stable name."""

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


_DEAD_LETTERED = frozenset(
    {
        ErrorType.MESSAGE_DESERIALIZATION,
        ErrorType.SERIALIZATION,
        ErrorType.FILTER_EVALUATION,
        ErrorType.TRANSFORM_EVALUATION,
        ErrorType.JSON_PATH_NOT_FOUND,
        ErrorType.COMPRESSION,
        ErrorType.COMPRESSION_WITH_CODEC,
        ErrorType.DECOMPRESSION,
        ErrorType.PROCESSING,
        ErrorType.PROCESSING_WITH_CONTEXT,
    }
)
_ALWAYS_RETRIED = frozenset(
    {ErrorType.OFFSET_COMMIT, ErrorType.IO, ErrorType.REDIS, ErrorType.CACHE, ErrorType.LEDGER_UNAVAILABLE}
)
_RETRIED_WHEN_RECOVERABLE = frozenset(
    {ErrorType.KAFKA_PRODUCER, ErrorType.KAFKA_CONSUMER, ErrorType.SINK, ErrorType.SOURCE}
)


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error as data.

    :param type: its stable type
    :param message: what went wrong, for a person; carries no secret
    :param recoverable: whether the driver or connector says that trying again can help
    :param sqlstate: the five-character SQLSTATE where a database gave one
    :param whole: whether the sink or source as a whole failed (unreachable, refused, full), not this batch
    :param trace: where it happened, in the words of whatever raised it, where that is known and somebody asked
    """

    type: ErrorType
    message: str
    recoverable: bool = False
    sqlstate: str | None = None
    whole: bool = False
    trace: str | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; :meth:`from_json` is its inverse."""
        return {
            "type": self.type.value,
            "message": self.message,
            "recoverable": self.recoverable,
            "sqlstate": self.sqlstate,
            "whole": self.whole,
            "trace": self.trace,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ErrorInfo:
        """The error that :meth:`to_json` wrote."""
        return cls(
            ErrorType(data["type"]),
            data["message"],
            data["recoverable"],
            data.get("sqlstate"),
            data.get("whole", False),
            data.get("trace"),
        )


def default_action(error: ErrorInfo) -> Action:
    """What follows from an error when the pipeline says nothing else (semantics, section 7); an unnamed error halts."""
    if error.type in _ALWAYS_RETRIED or (error.type in _RETRIED_WHEN_RECOVERABLE and error.recoverable):
        return Action.RETRY
    if error.type in _DEAD_LETTERED:
        return Action.DEAD_LETTER
    if error.type is ErrorType.SINK and error.sqlstate is not None and error.sqlstate[:2] in ("22", "23"):
        return Action.DEAD_LETTER
    return Action.HALT


class CkptError(Exception):
    """Base of all errors that a user may see; says what, where and what to do next.

    :param message: what went wrong
    :param pipeline: the pipeline's name, where known
    :param batch: the batch, as ``partition#seq``, where known
    :param position: the source position, where known
    :param hint: what to do next
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
        whole: bool = False,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.pipeline = pipeline
        self.batch = batch
        self.position = position
        self.hint = hint
        self.sqlstate = sqlstate
        self.whole = whole
        if recoverable is not None:
            self.recoverable = recoverable

    def __str__(self) -> str:
        where = [
            f"{name} {value}"
            for name, value in (("pipeline", self.pipeline), ("batch", self.batch), ("position", self.position))
            if value is not None
        ]
        return f"[{self.type.value}] " + (", ".join(where) + ": " if where else "") + self._advice()

    @property
    def info(self) -> ErrorInfo:
        """The same error as data."""
        return ErrorInfo(self.type, self._advice(), self.recoverable, self.sqlstate, self.whole)

    def _advice(self) -> str:
        """What went wrong, as a sentence, and what to do next."""
        if not self.hint:
            return self.message
        return f"{self.message}{'' if self.message.endswith(('.', '!', '?')) else '.'} {self.hint}"


class ConfigError(CkptError):
    """The pipeline's declaration cannot work; nothing was sent."""

    type = ErrorType.CONFIG


class MissingConnectionError(ConfigError):
    """A connection is not defined, or its secrets backend did not answer, which Airflow does not tell apart."""

    type = ErrorType.CONFIG_MISSING
    recoverable = True


class DslParseError(ConfigError):
    """An expression of the transform does not parse."""

    type = ErrorType.DSL_PARSE


class InvalidFilterError(ConfigError):
    """``transform.where`` cannot be used: an unknown column, a wrong type, another record than its own."""

    type = ErrorType.INVALID_FILTER


class InvalidTransformError(ConfigError):
    """``transform.select`` or the schema cannot be used."""

    type = ErrorType.INVALID_TRANSFORM


class SinkChangedError(ConfigError):
    """The sink is not as this ledger left it: it lost commits, was made anew, or is another one. Nothing was sent."""


class SourceError(CkptError):
    """The source refused, changed identity, or cannot be read."""

    type = ErrorType.SOURCE


class SinkError(CkptError):
    """The sink refused or cannot be reached; ``sqlstate`` where a database said why."""

    type = ErrorType.SINK


class ReceiptsUnreadableError(SinkError):
    """Receipts that the sink should hold are gone or damaged, so that nothing tells which batches it has received."""


class KafkaConsumerError(SourceError):
    """Kafka's client or a broker said no while a topic was read or planned."""

    type = ErrorType.KAFKA_CONSUMER


class KafkaProducerError(SinkError):
    """Kafka's client or a broker said no while a topic was written."""

    type = ErrorType.KAFKA_PRODUCER


class IoError(CkptError):
    """A file system said no: full, unreadable, gone."""

    type = ErrorType.IO
    recoverable = True


class DeadLetterQueueError(CkptError):
    """A dead letter could not be written; the run halts and the checkpoint stays, so nothing is lost."""

    type = ErrorType.DEAD_LETTER_QUEUE


class StaleEpochError(CkptError):
    """A newer run holds the lease; this one must write nothing more."""

    type = ErrorType.STALE_EPOCH


class FencedError(CkptError):
    """The sink holds a newer epoch's fence; this transaction was refused."""

    type = ErrorType.FENCED


class DeadlineError(CkptError):
    """A wave ran on after the run's time budget and was cancelled; its batches are planned again."""

    type = ErrorType.DEADLINE


class LeaseBusyError(CkptError):
    """Another run holds the pipeline's lease and it has not expired."""

    type = ErrorType.STALE_EPOCH


class LedgerUnavailableError(CkptError):
    """The ledger cannot be opened, is at the wrong revision, or did not answer."""

    type = ErrorType.LEDGER_UNAVAILABLE


class OffsetCommitError(LedgerUnavailableError):
    """A settlement could not be stored in time, as often as it was tried; the checkpoint stays, and nothing is lost."""

    type = ErrorType.OFFSET_COMMIT


class LedgerStateError(CkptError):
    """A transition that the batch's state does not allow: a defect in the caller, refused before it does harm."""

    type = ErrorType.PROCESSING


class EngineError(CkptError):
    """Spark could not be started, or was lost; what it had in hand is unknown until receipts are read."""

    type = ErrorType.PROCESSING
