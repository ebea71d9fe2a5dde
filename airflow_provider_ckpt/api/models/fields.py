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
    "description": "A position of the source, a signed 64-bit integer in decimal digits.",
}

Position = Annotated[
    int,
    Field(ge=-(2**63), lt=2**63),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema(_POSITION_SCHEMA),
]
"""Position in a source partition, in JSON a string of digits, because JavaScript rounds numbers above 2^53."""


def _to_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Moment = Annotated[datetime, AfterValidator(_to_utc)]
"""Time in UTC; in JSON it ends in ``Z``. In a request, a time without a zone is UTC."""

BatchName = Annotated[str, Field(min_length=3, max_length=2000)]
"""Name of a batch: ``partition#seq``, or ``partition#seq@generation`` from generation 2 on."""


class ApiModel(BaseModel):
    """Base class of requests and responses: unknown fields are refused, and responses always have all fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_serialization_defaults_required=True)


class Span(ApiModel):
    """Half-open range of positions."""

    start: Position
    end: Position

    @classmethod
    def of(cls, found: Range) -> Span:
        """Return the model of a range of positions.

        :param found: the range
        """
        return cls(start=found.start, end=found.end)


class Counts(ApiModel):
    """Numbers of records: read = delivered + filtered + dead_lettered."""

    read: int = 0
    delivered: int = 0
    filtered: int = 0
    dead_lettered: int = 0


class RunLink(ApiModel):
    """Task of a DAG run, as far as the name of a lease's owner or of an attempt tells it.

    :param dag_id: id of the DAG
    :param run_id: id of the DAG run
    :param task_id: id of the task, or of the task group whose tasks share the lease
    :param map_index: index of a mapped task; -1 without one
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int


class Failure(ApiModel):
    """Error of a batch or of a dead letter.

    :param type: stable error type
    :param message: text of the error, possibly shortened
    :param recoverable: whether a retry can help
    :param sqlstate: SQLSTATE; None if no database reported one
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
    """Description of an error in the form of RFC 9457, sent as ``application/problem+json``.

    :param type: URN of the kind of problem, such as ``urn:ckpt:problem:LedgerStateError``; ``about:blank`` if the
        status says it all
    :param title: short text of the kind of problem
    :param status: HTTP status
    :param detail: what went wrong, with pipeline, batch and position where they apply
    :param hint: what to do next; None if that is not known
    :param errors: for an invalid request, which of its fields are invalid and why; else empty
    """

    type: str
    title: str
    status: int
    detail: str
    hint: str | None = None
    errors: list[InvalidField] = Field(default_factory=list)


class InvalidField(ApiModel):
    """Field of a request that is invalid, as a dotted path, with the reason."""

    field: str
    message: str


PartitionKind = Literal["source", "recovery", "replay", "dlq"]
"""Kind of a partition. ``source``: a partition of the source. The others are side partitions, which send records again:
missing records (``recovery``), a range (``replay``) or dead letters (``dlq``)."""
