"""Compute the changes that bring a table's columns to those of a schema version: only changes that lose no value.

The functions are the same for all databases; the dialect determines the type of a new column, and refuses changes that
its database cannot make. A :class:`.Column` describes either a column of a table or the values of a source type. A
table's column that can store all values of the source type needs no change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.sql.columns import Column, Kind, Table
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.next_schema_version import StepKind, TargetStep

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.sql.dialect import SqlDialect

_INTEGER_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
_KINDS: Mapping[str, Kind] = {
    "boolean": Kind.BOOLEAN,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "binary": Kind.BINARY,
    "date": Kind.DATE,
    "timestamp": Kind.TIMESTAMP,
    "timestamp_ntz": Kind.DATETIME,
}
"""Kinds of the values of Spark SQL types, without integers, decimals and texts."""

_LENGTH = re.compile(r"(?:character varying|varchar|character|char)\((\d+)\)")
_DECIMAL = re.compile(r"(?:numeric|decimal)(?:\((\d+),\s*(-?\d+)\))?")
_UNLIMITED = 2**30
"""Number of characters or bytes from which a limit counts as none: no value of a source is longer."""

_LONGEST_NUMBER = 80
"""Greatest number of characters of a number or time whose text a column of texts has to store."""

_DOUBLE_INTEGERS, _FLOAT_INTEGERS = 2**53, 2**24
"""Integers up to which a double or a float stores each one exactly."""

_TIMES = (Kind.DATETIME, Kind.TIMESTAMP)
_WIDER_KINDS = frozenset({(Kind.FLOAT, Kind.DOUBLE), *((Kind.DATE, kind) for kind in _TIMES)})


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """Change of one column of a table.

    :param before: the column as it is; None for a new column
    :param after: the column with its new name, type and nullability
    """

    before: Column | None
    after: Column

    @property
    def changes_type(self) -> bool:
        """True if a column that exists gets another type."""
        return self.before is not None and self.before.type_text != self.after.type_text

    @property
    def allows_null(self) -> bool:
        """True if a column that exists loses its NOT NULL."""
        return self.before is not None and self.before.nullable != self.after.nullable

    @property
    def names(self) -> frozenset[str]:
        """The column's name before and after the change."""
        return frozenset({self.after.name, *([] if self.before is None else [self.before.name])})


def needed_changes(
    table: Table, steps: Sequence[TargetStep], dialect: SqlDialect, pipeline: str
) -> Sequence[ColumnChange]:
    """Return the changes that a table still needs; a column that stores all values already is left as it is.

    Several steps for one column are one change.

    :param table: the table as it is
    :param steps: the changes of the target that a schema version requires
    :param dialect: the database's dialect
    :param pipeline: name of the pipeline, for messages
    :raises ConfigError: if the table cannot make a change without loss, or the database cannot make it
    """
    now = {column.name: ColumnChange(column, column) for column in table.columns}
    for step in steps:
        if step.kind is StepKind.RENAME:
            _rename(now, step, table, pipeline)
        elif step.kind is StepKind.ALLOW_NULL:
            if step.name in now and not now[step.name].after.generated:
                now[step.name] = replace(now[step.name], after=replace(now[step.name].after, nullable=True))
        else:
            _store(now, step, table, dialect, pipeline)
    changes = [change for change in now.values() if change.before != change.after]
    for change in changes:
        problem = dialect.column_change_problem(table, change)
        if problem is not None:
            raise ConfigError(f"{problem[0]}. The table was not changed.", pipeline=pipeline, hint=problem[1])
    return changes


def are_made(table: Table, names: Sequence[str], steps: Sequence[TargetStep]) -> bool:
    """Return whether a table has made the changes of a schema version.

    :param table: the table as it is
    :param names: names of the changed columns after the changes, in the table's order
    :param steps: the changes of the target that the schema version requires
    """
    if [column.name for column in table.columns if column.name in names] != list(names):
        return False
    for step in steps:
        column = table.by_name.get(step.name)
        if column is None or step.kind is StepKind.RENAME or step.name not in names:
            continue
        if step.kind is StepKind.ALLOW_NULL and not column.nullable:
            return False
        if step.kind in (StepKind.ADD, StepKind.WIDEN) and not stores(column, source_values(step)):
            return False
    return True


