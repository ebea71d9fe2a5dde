"""Description of the query by which Spark reads a batch of a table through the table's JDBC driver.

:meth:`.Source.locate` makes the description on the planning side, and puts it into ``detail`` of the batch's task, with
which it reaches Spark. The description includes no secrets; URL and password come from the connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_provider_ckpt.connectors.jdbc.column_types import Column, CursorKind
from airflow_provider_ckpt.connectors.jdbc.table import Table

TASK_KEY = "jdbc"
"""Key in :attr:`.BatchTask.detail` under which a task contains the JSON form of its :class:`ReadQuery`."""

NO_ROWS = "1 = 0"
"""SQL condition that is false for every row."""

CURSOR_ALIAS = "ckpt_at"
"""Name under which the query returns the cursor column."""


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """Description of the query by which Spark reads a batch.

    :param query: a subquery for Spark's option ``dbtable``, without the condition ``where``; it names the columns
        ``ckpt_0``, ``ckpt_1`` … in the order of ``columns``, and the cursor ``ckpt_at``, so that names cannot clash
    :param columns: for each column: name, Spark SQL type in the batch, and Spark SQL type that is requested from the
        driver
    :param kind: type of the cursor
    :param table: name of the table, for messages
    :param cursor: name of the cursor, for messages
    :param driver: class name of the driver
    :param guard: statement that each session executes first, which fails if the table was recreated; None if the
        database has no such statement
    :param where: SQL condition for the rows of the batch; the default is false for every row
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
        """Return this object as a JSON-ready dict; :meth:`from_json` is its inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ReadQuery:
        """Restore a description from the output of :meth:`to_json`."""
        return cls(**{**data, "kind": CursorKind(data["kind"])})


def table_query(table: Table) -> ReadQuery:
    """Return the description that all batches of a table share, with a condition that no row fulfils.

    The caller replaces the condition (``where``) for each batch.

    :param table: the table
    """
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
