"""An SQL database as the source of many tables: its catalog, and the search for tables with new rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.database_protocol import TableProgress
from airflow_provider_ckpt.connectors.sql.closed_bound import candidate
from airflow_provider_ckpt.connectors.sql.connector import SqlSourceSection
from airflow_provider_ckpt.connectors.sql.database import Database
from airflow_provider_ckpt.connectors.sql.source_table import look_up, look_up_whole
from airflow_provider_ckpt.core.errors import CkptError, ConfigError
from airflow_provider_ckpt.core.ranges import START

if TYPE_CHECKING:
    import sqlalchemy as sa

    from airflow_provider_ckpt.config.database.catalog import Catalog

_COUNTED = 10_000
"""Number of rows at which the counting of a table's new rows stops."""


class SqlSourceDatabase:
    """A database of many tables; see :class:`~airflow_provider_ckpt.connectors.database_protocol.SourceDatabase`.

    Each table is examined by a few queries of the catalog and by the ends of its cursor's index.

    :param connection: the Airflow connection of the database
    """

    def __init__(self, connection: Connection | None) -> None:
        self._database = Database(connection, "source")

    def read_catalog(self) -> Catalog:
        """Return all tables with their columns and primary keys; see :meth:`.SourceDatabase.read_catalog`.

        :raises ConfigError: if the dialect cannot list the tables
        """
        with self._database.session("reading the catalog") as connection:
            catalog = self._database.dialect.catalog(connection)
        if catalog is None:
            raise ConfigError(
                f"{self._database.dialect.label} cannot be the source of many tables.",
                hint="Write a file of its own for each pipeline.",
            )
        return catalog

    def count_new_records(self, tables: Sequence[TableProgress]) -> Mapping[str, int]:
        """Return the approximate number of new rows of each table that may have any, by the name of its pipeline.

        See :meth:`.SourceDatabase.count_new_records`.
        """
        if not tables:
            return {}
        with self._database.session("looking for new rows") as connection:
            server = self._database.dialect.server_identity(connection)
        found: dict[str, int] = {}
        for table in tables:
            try:
                with self._database.session(f"looking for new rows of {table.pipeline.source.place}") as connection:
                    count = self._new_rows(connection, table, server)
            except CkptError as error:
                if error.is_outage:
                    raise
                count = 0  # the table's own run reports the error
            if count is not None:
                found[table.pipeline.name] = count
        return found

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def _new_rows(self, connection: sa.Connection, progress: TableProgress, server: str) -> int | None:
        """Return the approximate number of rows that the next run of a table reads; None if it would find nothing.

        :param connection: an open connection
        :param progress: the table's pipeline and the position up to which it has planned
        :param server: identity of the server
        :raises CkptError: if the next planning would refuse the table
        """
        section = SqlSourceSection.of(progress.pipeline)
        if section.is_full:
            return look_up_whole(self._database, connection, section).count_up_to(connection, _COUNTED)
        table = look_up(self._database, connection, section)
        table.refuse_bad_cursors(connection)
        end = START if progress.planned_end is None else progress.planned_end
        noted = candidate(table, table.greatest(connection))
        if progress.planned_end is not None and progress.identity == f"{server}/{table.label}":
            following = self._database.dialect.next_number(connection, table.table, table.cursor)
            is_late = following is not None and START != end > following and section.late_rows == "refuse"
            if (noted is None or noted <= end) and not is_late:
                return None
        return 0 if noted is None else table.count(connection, end, noted, _COUNTED)