def state_of(table: Table, names: Iterable[str]) -> list[list[Any]]:
    """Return name, type and nullability of those columns of a table that have one of the names, in the table's order.

    :param table: the table
    :param names: the names
    """
    wanted = set(names)
    return [[column.name, column.type_text, column.nullable] for column in table.columns if column.name in wanted]


def names_after(table: Table, changes: Sequence[ColumnChange]) -> list[str]:
    """Return the names that the changed columns of a table have after the changes, in the table's order then.

    :param table: the table as it is before the changes
    :param changes: the changes
    """
    moved = {change.before.name: change.after.name for change in changes if change.before is not None}
    added = [change.after.name for change in changes if change.before is None]
    return [moved[column.name] for column in table.columns if column.name in moved] + added


def source_values(step: TargetStep) -> Column:
    """Return a description of all values of a source's type, in the form of a column that stores exactly these values.

    :param step: a step that adds or widens a column
    """
    spark = step.spark_type.partition("(")[0]
    if spark in _INTEGER_BITS:
        bits = _INTEGER_BITS[spark]
        return Column(step.name, Kind.INTEGER, step.type, low=-(2**bits), high=2**bits - 1)
    if spark in _KINDS:
        return Column(step.name, _KINDS[spark], step.type)
    decimal = _DECIMAL.fullmatch(step.spark_type if spark == "decimal" else step.type)
    if decimal is not None:
        precision, scale = (int(decimal[1]), int(decimal[2])) if decimal[1] else (None, 0)
        return Column(step.name, Kind.DECIMAL, step.type, precision=precision, scale=scale)
    length = _LENGTH.fullmatch(step.type)
    return Column(step.name, Kind.TEXT, step.type, length=int(length[1]) if length else None)


def stores(column: Column, values: Column) -> bool:
    """Return whether a column stores all values that another column can have, without loss.

    :param column: the column
    :param values: the other column, or a description of values by :func:`source_values`
    """
    if column.generated:
        return True
    if column.kind is Kind.TEXT and values.kind is not Kind.BINARY:
        most = _length(values) if values.kind is Kind.TEXT else _LONGEST_NUMBER
        fewest = _characters(column)
        return fewest is None or (most is not None and most <= fewest)
    match values.kind:
        case Kind.INTEGER:
            return _stores_integers(column, values.low, values.high)
        case Kind.DECIMAL:
            return column.kind is Kind.DECIMAL and _stores_digits(column, values)
        case Kind.FLOAT:
            return column.kind in (Kind.FLOAT, Kind.DOUBLE)
        case Kind.BOOLEAN:
            return column.kind in (Kind.BOOLEAN, Kind.INTEGER, Kind.BIT)
        case Kind.BINARY:
            shortest = _length(column)
            longest = _length(values)
            fits = shortest is None or (longest is not None and longest <= shortest)
            return column.kind is Kind.BINARY and not column.fixed and fits
        case Kind.DATE:
            return column.kind in (Kind.DATE, *_TIMES)
        case Kind.DATETIME | Kind.TIMESTAMP:
            return column.kind in _TIMES and column.fraction >= values.fraction
    return column.kind is values.kind


def may_become(column: Column, wider: Column) -> bool:
    """Return whether a column may get the type of another column, which must store all values of the present type.

    :param column: the column
    :param wider: a column of the new type
    """
    related = column.kind is wider.kind or (column.kind, wider.kind) in _WIDER_KINDS
    return related and not column.fixed and stores(wider, column)


