"""Define the part of a dialect that changes columns of a table; its answers suit a database that cannot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sql.columns import Column, Table

if TYPE_CHECKING:
    import sqlalchemy as sa

    from airflow_provider_ckpt.connectors.sql.column_changes import ColumnChange


class ColumnDdl:
    """Changes of columns in one kind of database; a base class of :class:`.SqlDialect`.

    :cvar label: name of the product, for messages
    :cvar transactional_ddl: whether a transaction can create and drop tables, and undo it; else such a statement
        commits the open transaction
    :cvar changes_columns: whether a sink can change the columns of its target (:meth:`alter_columns`)
    """

    label: str
    transactional_ddl = False
    changes_columns = False

    def column_for(self, values: Column) -> Column:
        """Return the column that a table gets for values of a source; its ``type_text`` is the type in SQL.

        :param values: a description of the values, see :func:`.column_changes.source_values`
        :raises NotImplementedError: in this base class
        """
        raise NotImplementedError(self.label)

    def column_change_problem(self, table: Table, change: ColumnChange) -> tuple[str, str] | None:
        """Return why the database cannot make a change of a column, and the remedy; None if it can.

        :param table: the table
        :param change: the change
        """
        del table, change
        return None

    def alter_columns(self, connection: sa.Connection, table: Table, changes: Sequence[ColumnChange]) -> None:
        """Change columns of a table, all or none: in the open transaction, or else by one statement.

        :param connection: an open connection; with :attr:`transactional_ddl` the changes are part of its transaction
        :param table: the table
        :param changes: the changes, at least one
        :raises NotImplementedError: in this base class
        """
        raise NotImplementedError(self.label)

    def lock_columns(self, connection: sa.Connection, mark: str) -> bool:  # noqa: ARG002
        """Take the lock under which the columns of a pipeline's target are changed; wait up to 2 s for it.

        The session has the lock until it ends, and as long as the server executes a statement of it, even if the
        client is gone. A dialect with :attr:`transactional_ddl` needs no such lock.

        :param connection: the session
        :param mark: text that identifies the pipeline, at most 40 characters
        :return: False if another session has the lock
        """
        return True

    def end_column_change(self, connection: sa.Connection, mark: str) -> None:
        """End the session that has the lock of :meth:`lock_columns`; do nothing if there is none.

        :param connection: session that ends the other
        :param mark: text that :meth:`lock_columns` was given
        """
