"""Read the description of a table of MySQL or MariaDB (columns, keys, engine) from ``information_schema``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.sql.columns import Column, Kind, Table

if TYPE_CHECKING:
    import sqlalchemy as sa

_TABLE = """
SELECT table_schema, table_name, table_type, engine FROM information_schema.tables
WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s
"""
_COLUMNS = """
SELECT column_name, data_type, column_type, is_nullable, column_default, extra, generation_expression,
       character_maximum_length, numeric_precision, numeric_scale, datetime_precision
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_KEYS = """
SELECT index_name, column_name, nullable, sub_part FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s AND non_unique = 0
ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index
"""
_REFERRING = """
SELECT DISTINCT table_schema, table_name FROM information_schema.key_column_usage
WHERE referenced_table_schema = %s AND referenced_table_name = %s ORDER BY 1, 2
"""
_SIZE = "SELECT data_length, table_rows FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
_TRANSACTIONAL = "SELECT transactions FROM information_schema.engines WHERE engine = %s"

_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), Kind.INTEGER),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json"), Kind.TEXT),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), Kind.BINARY),
    **dict.fromkeys(("uuid", "inet4", "inet6"), Kind.OTHER_TEXT),
    "decimal": Kind.DECIMAL,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "date": Kind.DATE,
    "datetime": Kind.DATETIME,
    "timestamp": Kind.TIMESTAMP,
    "time": Kind.TIME,
    "year": Kind.YEAR,
    "bit": Kind.BIT,
    "enum": Kind.ENUM,
    "set": Kind.SET,
}
_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_CHOICE = re.compile(r"'((?:[^']|'')*)'")
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_CONTROL = {"0": "\0", "n": "\n", "r": "\r"}
"""Control characters by the letter that stands for them after a backslash."""


def quote(name: str) -> str:
    """Return an SQL identifier in backticks."""
    return "`" + name.replace("`", "``") + "`"


def find_table(connection: sa.Connection, schema: str | None, name: str) -> Table | None:
    """Return a table or view with its columns and keys; None if it does not exist.

    :param connection: an open connection
    :param schema: the table's database; None for the connection's default
    :param name: the table's name
    """
    found = connection.exec_driver_sql(_TABLE, (schema, name)).all()
    if not found:
        return None
    place, exact, table_type, engine = found[0]
    columns = [_column(*row) for row in connection.exec_driver_sql(_COLUMNS, (place, exact))]
    keys: dict[str, list[str]] = {}
    partial = set()
    for index, column, nullable, prefix in connection.exec_driver_sql(_KEYS, (place, exact)):
        keys.setdefault(index, []).append(str(column))
        if column is None or nullable == "YES" or prefix is not None:
            partial.add(index)
    return Table(
        place,
        exact,
        columns,
        [tuple(key) for index, key in keys.items() if index not in partial],
        [tuple(key) for index, key in keys.items() if index in partial],
        table_type != "BASE TABLE",
        _problem(connection, f"{place}.{exact}", table_type, engine),
    )


def referring_tables(connection: sa.Connection, table: Table) -> list[str]:
    """Return schema and name of each table with a foreign key that refers to a table.

    :param connection: an open connection
    :param table: the table
    """
    return [f"{place}.{name}" for place, name in connection.exec_driver_sql(_REFERRING, (table.schema, table.name))]


def stored_size(connection: sa.Connection, table: Table) -> tuple[int, int] | None:
    """Return the size of a table in bytes and its number of rows, as the server estimates them; None for a view.

    :param connection: an open connection
    :param table: the table
    """
    found = connection.exec_driver_sql(_SIZE, (table.schema, table.name)).first()
    return None if found is None or found[0] is None else (int(found[0]), int(found[1] or 0))


def _unescaped(choice: str) -> str:
    """Return a choice of an enum or a set, which the catalog shows as in SQL: with doubled quotes and with backslashes.

    :param choice: the text between the quotes
    """
    return _ESCAPED.sub(lambda found: _CONTROL.get(found[1], found[1]) if found[1] else "'", choice)


def _problem(connection: sa.Connection, label: str, table_type: str, engine: str | None) -> tuple[str, str] | None:
    if table_type == "SYSTEM VERSIONED":
        return (
            f"target {label} keeps older versions of its rows (system versioning), which this sink does not support",
            "Name a table without system versioning.",
        )
    if table_type != "BASE TABLE":
        return f"target {label} is a {table_type.lower()}, not a table", "Name a table."
    if engine is None or connection.exec_driver_sql(_TRANSACTIONAL, (engine,)).scalar() != "YES":
        return (
            f"target {label} is stored by {engine}, which has no transactions",
            f"ALTER TABLE {label} ENGINE = InnoDB, or name another table.",
        )
    if engine.upper() != "INNODB":
        return (
            f"target {label} is stored by {engine}, whose transactions do not include the receipts in InnoDB",
            f"ALTER TABLE {label} ENGINE = InnoDB, or name another table.",
        )
    return None


def _column(
    name: str, data_type: str, column_type: str, nullable: str, default: Any, extra: str, expression: Any, *sizes: Any
) -> Column:
    characters, precision, scale, fraction = sizes
    extra = (extra or "").lower()
    kind = _KINDS.get(data_type.lower(), Kind.UNSUPPORTED)
    limits: dict[str, Any] = {}
    if kind is Kind.INTEGER:
        bits = _BITS[data_type.lower()]
        unsigned = "unsigned" in column_type.lower()
        limits = (
            {"low": 0, "high": 2**bits - 1} if unsigned else {"low": -(2 ** (bits - 1)), "high": 2 ** (bits - 1) - 1}
        )
    elif kind is Kind.DECIMAL:
        limits = {"precision": int(precision), "scale": int(scale)}
    elif kind in (Kind.TEXT, Kind.BINARY):
        limits = {"length": int(characters) if characters else None, "fixed": data_type.lower() in ("binary", "char")}
    elif kind in (Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME):
        limits = {"fraction": int(fraction or 0)}
    elif kind is Kind.BIT:
        limits = {"length": int(precision)}
    elif kind in (Kind.ENUM, Kind.SET):
        limits = {"choices": tuple(map(_unescaped, _CHOICE.findall(column_type)))}
    has_default = default is not None and str(default).upper() != "NULL"
    return Column(
        name,
        kind,
        column_type,
        nullable == "YES",
        has_default or "auto_increment" in extra,
        "auto_increment" in extra,
        bool(expression) or "generated" in extra.replace("default_generated", ""),
        **limits,
    )
