"""Describe how Spark reads a batch of a table through its driver.

The description is created when the batch is located, and sent with its task. It includes no secrets; URL and password
come from the connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_provider_ckpt.connectors.jdbc.column_types import Column, CursorKind
from airflow_provider_ckpt.connectors.jdbc.table import Table

TASK_KEY = "jdbc"
"""Key of a task's detail."""

NO_ROWS = "1 = 0"
"""Condition that no row meets."""

CURSOR_ALIAS = "ckpt_at"
"""Name of the cursor in the query."""


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """Description of how Spark reads a batch.

    :param query: a table expression: column ``i`` is ``ckpt_i`` and the cursor ``ckpt_at``, so that names cannot clash
    :param columns: name, Spark SQL type, and the type that is requested from the driver
    :param kind: type of the cursor
    :param table: name of the table, for messages
    :param cursor: name of the cursor, for messages
    :param driver: class name of the driver
    :param guard: a statement for each session, which fails if the table was replaced
    :param where: condition for the rows of the batch
    """

    query: str
    columns: Sequence[Sequence[str]]
    kind: CursorKind
    table: str
    cursor: str
    driver: str
    guard: str | None
    where: str = field(default=NO_ROWS)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict; :meth:`from_json` is its inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReadQuery:
        """Return the description that :meth:`to_json` wrote."""
        return cls(**{**data, "kind": CursorKind(data["kind"])})


def table_query(table: Table) -> ReadQuery:
    """Return the description that all batches of a table share, without a condition for rows."""
    dialect = table.dialect
    named = [
        *((f"ckpt_{at}", dialect.value(column)) for at, column in enumerate(table.columns)),
        (CURSOR_ALIAS, table.cursor_sql),
    ]
    selected = ", ".join(f"{value} AS {dialect.quote(name)}" for name, value in named)
    return ReadQuery(
        f"(SELECT {selected} FROM {table.sql}) ckpt_rows",
        [_column(column) for column in table.columns],
        table.kind,
        table.label,
        table.cursor.name,
        table.database.driver,
        dialect.guard(table.sql, table.identity()),
    )


def _column(column: Column) -> tuple[str, str, str]:
    return column.name, column.spark, column.read_as
