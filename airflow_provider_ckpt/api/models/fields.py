"""Base class of the API's models, and the types of their fields: positions, times, error details, links to runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema

from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.ranges import Range

_POSITION_SCHEMA = {
    "type": "string",
    "pattern": "^-?[0-9]+$",
    "description": "A position in a source partition: a signed 64-bit integer, in decimal digits.",
}

Position = Annotated[
    int,
    Field(ge=-(2**63), lt=2**63),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema(_POSITION_SCHEMA),
]
"""Position in a source partition; a string of digits in JSON, because JavaScript rounds numbers above 2^53."""


def _to_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Moment = Annotated[datetime, AfterValidator(_to_utc)]
"""Time in UTC; its text in JSON ends in ``Z``. A time without a zone in a request is taken for UTC."""

BatchName = Annotated[str, Field(min_length=3, max_length=2000)]
"""Name of a batch: ``partition#seq``, or ``partition#seq@generation`` from generation 2 on."""


class ApiModel(BaseModel):
    """Base class of requests and responses: unknown fields are refused, and responses always have all fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_serialization_defaults_required=True)


class Span(ApiModel):
    """A half-open range of positions.

    :param start: first position
    :param end: first position after the range
    """

    start: Position
    end: Position

    @classmethod
    def of(cls, found: Range) -> Span:
        """Return the model of a range of positions.

        :param found: the range
        """
        return cls(start=found.start, end=found.end)


class Counts(ApiModel):
    """Numbers of records, with ``read = delivered + filtered + dead_lettered``.

    :param read: records that were read from the source
    :param delivered: records that were written to the target
    :param filtered: records that the pipeline's transform excluded
    :param dead_lettered: records that became dead letters
    """

    read: int = 0
    delivered: int = 0
    filtered: int = 0
    dead_lettered: int = 0


class RunLink(ApiModel):
    """An Airflow task in a DAG run, to which the page links.

    The ledger stores a task as a name that contains these ids.

    :param dag_id: id of the DAG
    :param run_id: id of the DAG run
    :param task_id: id of the task, or of the task group if its tasks share one lease
    :param map_index: map index of the task; -1 if the task is not mapped
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int


class Failure(ApiModel):
    """Error of a batch or of a dead letter.

    :param type: error type, such as ``Serialization``; its name is stable across versions of the package
    :param message: message of the error; if it was shortened, it ends in an ellipsis
    :param recoverable: whether another attempt may succeed
    :param sqlstate: SQLSTATE code of a database's error; None for other errors
    """

    type: str
    message: str
    recoverable: bool
    sqlstate: str | None

    @classmethod
    def of(cls, error: ErrorInfo, *, limit: int = 2000) -> Failure:
        """Return the model of an error.

        :param error: the error
        :param limit: largest number of characters of its message
        """
        return cls(
            type=error.type.value,
            message=shorten(error.message, limit),
            recoverable=error.recoverable,
            sqlstate=error.sqlstate,
        )


def shorten(text: str, limit: int) -> str:
    """Return a text with at most ``limit`` characters, the last of which is an ellipsis if some were left out."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


class Problem(ApiModel):
    """Problem details of a failed request (RFC 9457), sent as ``application/problem+json``.

    :param type: URN of the kind of problem, such as ``urn:ckpt:problem:LedgerStateError``; ``about:blank`` if the HTTP
        status alone describes it
    :param title: short name of the kind of problem
    :param status: HTTP status
    :param detail: description of the error, with pipeline, batch and position where they apply
    :param hint: advice what to do next; None if there is none
    :param errors: the invalid fields of the request; empty for other problems
    """

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    errors: list[InvalidField] = Field(default_factory=list)


class InvalidField(ApiModel):
    """An invalid field of a request.

    :param field: dotted path of the field, such as ``body.batches.0``
    :param message: explanation why the field is invalid
    """

    field: str
    message: str


PartitionKind = Literal["source", "recovery", "replay", "dlq"]
"""Kind of a partition: ``source``, or the purpose of a side partition.

A side partition sends, beside the stream, missing records (``recovery``), a range that a user has chosen (``replay``)
or dead letters (``dlq``).
"""
