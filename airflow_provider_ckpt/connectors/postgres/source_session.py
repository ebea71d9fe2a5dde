"""Connection of a postgres source to its database, and the description of its table, for both values of ``mode``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.outputs import Output, WrittenTarget
from airflow_provider_ckpt.connectors.postgres.client import (
    INSUFFICIENT_PRIVILEGE,
    error_info,
    give_back_psycopg,
    require_connection,
    take_or_open_psycopg,
    to_exception,
)
from airflow_provider_ckpt.connectors.postgres.column_types import SPARK_TYPES
from airflow_provider_ckpt.connectors.postgres.connector import PostgresSourceSection
from airflow_provider_ckpt.connectors.postgres.identity import table_identity, tree_identities
from airflow_provider_ckpt.connectors.postgres.row_security import row_security_setting
from airflow_provider_ckpt.connectors.postgres.table import (
    Fetch,
    Table,
    describe_table,
    psycopg_fetch,
    source_columns,
)
from airflow_provider_ckpt.connectors.source_plan import SourcePartition
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType
from airflow_provider_ckpt.core.schema_version import SourceColumn

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_RIGHTS_HINT = "GRANT USAGE on the table's schema and SELECT on the table to the user of the connection."


class SourceSession:
    """Session with the database of a source, from the first query until an error or :meth:`close`.

    Runs of one process pass sessions on (``kept_sessions.py``).

    :param pipeline: ``source.table`` names the table
    :param connection: the Airflow connection of the database
    :param settings: session settings by name
    :param needed: names of the columns that the table must have, in addition to those in ``source.columns``
    """

    def __init__(
        self,
        pipeline: Pipeline,
        connection: Connection | None,
        settings: dict[str, str],
        needed: Collection[str] = (),
    ) -> None:
        source = self._section = PostgresSourceSection.of(pipeline)
        self._pipeline = pipeline.name
        self._name = source.table
        self._wanted = source.columns
        self._needed = needed
        self._connection = require_connection(connection, "source")
        self._settings = settings | row_security_setting(source)
        self._client: Any = None

    def reads(self, output: Output) -> bool:
        """Return whether the source's table is an output of the sink; see :class:`ReadsOutputs`.

        Partitions and children count as the table; relations below a view are not searched.

        :param output: a table, topic or directory to which the sink writes
        """
        if not isinstance(output, WrittenTarget) or output.system != "postgresql":
            return False
        with self._session() as fetch:
            return output.identity in tree_identities(fetch, self._table(fetch).oid)

    def partitions(self) -> Sequence[SourcePartition]:
        """Return the table as the source's only partition; see :meth:`Source.partitions`."""
        with self._session() as fetch:
            table = self._table(fetch)
            return [SourcePartition(table.label, table_identity(fetch, table.oid))]

    def shape(self) -> RecordShape:
        """Return the columns that the pipeline reads, with their Spark types; see :meth:`Source.shape`."""
        with self._session() as fetch:
            return RecordShape(False, self._columns(self._table(fetch)))

    def columns(self) -> Sequence[SourceColumn]:
        """Return the columns that the table has now; see :meth:`DescribesColumns.columns`."""
        with self._session() as fetch:
            return source_columns(self._table(fetch), self._wanted)

    def close(self) -> None:
        """Give the connection back, for other runs of this process, or close it."""
        if self._client is not None:
            give_back_psycopg(self._client, self._connection, self._settings)
            self._client = None

    @contextmanager
    def _session(self) -> Iterator[Fetch]:
        """Yield a function that runs a query and returns its rows; open the connection if it is not open.

        :raises SourceError: if the server reports an error, or the connection is lost; the connection is then closed
        """
        import psycopg2

        if self._client is None:
            application = f"ckpt-plan:{self._pipeline}"
            self._client = take_or_open_psycopg(self._connection, application, ErrorType.SOURCE, self._settings)
        try:
            yield psycopg_fetch(self._client)
        except psycopg2.Error as error:
            lost = self._client.closed != 0
            self._client.close()
            self._client = None
            info = error_info(error, ErrorType.SOURCE, f"planning from {self._name}", lost=lost)
            raise to_exception(info, _RIGHTS_HINT if info.sqlstate == INSUFFICIENT_PRIVILEGE else None) from error

    def _describe(self, fetch: Fetch) -> Table | None:
        """Return the description of the table; None if it does not exist.

        :param fetch: runs a query on the source database and returns its rows
        """
        return describe_table(fetch, self._name)

    def _table(self, fetch: Fetch) -> Table:
        """Return the description of the table.

        :param fetch: runs a query and returns its rows
        :raises ConfigError: if the table does not exist
        """
        table = self._describe(fetch)
        if table is None:
            raise ConfigError(
                f"source table {self._name} does not exist in connection {self._connection.id!r}.",
                pipeline=self._pipeline,
                hint="Check source.table (schema.table, in the database's letter case) and the connection's database.",
            )
        return table

    def _columns(self, table: Table) -> Sequence[tuple[str, str]]:
        """Return the columns that the pipeline reads, with their Spark types.

        :param table: the table
        :raises ConfigError: if the table lacks a column that the pipeline names
        """
        missing = [name for name in (*self._wanted, *self._needed) if name not in table.by_name]
        if missing:
            raise ConfigError(
                f"source table {table.label} has no column {', '.join(missing)}.",
                pipeline=self._pipeline,
                hint=f"Its columns are: {', '.join(table.by_name)}.",
            )
        names = self._wanted or tuple(table.by_name)
        return [(name, SPARK_TYPES.get(table.by_name[name].base_type, "string")) for name in names]
