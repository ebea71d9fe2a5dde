"""Model of the section ``transform`` of a declaration: decoding, filter, expressions and Python function.

``docs/pipeline.rst`` describes all keys and defaults.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from airflow_provider_ckpt.config.characters import for_message
from airflow_provider_ckpt.config.fields import Section, TextMapping, WholeNumber

_FUNCTION = re.compile(r"task|[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def _delimiter(text: str) -> str:
    if len(text) != 1 or text in '"\r\n\0' or "\ud800" <= text <= "\udfff":
        raise ValueError('must be one character, such as ";" or "\\t", and no quote, line break or NUL')
    return text


class Transform(Section):
    """Transform between source and sink, in Spark SQL.

    :param decode: format of a raw record: ``json`` (one object per record) or ``csv``; None to not decode records
    :param schema_: columns of a record, as Spark DDL (``id bigint, at timestamp``); the YAML key is ``schema``.
        Required with ``decode``; for Parquet files, the columns to read
    :param where: condition that records must meet; other records are counted as filtered. None for all records
    :param select: mapping from output column to expression; None to pass all columns unchanged
    :param delimiter: character that separates the fields of CSV
    :param max_record_bytes: maximum size of a raw record; a larger record is an error of that record. Spark needs about
        ten times this much memory in each lane
    :param python: a user's function as the last step: ``module:function``, or ``task`` if ``@task.ckpt_batch`` defines
        it; None for no such step
    :param returns: the columns that the function returns, as Spark DDL; required with ``python``
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
                raise ValueError(f"{for_message(name)!r} has no name or no expression; write name: expression")
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
            raise ValueError(f"python: {self.python!r} does not name a function; write module:function, or task")
        if bool(self.python) != bool(self.returns):
            raise ValueError("python and returns require each other: returns declares the columns of python's result")
        return self

    @property
    def passes_unchanged(self) -> bool:
        """True if the transform is empty, so that every record passes to the sink unchanged."""
        return not (self.decode or self.where or self.select or self.python)

    @property
    def is_task_function(self) -> bool:
        """True if an Airflow task defines the Python function, so that only this task can run the pipeline."""
        return self.python == "task"
