"""Models of a pipeline's source, transform and sink.

Keys and defaults are those of the tables in the docs. Keys that a type requires or does not support are checked here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from airflow_provider_ckpt.config.characters import for_message
from airflow_provider_ckpt.config.delivery import Section, WholeNumber
from airflow_provider_ckpt.config.durations import Duration


def _values_as_text(values: object) -> object:
    """Convert the numbers and booleans of a mapping to text as it is written in YAML."""
    if not isinstance(values, Mapping):
        return values
    return {key: _value_as_text(value) for key, value in values.items()}


def _value_as_text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) and math.isfinite(value) else value


_FUNCTION = re.compile(r"task|[A-Za-z_][\w.]*:[A-Za-z_]\w*")

TextMapping = Annotated[dict[str, str], BeforeValidator(_values_as_text)]
"""A mapping of texts; numbers and booleans are converted to text."""


def _distinct_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for at, name in enumerate(names):
        if not name.strip():
            raise ValueError("holds an empty name; leave it out")
        if name in names[:at]:
            raise ValueError(f"names {for_message(name)} twice; leave one out")
    return names


ColumnNames = Annotated[tuple[str, ...], AfterValidator(_distinct_names)]
"""Distinct names of columns."""


def _delimiter(text: str) -> str:
    if len(text) != 1 or text in '"\r\n\0' or "\ud800" <= text <= "\udfff":
        raise ValueError('must be one character, such as ";" or "\\t", and no quote, line break or NUL')
    return text


class SourceSection(Section):
    """Source of records.

    :param type: ``files``, ``postgres``, ``kafka`` or ``jdbc``
    :param connection: Airflow connection id
    :param table: ``schema.table`` or ``table``; for jdbc also ``catalog.schema.table`` (postgres, jdbc)
    :param path: a directory or a glob pattern (files)
    :param format: ``jsonl``, ``csv`` or ``parquet``; for text files it must agree with ``transform.decode`` (files)
    :param topic: the topic's name (kafka)
    :param cursor: the column that orders rows and only grows: an integer, a timestamp or a date (postgres, jdbc)
    :param key: the columns that identify a record, if any; they distinguish rows with the same cursor (postgres)
    :param columns: the columns to read; all by default (postgres, jdbc)
    :param start_from: ``earliest``, ``latest``, or a position; the start of the very first run
    :param close_wait: how long planning waits for running transactions to end (postgres), or, as jdbc cannot see them,
        how long a bound must be known before records below it are read (jdbc)
    :param follow_links: whether symbolic links among the files are followed (files)
    :param late_rows: ``refuse`` fails if rows appear, or will appear, below the checkpoint; ``recover`` only warns, for
        users who run ``airflow ckpt recover`` (postgres)
    :param header: whether each file's first line names its columns (csv)
    :param jars: paths of the driver's jars on the worker, from where Spark loads them too (jdbc)
    """

    type: Literal["files", "postgres", "kafka", "jdbc"]
    connection: str | None = None
    table: str | None = None
    path: str | None = None
    format: Literal["jsonl", "csv", "parquet"] | None = None
    topic: str | None = None
    cursor: str | None = None
    key: ColumnNames = ()
    columns: ColumnNames = ()
    start_from: Literal["earliest", "latest"] | WholeNumber = "earliest"
    close_wait: Duration = timedelta(seconds=30)
    follow_links: bool = False
    late_rows: Literal["refuse", "recover"] = "refuse"
    header: bool = True
    jars: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _needs(self) -> Self:
        needs = {
            "files": ("path",),
            "postgres": ("connection", "table", "cursor"),
            "kafka": ("connection", "topic"),
            "jdbc": ("connection", "table", "cursor", "jars"),
        }
        _require_keys(self, needs)
        return self

    @property
    def is_parquet(self) -> bool:
        """Return whether the source is files with typed columns, that is Parquet."""
        return self.type == "files" and self.format == "parquet"

    @property
    def ordered_by_cursor(self) -> bool:
        """Return whether positions are values of a column, so that rows may appear below positions that were read."""
        return self.type in ("postgres", "jdbc")

    @property
    def carried(self) -> bool:
        """Return whether Spark itself reads the source, so that a lane has only the columns that Spark passes on."""
        return self.type == "jdbc"


class Transform(Section):
    """Transform between source and sink, in Spark SQL.

    :param decode: format of a raw record: ``json`` (one object per record) or ``csv``
    :param schema_: columns of a record, as Spark DDL (``id bigint, at timestamp``); the YAML key is ``schema``. For
        Parquet files, the columns to read
    :param where: condition that records must meet; the others are counted as filtered
    :param select: mapping from output column to expression; by default all columns pass unchanged
    :param delimiter: delimiter of csv
    :param max_record_bytes: maximum size of a raw record; larger ones are bad records. Spark needs about ten times this
        much memory in each lane
    :param python: a user's function as the last step: ``module:function``, or ``task`` if ``@task.ckpt_batch`` defines
        it
    :param returns: the columns that the function returns, as Spark DDL
    """

    decode: Literal["json", "csv"] | None = None
    schema_: str | None = Field(default=None, alias="schema")
    where: str | None = None
    select: TextMapping | None = None
    delimiter: Annotated[str, AfterValidator(_delimiter)] = ","
    max_record_bytes: WholeNumber = Field(default=16 << 20, ge=1)
    python: str | None = None
    returns: str | None = None

    @field_validator("schema_", "where", "returns")
    @classmethod
    def _says_something(cls, text: str | None) -> str | None:
        if text is not None and not text.strip():
            raise ValueError("is empty; give it a value, or leave it out")
        return text

    @field_validator("select")
    @classmethod
    def _distinct(cls, select: dict[str, str] | None) -> dict[str, str] | None:
        if select is not None and not select:
            raise ValueError("is empty; leave it out to keep every column as it is")
        by_form: dict[str, str] = {}
        for name, expression in (select or {}).items():
            if not name.strip() or not expression.strip():
                raise ValueError(f"{for_message(name)!r}: write the name of a column, and an expression for it")
            if name.lower() in by_form:
                raise ValueError(
                    f"{for_message(by_form[name.lower()])} and {for_message(name)} differ only in case, "
                    "which Spark and most sinks do not distinguish; rename one"
                )
            by_form[name.lower()] = name
        return select

    @model_validator(mode="after")
    def _needs(self) -> Self:
        if self.decode and not self.schema_:
            raise ValueError(f"decode: {self.decode} needs a schema, such as 'id bigint, at timestamp'")
        if self.python is not None and not _FUNCTION.fullmatch(self.python):
            raise ValueError(f"python: {self.python!r} is no function; write module:function, or task")
        if bool(self.python) != bool(self.returns):
            raise ValueError("python needs returns, the columns that its function gives, and returns needs python")
        return self

    @property
    def passes_unchanged(self) -> bool:
        """Return whether records pass unchanged."""
        return not (self.decode or self.where or self.select or self.python)

    @property
    def of_task(self) -> bool:
        """Return whether the Python function is defined by a task, so that nothing but that task can run it."""
        return self.python == "task"


class SinkSection(Section):
    """Sink of records.

    :param type: ``postgres``, ``delta``, ``iceberg``, ``kafka`` or ``files``
    :param connection: Airflow connection id
    :param table: ``schema.table`` or ``table`` (postgres); ``namespace.table`` (iceberg)
    :param path: the table's directory (delta), or the directory that receives a file for each batch (files)
    :param topic: the topic's name (kafka)
    :param format: format of the files: ``jsonl``, ``csv`` or ``parquet`` (files)
    :param files_may_go: whether readers remove files from the directory, so that a missing file is no loss (files)
    :param mode: ``append``, or ``upsert`` by ``key`` (postgres)
    :param key: the target's key columns, for ``upsert``; for kafka, the columns that become a message's key
    :param rows_may_differ: whether the target may take more or fewer rows than are sent, since a trigger, a rule or a
        policy of it says so (postgres)
    :param may_be_emptied: whether somebody empties the target on purpose, so that rows which are gone are no loss
        (postgres)
    :param schema_evolution: ``refuse`` rows whose columns are not the table's, or ``add_columns`` (delta, iceberg)
    """

    type: Literal["postgres", "delta", "iceberg", "kafka", "files"]
    connection: str | None = None
    table: str | None = None
    path: str | None = None
    topic: str | None = None
    format: Literal["jsonl", "csv", "parquet"] | None = None
    files_may_go: bool = False
    mode: Literal["append", "upsert"] = "append"
    key: ColumnNames = ()
    rows_may_differ: bool = False
    may_be_emptied: bool = False
    schema_evolution: Literal["refuse", "add_columns"] = "refuse"

    @model_validator(mode="after")
    def _needs(self) -> Self:
        needs = {
            "postgres": ("connection", "table"),
            "delta": ("path",),
            "kafka": ("connection", "topic"),
            "files": ("path", "format"),
            "iceberg": ("connection", "table"),
        }
        _require_keys(self, needs)
        if self.type == "iceberg" and not all((self.table or "").partition(".")):
            raise ValueError("the table of an iceberg sink is namespace.table")
        if self.mode == "upsert" and not self.key:
            raise ValueError("mode: upsert needs key, the columns that identify a row")
        if self.key and self.mode == "append" and self.type == "postgres":
            raise ValueError(
                "key is for mode: upsert, and append would double rows; write mode: upsert, or leave key out"
            )
        if self.key and self.mode == "append" and self.type != "kafka":
            raise ValueError(f"key is not supported by the {self.type} sink, which appends rows; leave it out")
        if self.mode == "upsert" and self.type != "postgres":
            raise ValueError(f"mode: upsert is not supported by the {self.type} sink; use append")
        for key, types in (("rows_may_differ", ("postgres",)), ("may_be_emptied", ("postgres", "kafka"))):
            if getattr(self, key) and self.type not in types:
                raise ValueError(f"{key} is not supported by the {self.type} sink; leave it out")
        if self.grows and self.type not in ("delta", "iceberg"):
            raise ValueError(f"schema_evolution: add_columns is not supported by the {self.type} sink; use refuse")
        return self

    @property
    def grows(self) -> bool:
        """Return whether columns that the table lacks are added to it."""
        return self.schema_evolution == "add_columns"


def _require_keys(part: SourceSection | SinkSection, needs: dict[str, tuple[str, ...]]) -> None:
    for key in needs[part.type]:
        if not getattr(part, key):
            raise ValueError(f"type: {part.type} needs {key}")
