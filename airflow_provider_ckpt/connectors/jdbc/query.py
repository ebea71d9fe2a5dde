"""What Spark needs to read a batch of a table through its driver: made where the batch is located, carried by its task.

It holds no secret; URL and password come from the connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from airflow_provider_ckpt.connectors.jdbc.column_types import Column, CursorKind
from airflow_provider_ckpt.connectors.jdbc.table import Table

DETAIL = "jdbc"
"""Key of a task's detail."""

NOTHING = "1 = 0"
"""Condition that no row meets."""

POSITION = "ckpt_at"
"""What the cursor is called in the query."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How Spark reads a batch.

    :param query: a table expression: column ``i`` is ``ckpt_i`` and the cursor ``ckpt_at``, so no name can be mistaken
    :param columns: name, Spark SQL type, and the type by which the driver is asked
    :param kind: of the cursor
    :param table: the table's name for a person
    :param cursor: the cursor's name for a person
    :param driver: the driver's class
    :param guard: a statement for each session, which fails if the table is another one
    :param where: which rows
    """

    query: str
    columns: Sequence[Sequence[str]]
    kind: CursorKind
    table: str
    cursor: str
    driver: str
    guard: str | None
    where: str = field(default=NOTHING)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; :meth:`from_json` is its inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Recipe:
        """The recipe that :meth:`to_json` wrote."""
        return cls(**{**data, "kind": CursorKind(data["kind"])})


def of_table(table: Table) -> Recipe:
    """What is the same for all batches of a table."""
    dialect = table.dialect
    named = [*((f"ckpt_{at}", dialect.value(column)) for at, column in enumerate(table.wanted)), (POSITION, table.at)]
    selected = ", ".join(f"{value} AS {dialect.quote(name)}" for name, value in named)
    return Recipe(
        f"(SELECT {selected} FROM {table.sql}) ckpt_rows",
        [_column(column) for column in table.wanted],
        table.kind,
        table.label,
        table.cursor.name,
        table.database.driver,
        dialect.guard(table.sql, table.identity()),
    )


def _column(column: Column) -> tuple[str, str, str]:
    return column.name, column.spark, column.read_as
