"""Check once, before anything is sent, that a target table can store rows with the columns that the pipeline sends.

Limits that only some values exceed (a length, a range, a scale, a constraint) are not checked here: only a record with
such a value becomes a dead letter.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from airflow_provider_ckpt.connectors.postgres.column_types import SPARK_TYPES
from airflow_provider_ckpt.connectors.postgres.exact_values import numeric_scale
from airflow_provider_ckpt.connectors.postgres.table import Column, Table
from airflow_provider_ckpt.connectors.target_columns import (
    refuse_losses,
    refuse_required_columns,
    refuse_unknown_columns,
)
from airflow_provider_ckpt.core.errors import ConfigError

HAS_FILLING_TRIGGER = """
SELECT 1 FROM pg_catalog.pg_trigger
WHERE tgrelid = {0}::oid AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype::int & 7 = 7 LIMIT 1
"""
"""Query that returns a row if the table has a BEFORE INSERT row trigger.

Such a trigger may fill columns that the rows do not have.
"""

_NEEDS_CAST_FROM_TEXT = frozenset(
    {
        *("boolrecv", "int2recv", "int4recv", "int8recv", "float4recv", "float8recv"),
        *("date_recv", "timestamp_recv", "timestamptz_recv"),
    }
)
"""Receive functions of types to which text must be cast explicitly, since PostgreSQL has no implicit cast.

Spark has these types as well, so the pipeline can cast there.
"""

_TEXT = ("string", "char", "varchar")
_TEXT_COLUMNS = ("text", "varchar", "bpchar", "citext", "name")
_WHOLE = ("int2", "int4", "int8", "numeric")
_TIMES = ("timestamp", "timestamptz")
_LOSSLESS_COLUMN_TYPES: Mapping[str, Sequence[str]] = {
    "boolean": ("bool",),
    "tinyint": (*_WHOLE, "float4", "float8"),
    "smallint": (*_WHOLE, "float4", "float8"),
    "int": (*_WHOLE, "float8"),
    "bigint": _WHOLE,
    "decimal": ("numeric",),
    "float": ("float4", "float8"),
    "double": ("float8",),
    "binary": ("bytea",),
    "date": ("date", *_TIMES),
    "timestamp": _TIMES,
    "timestamp_ntz": _TIMES,
}
"""Column types, by Spark SQL type, that store every value of that type without loss or refuse it with an error.

Text columns can store all of these Spark types, and are not listed.
"""


def refuse_unsuitable_columns(table: Table, columns: Sequence[tuple[str, str]], *, filled: bool, pipeline: str) -> None:
    """Raise ConfigError if a target cannot store rows with the given columns.

    That is the case if the target lacks one of the columns, requires a column that the rows do not have, or has a
    column that cannot store all values of the type that the rows have.

    :param table: the target
    :param columns: name and Spark SQL type of each column of the rows
    :param filled: whether the target has a trigger that may fill columns that the rows do not have
    :param pipeline: the pipeline's name, for the message
    :raises ConfigError: with the names of the columns and the correction
    """
    known = table.by_name
    names = [name for name, _ in columns]
    refuse_unknown_columns(table.label, names, known, pipeline)
    lacking = [name for name, column in known.items() if name not in names and _is_required(column)]
    if not filled:
        refuse_required_columns(table.label, names, lacking, pipeline)
    texts = [
        name for name, kind in columns if _base_type(kind) in _TEXT and known[name].receive in _NEEDS_CAST_FROM_TEXT
    ]
    if texts:
        kinds = ", ".join(f"{name} {known[name].type_sql}" for name in texts)
        raise ConfigError(
            f"the rows have text for {kinds} of target {table.label}",
            pipeline=pipeline,
            hint="Cast it in transform.select; then only a record whose value cannot be cast becomes a dead letter.",
        )
    losses = [_describe_loss(known[name], kind) for name, kind in columns if not _is_lossless(known[name], kind)]
    refuse_losses(table.label, losses, pipeline)


def _is_lossless(column: Column, kind: str) -> bool:
    """Return whether a column stores every value of a Spark SQL type without loss, or refuses it with an error.

    :param column: the target column
    :param kind: the Spark SQL type
    """
    base = _base_type(kind)
    if column.generated or base == "void" or base in _TEXT:
        return True
    if base not in _LOSSLESS_COLUMN_TYPES:
        return False
    if column.base_type in _TEXT_COLUMNS:
        return True
    if base != "decimal":
        return column.base_type in _LOSSLESS_COLUMN_TYPES[base]
    scale = int([*re.findall(r"\d+", kind)[1:], "0"][0])
    if column.base_type != "numeric":
        return scale == 0 and column.base_type in _WHOLE
    return column.modifier < 0 or numeric_scale(column.modifier) < 0 or scale <= numeric_scale(column.modifier)


def _describe_loss(column: Column, kind: str) -> str:
    """Return the part of an error message about a column that cannot store all values of the rows.

    For example: ``n is bigint in the rows and integer in the target (write n: cast(n as int))``.

    :param column: the target column
    :param kind: Spark SQL type of the column in the rows
    """
    name, base, cast = column.name, _base_type(kind), _cast_for(column)
    if base not in _LOSSLESS_COLUMN_TYPES:
        instead = f"to_json({name})"
    elif cast:
        instead = f"cast({name} as {cast})"
    else:
        instead = f"cast({name} as string), in a form that {column.base_type} accepts"
    return f"{name} is {kind} in the rows and {_type_text(column)} in the target (write {name}: {instead})"


def _base_type(kind: str) -> str:
    return kind.lower().strip().partition("(")[0]


def _cast_for(column: Column) -> str | None:
    """Return the Spark SQL type to which the pipeline can cast values, so that a column stores them without loss.

    None if there is no such type.
    """
    if column.base_type != "numeric":
        return SPARK_TYPES.get(column.base_type)
    if column.modifier < 0:
        return "decimal(38,18)"
    precision, scale = (column.modifier - 4) >> 16 & 0xFFFF, numeric_scale(column.modifier)
    return f"decimal({min(precision, 38)},{scale})" if 0 <= scale <= min(precision, 38) else None


def _type_text(column: Column) -> str:
    if column.base_type != "numeric" or column.modifier < 0:
        return column.type_sql
    return f"numeric({(column.modifier - 4) >> 16 & 0xFFFF},{numeric_scale(column.modifier)})"


def _is_required(column: Column) -> bool:
    return column.not_null and not (column.has_default or column.identity or column.generated)
