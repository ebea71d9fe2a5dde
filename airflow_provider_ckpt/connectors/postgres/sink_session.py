"""Connection of the postgres sink to its database, and the description of the target table there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.postgres.client import (
    INSUFFICIENT_PRIVILEGE,
    error_info,
    give_back_psycopg,
    require_connection,
    take_or_open_psycopg,
    to_exception,
)
from airflow_provider_ckpt.connectors.postgres.connector import PostgresSinkSection
from airflow_provider_ckpt.connectors.postgres.receipts import BookkeepingTables
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table, describe_table, psycopg_fetch
from airflow_provider_ckpt.connectors.postgres.target_creation import TargetCreation
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_RIGHTS_HINT = (
    "`airflow ckpt db roles sink` prints what the role needs; name each pipeline that runs as that role by --pipeline."
)


class SinkSession:
    """Session with the target's database, from the first statement until an error or :meth:`close`.

    Runs of one process pass sessions on (``kept_sessions.py``).

    :param pipeline: ``sink.table`` names the target
    :param connection: the Airflow connection of the database
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        sink = PostgresSinkSection.of(pipeline)
        self._declared = pipeline
        self._pipeline = pipeline.name
        self._name = sink.table
        self._upsert = sink.key if sink.upserts else ()
        self._connection = require_connection(connection, "sink")
        self._context = context
        self._client: Any = None
        self._described: Table | None = None
        self._creation = TargetCreation(pipeline, sink) if sink.create else None

    def close(self) -> None:
        """Give the connection back, for other runs of this process, or close it."""
        if self._client is not None:
            give_back_psycopg(self._client, self._connection)
            self._client = None

    @contextmanager
    def _session(self, operation: str) -> Iterator[Fetch]:
        """Yield a function that runs a statement and returns its rows; open the connection if it is not open.

        :param operation: phrase for the error message, such as ``reading receipts``
        :raises SinkError: if the server reports an error, or the connection is lost; the connection is then closed
        """
        import psycopg2

        if self._client is None:
            self._client = take_or_open_psycopg(self._connection, f"ckpt-sink:{self._pipeline}", ErrorType.SINK)
        try:
            yield psycopg_fetch(self._client)
        except psycopg2.Error as error:
            lost = self._client.closed != 0
            self._client.close()
            self._client = None
            info = error_info(error, ErrorType.SINK, f"{operation} of {self._name}", lost=lost)
            raise to_exception(info, _RIGHTS_HINT if info.sqlstate == INSUFFICIENT_PRIVILEGE else None) from error

    @contextmanager
    def _target_to_write(self, fetch: Fetch) -> Iterator[Table]:
        """Yield a description of the target, read from the database now.

        A target that a run would create is created in a transaction that is rolled back at the end of the ``with``
        block.

        :param fetch: runs a statement and returns its rows
        :raises ConfigError: if the target does not exist and no run creates it
        """
        self._described = None
        if self._find_target(fetch) is None and self._creation is not None:
            with self._creation.rehearsed(fetch):
                table = describe_table(fetch, self._name)
                assert table is not None
                yield table
        else:
            yield self._target(fetch)

    def _bookkeeping(self, fetch: Fetch) -> BookkeepingTables:
        """Return the bookkeeping tables, which are in the target's schema, even if the target does not exist yet.

        :param fetch: runs a query on the sink's database and returns its rows
        """
        if self._creation is not None and self._find_target(fetch) is None:
            return BookkeepingTables(self._creation.schema(fetch))
        return BookkeepingTables(self._target(fetch).schema)

    def _target(self, fetch: Fetch) -> Table:
        """Return the description of the target.

        :param fetch: runs a query on the sink's database and returns its rows
        :raises ConfigError: if the target does not exist
        """
        table = self._find_target(fetch)
        if table is None:
            hint = "Create it, write sink.create: true, or check sink.table (schema.table, in the letter case it has)."
            raise ConfigError(
                f"target table {self._name} does not exist in connection {self._connection.id!r}.",
                pipeline=self._pipeline,
                hint="A run creates it (sink.create: true)." if self._creation else hint,
            )
        return table

    def _find_target(self, fetch: Fetch) -> Table | None:
        """Return the description of the target; None if it does not exist.

        :param fetch: runs a query on the sink's database and returns its rows
        :raises ConfigError: if the name is that of a view or another relation that is not a table
        """
        if self._described is not None:
            return self._described
        table = describe_table(fetch, self._name)
        if table is None:
            return None
        if table.kind not in ("r", "p"):
            raise ConfigError(
                f"target {table.label} is not a table (relkind {table.kind}).",
                pipeline=self._pipeline,
                hint="Name a table or a partitioned table.",
            )
        self._described = table
        return table
