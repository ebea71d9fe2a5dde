"""Build SQLAlchemy's table objects for statements, with each name quoted in its exact case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sql.columns import Table

if TYPE_CHECKING:
    import sqlalchemy as sa


def table_clause(table: Table, columns: Sequence[str]) -> sa.TableClause:
    """Return SQLAlchemy's object for a table with some of its columns.

    :param table: the table
    :param columns: names of the columns
    """
    import sqlalchemy as sa

    return sa.table(
        sa.quoted_name(table.name, quote=True),
        *(sa.column(sa.quoted_name(name, quote=True)) for name in columns),
        schema=sa.quoted_name(table.schema, quote=True) if table.schema else None,
    )
