"""Choose the action for an error by its type and SQLSTATE: retry, dead-letter, skip or halt (semantics, section 7)."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_ckpt.core.errors import ErrorAction, ErrorInfo, ErrorType

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
_DROPS = (ErrorAction.DEAD_LETTER, ErrorAction.SKIP_AND_LOG)
"""Actions after which the record is not delivered and the run goes on."""


def default_action(error: ErrorInfo) -> ErrorAction:
    """Return the action for an error that the pipeline's ``error_policy`` does not override (semantics, section 7).

    An error that no rule names halts the run, so that no record is dropped.
    """
    if error.type in _ALWAYS_RETRIED or (error.type in _RETRIED_WHEN_RECOVERABLE and error.recoverable):
        return ErrorAction.RETRY
    if error.type in _DEAD_LETTERED:
        return ErrorAction.DEAD_LETTER
    if error.type is ErrorType.SINK and error.sqlstate is not None and error.sqlstate[:2] in ("22", "23"):
        return ErrorAction.DEAD_LETTER
    return ErrorAction.HALT


def always_halts(kind: ErrorType) -> bool:
    """Return whether every error of a type halts the run by default, recoverable or not."""
    return kind not in _ALWAYS_RETRIED | _RETRIED_WHEN_RECOVERABLE | _DEAD_LETTERED


def refuse_dropping_overrides(overrides: Mapping[ErrorType, ErrorAction]) -> None:
    """Refuse an ``error_policy`` that would drop records after an error that must halt the run (semantics, section 7).

    :param overrides: actions that replace the default ones, by error type
    :raises ValueError: if an override would skip or dead-letter records after an error that always halts the run
    """
    for kind, action in overrides.items():
        if action in _DROPS and always_halts(kind):
            raise ValueError(
                f"error_policy.{kind}: {action} would drop records after an error that always halts the run; "
                "write halt or retry, or leave it out"
            )


def choose_action(error: ErrorInfo, overrides: Mapping[ErrorType, ErrorAction], *, dead_letters: bool) -> ErrorAction:
    """Return the action for an error: the override for its type, else the default action.

    An override never turns a halt into a skip or a dead letter. If dead letters are disabled, an error whose record
    would become a dead letter halts the run instead.

    :param error: the error
    :param overrides: actions that replace the default ones, by error type (``error_policy``)
    :param dead_letters: whether dead letters are enabled
    """
    default = default_action(error)
    chosen = overrides.get(error.type, default)
    if default is ErrorAction.HALT and chosen in _DROPS:
        chosen = ErrorAction.HALT
    if chosen is ErrorAction.DEAD_LETTER and not dead_letters:
        return ErrorAction.HALT
    return chosen
