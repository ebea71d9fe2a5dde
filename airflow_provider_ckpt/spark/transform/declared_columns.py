"""Refuse columns that cannot be stored: names that differ only in case, types without values, reserved names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.errors import InvalidFilterError, InvalidTransformError
from airflow_provider_ckpt.spark import columns as c

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_RESERVED = frozenset({*c.CONTROL, POSITION, c.FLAT_JSON, c.CORRUPT, c.VERDICT, c.ORIGINAL})
_RESERVED_PATTERN = re.compile(r"__(?:text|parsed|fault|decoded|wanted|judged|unused|raw_.*|tried_\d+)", re.IGNORECASE)
_VOID = "void"
_INTERVAL = re.compile(r"interval\b", re.IGNORECASE)


def check_schema(schema: StructType, pipeline: str, key: str) -> None:
    """Refuse a declared schema with a column of a type or name that this package does not allow, though Spark does.

    :param schema: the schema, parsed from Spark DDL
    :param pipeline: name of the pipeline, for the error message
    :param key: configuration key of the schema, for the error message
    :raises ConfigError: if a column's name or type is not allowed; the message names the key and the column
    """
    problem = _problem(schema)
    if problem:
        raise InvalidTransformError(
            f"{key}: {problem}", pipeline=pipeline, hint="Correct the schema; it is Spark DDL, such as: id bigint."
        )


def check_outputs(schema: StructType, pipeline: str, key: str) -> None:
    """Refuse output columns of a transform that no sink can store.

    :param schema: schema of the output columns
    :param pipeline: name of the pipeline, for the error message
    :param key: configuration key of the expressions without the column's name, such as ``transform.select``
    :raises ConfigError: if a column's name or type is not allowed; the message names the key and the column
    """
    own = _reserved_name_problem(schema.names)
    if own:
        raise InvalidTransformError(f"{key}: {own}", pipeline=pipeline, hint="Rename the column.")
    for field in schema.fields:
        problem = _problem(field.dataType)
        if problem:
            raise InvalidTransformError(
                f"{key}.{field.name} gives {field.dataType.simpleString()}: {problem}",
                pipeline=pipeline,
                hint="Cast it to a type that holds values, such as CAST(... AS string).",
            )


def check_where(kind: DataType, pipeline: str, where: str) -> None:
    """Refuse a filter ``transform.where`` whose value is not a boolean.

    :param kind: Spark type of the filter's value
    :param pipeline: name of the pipeline, for the error message
    :param where: SQL text of the filter, for the error message
    :raises ConfigError: if the type is not boolean
    """
    from pyspark.sql import types as t

    if not isinstance(kind, t.BooleanType):
        raise InvalidFilterError(
            f"transform.where is of type {kind.simpleString()} instead of boolean: {where}",
            pipeline=pipeline,
            hint="Compare the value with something, or CAST it AS boolean.",
        )


def _problem(kind: DataType, path: Sequence[str] = ()) -> str | None:
    """Return text for an error message that tells why columns of a type are not allowed; None if they are allowed.

    Not allowed are void, intervals, and structs that are empty or have names that differ only in case. An example of
    the result is ``address.since is an interval, which no sink can store``.

    :param kind: Spark type of a column, or of a part of it
    :param path: names that lead from the column to this part, such as ``("address", "since")``; empty for the column
        itself
    """
    from pyspark.sql import types as t

    where = f"{'.'.join(path)} " if path else ""
    if isinstance(kind, t.StructType):
        if not kind.fields:
            return f"{where}has no columns"
        return _names_problem(kind.names, where) or next(
            filter(None, (_problem(field.dataType, (*path, field.name)) for field in kind.fields)), None
        )
    if isinstance(kind, t.ArrayType):
        return _problem(kind.elementType, (*path, "element"))
    if isinstance(kind, t.MapType):
        return _problem(kind.keyType, (*path, "key")) or _problem(kind.valueType, (*path, "value"))
    if kind.simpleString() == _VOID:
        return f"{where}is void, a type whose only value is null"
    return f"{where}is an interval, which no sink can store" if _INTERVAL.match(kind.simpleString()) else None


def _names_problem(names: Iterable[str], where: str) -> str | None:
    """Return text for an error message if names are empty, reserved, or differ only in case; else None.

    For example: ``Id and id differ only in case, which Spark ignores``.

    :param names: names of the columns
    :param where: name of the struct that has the columns, with a space at its end; empty for the columns of the
        pipeline, the only ones for which reserved names are refused
    """
    by_form: dict[str, str] = {}
    for name in names:
        if not name.strip():
            return f"{where}has a column without a name"
        form = name.lower()
        if form in by_form:
            both = f"{by_form[form]} and {name} differ only in case, which Spark ignores"
            return f"{where}has two columns {name}" if by_form[form] == name else f"{where}{both}"
        by_form[form] = name
    return None if where else _reserved_name_problem(names)


def _reserved_name_problem(names: Iterable[str]) -> str | None:
    """Return text for an error message about the first reserved name; None if no name is reserved.

    For example: ``__batch is a reserved name``.
    """
    own = next((name for name in names if name.lower() in _RESERVED or _RESERVED_PATTERN.fullmatch(name)), None)
    return f"{own} is a reserved name" if own else None