def _rename(now: dict[str, ColumnChange], step: TargetStep, table: Table, pipeline: str) -> None:
    old, new = step.name, step.type
    if old not in now:
        return
    if new in now:
        raise ConfigError(
            f"target {table.label} has both {old} and {new}, so that {old} cannot be renamed. The table was not "
            "changed.",
            pipeline=pipeline,
            hint=f"Drop or rename {new} of the target, or write schema.renamed_column: as_new.",
        )
    _refuse_similar_name([name for name in now if name != old], new, table, pipeline)
    change = now.pop(old)
    now[new] = replace(change, after=replace(change.after, name=new))


def _store(now: dict[str, ColumnChange], step: TargetStep, table: Table, dialect: SqlDialect, pipeline: str) -> None:
    """Add to the changes a new column for a source type's values, or a wider type for a column that cannot store them.

    :param now: the changes up to here, by the columns' names after them; it is changed
    :param step: the step
    :param table: the table as it is, for messages
    :param dialect: the database's dialect
    :param pipeline: name of the pipeline, for messages
    :raises ConfigError: if the column's type cannot become one that stores the values
    """
    values = source_values(step)
    if step.name not in now:
        _refuse_similar_name(list(now), step.name, table, pipeline)
        now[step.name] = ColumnChange(None, dialect.column_for(values))
        return
    change = now[step.name]
    if stores(change.after, values):
        return
    wider = dialect.column_for(values)
    if not may_become(change.after, wider):
        raise ConfigError(
            f"column {step.name} of target {table.label} is {change.after.type_text}, which cannot become "
            f"{wider.type_text} without loss, as the source's type {step.type} needs. The table was not changed.",
            pipeline=pipeline,
            hint=f"Change the type of the target's column to {wider.type_text}, then run again.",
        )
    kept = change.after
    after = replace(wider, nullable=kept.nullable, filled=kept.filled, numbered=kept.numbered)
    now[step.name] = replace(change, after=after)


def _refuse_similar_name(names: Sequence[str], name: str, table: Table, pipeline: str) -> None:
    """Raise ConfigError if a name differs from another column's name only in case: databases treat them as equal.

    :param names: names of the other columns
    :param name: the new name
    :param table: the table, for the message
    :param pipeline: name of the pipeline, for the message
    """
    other = next((known for known in names if known.lower() == name.lower()), None)
    if other is not None:
        raise ConfigError(
            f"target {table.label} cannot get the column {name}, since its column {other} differs only in case. The "
            "table was not changed.",
            pipeline=pipeline,
            hint=f"Rename or drop the target's column {other}, then run again.",
        )


def _stores_integers(column: Column, low: int, high: int) -> bool:
    if column.kind is Kind.INTEGER:
        return column.low <= low and column.high >= high
    if column.kind is Kind.DECIMAL:
        whole = len(str(high))
        room = whole if column.precision is None else column.precision - column.scale
        return room >= whole and (column.digits is None or whole <= column.digits)
    limit = {Kind.DOUBLE: _DOUBLE_INTEGERS, Kind.FLOAT: _FLOAT_INTEGERS}.get(column.kind, 0)
    return max(-low, high) <= limit


def _stores_digits(column: Column, values: Column) -> bool:
    if values.precision is None:
        return column.precision is None and column.digits is None
    kept = column.digits is None or values.precision <= column.digits
    if column.precision is None:
        return kept
    whole, wanted = column.precision - column.scale, values.precision - values.scale
    return kept and column.scale >= values.scale and whole >= wanted


def _length(column: Column) -> int | None:
    """Return the greatest number of characters or bytes that a value of a column can have; None if unlimited."""
    return None if column.length is None or column.length >= _UNLIMITED else column.length


def _characters(column: Column) -> int | None:
    """Return the number of characters up to which a column of texts stores each text; None if unlimited.

    The declared length of a ``TEXT`` column of MySQL is in bytes, and a character has up to four bytes.

    :param column: a column of the kind ``TEXT``
    """
    length = _length(column)
    return length if length is None or "text" not in column.type_text.lower() else length // 4
