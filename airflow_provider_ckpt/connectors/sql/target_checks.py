"""Refuse a target, columns or a dialect if rows could be lost or changed on their way to the target."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sql.columns import TEXT_KINDS, Column, Kind, Table
from airflow_provider_ckpt.connectors.sql.database import Database
from airflow_provider_ckpt.connectors.sql.table_clause import table_clause
from airflow_provider_ckpt.connectors.target_columns import (
    refuse_losses,
    refuse_required_columns,
    refuse_unknown_columns,
)
from airflow_provider_ckpt.core.errors import ConfigError, SinkError

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.sql.connector import SqlSinkSection

NO_RIGHT = "42501"
"""SQLSTATE of a statement that the connection's user may not run."""

_RIGHTS_HINT = (
    "The user needs SELECT, INSERT and UPDATE on the target and on the ckpt_ tables beside it; for mode: replace also "
    "DELETE on the target."
)
_WHOLE = frozenset({Kind.INTEGER, Kind.DECIMAL, Kind.BIT, Kind.YEAR})
_NUMBERS = _WHOLE | {Kind.FLOAT, Kind.DOUBLE}
_TIMES = frozenset({Kind.DATETIME, Kind.TIMESTAMP})
_STORED: Mapping[str, frozenset[Kind]] = {
    "boolean": frozenset({Kind.BOOLEAN, Kind.INTEGER, Kind.BIT}),
    "tinyint": _NUMBERS | {Kind.BOOLEAN},
    "smallint": _NUMBERS | {Kind.BOOLEAN},
    "int": _NUMBERS | {Kind.BOOLEAN},
    "bigint": _NUMBERS | {Kind.BOOLEAN},
    "float": frozenset({Kind.FLOAT, Kind.DOUBLE}),
    "double": frozenset({Kind.DOUBLE}),
    "binary": frozenset({Kind.BINARY}),
    "date": frozenset({Kind.DATE}) | _TIMES,
    "timestamp": _TIMES,
    "timestamp_ntz": _TIMES,
    "string": TEXT_KINDS | {Kind.DECIMAL, Kind.BINARY},
    "void": frozenset(Kind) - {Kind.UNSUPPORTED},
}
"""Kinds of columns, by Spark SQL type, that store every value of the type without loss or refuse it with an error."""


def refuse_target(database: Database, table: Table, key: Sequence[str], pipeline: str) -> None:
    """Raise ConfigError if a table cannot be a target, or its rows cannot be replaced by the key of an upsert.

    Rows can be replaced if a unique key of the table has exactly the columns of the upsert's key.

    :param database: the sink's database
    :param table: the target
    :param key: key columns of an upsert; empty for append
    :param pipeline: the pipeline's name, for the message
    """
    problem = table.problem
    if key:
        unknown = [name for name in key if name not in table.by_name]
        if unknown:
            raise ConfigError(
                f"target {table.label} has no column {', '.join(unknown)}, which sink.key names.",
                pipeline=pipeline,
                hint=f"Its columns are: {', '.join(table.by_name)}.",
            )
        if not any(set(unique) == set(key) for unique in table.unique):
            problem = problem or (
                f"target {table.label} has no unique key of the columns {', '.join(key)} that cannot be NULL",
                "Create one, or name the columns of its primary key in sink.key.",
            )
        problem = problem or database.dialect.key_problem(table, key)
    if problem:
        raise ConfigError(f"{problem[0]}.", pipeline=pipeline, hint=problem[1])


def refuse_untested(database: Database, section: SqlSinkSection, delivery: str, pipeline: str) -> None:
    """Raise ConfigError for ``delivery: exactly_once`` with a dialect that has not passed the conformance suite.

    :param database: the sink's database
    :param section: the section ``sink``
    :param delivery: the delivery guarantee
    :param pipeline: the pipeline's name, for the message
    """
    dialect = database.dialect
    if delivery == "exactly_once" and not dialect.tested and not section.untested_dialect:
        raise ConfigError(
            f"nobody has tested exactly-once delivery to {dialect.label} databases.",
            pipeline=pipeline,
            hint="Run the conformance suite on it, then write sink.untested_dialect: true; or use at_least_once.",
        )


def refuse_columns(table: Table, columns: Sequence[tuple[str, str]], pipeline: str) -> None:
    """Raise ConfigError if a target cannot store rows with the given columns.

    A target is refused if it lacks one of the columns, requires a value for a column that the rows do not have, or has
    a column whose type cannot store all values.

    :param table: the target
    :param columns: name and Spark SQL type of each column of the rows
    :param pipeline: the pipeline's name, for the message
    """
    known, names = table.by_name, [name for name, _ in columns]
    refuse_unknown_columns(table.label, names, known, pipeline)
    lacking = [
        column.name
        for column in table.columns
        if column.name not in names and not (column.nullable or column.filled or column.generated)
    ]
    refuse_required_columns(table.label, names, lacking, pipeline)
    losses = [
        f"{name} is {kind} in the rows and {known[name].type_text} in the target"
        for name, kind in columns
        if not _is_stored(known[name], kind)
    ]
    refuse_losses(table.label, losses, pipeline)


def refuse_unwritable(database: Database, table: Table, section: SqlSinkSection, pipeline: str) -> None:
    """Raise ConfigError if the connection's user may not insert rows into a target.

    The same applies to updates for an upsert, and to deletions for a sink that replaces all rows.

    :param database: the sink's database
    :param table: the target
    :param section: the section ``sink``
    :param pipeline: the pipeline's name, for the message
    :raises ConfigError: with the server's message
    """
    import sqlalchemy as sa

    columns = [column.name for column in table.columns if not column.generated]
    target = table_clause(table, columns)
    try:
        with database.session(f"checking the rights on {section.table}", writes=True) as connection:
            none = sa.select(*target.c).where(sa.false())
            connection.execute(target.insert().from_select(list(target.c), none))
            if section.upserts:
                column = target.c[columns[0]]
                connection.execute(target.update().where(sa.false()).values({column: column}))
            if section.replaces:
                connection.execute(target.delete().where(sa.false()))
    except SinkError as error:
        if error.sqlstate != NO_RIGHT:
            raise
        raise ConfigError(error.message, pipeline=pipeline, hint=_RIGHTS_HINT) from error


def _is_stored(column: Column, kind: str) -> bool:
    base = re.split(r"[(<]", kind.lower().strip())[0]
    base = {"char": "string", "varchar": "string"}.get(base, base)
    if column.generated:
        return True
    if column.kind is Kind.TEXT:
        return base in _STORED or base == "decimal"
    if base == "decimal":
        scale = int([*re.findall(r"\d+", kind)[1:], "0"][0])
        if column.kind is Kind.DECIMAL:
            return column.precision is None or scale <= column.scale
        return scale == 0 and column.kind in _WHOLE
    return column.kind in _STORED.get(base, frozenset())
