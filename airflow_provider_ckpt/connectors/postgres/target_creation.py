"""Create a missing target from the source's columns (``sink.create``), or rehearse its creation and roll it back.

The target gets the source's column names in their order. A built-in type is kept, any other type becomes ``text``. Only
the key of an upsert is a constraint: it becomes the primary key, and all other columns accept null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.postgres.client import quote, split_table
from airflow_provider_ckpt.connectors.postgres.column_types import stored_type
from airflow_provider_ckpt.connectors.postgres.durability import with_durable_commit
from airflow_provider_ckpt.connectors.postgres.receipts import CREATION_LOCK
from airflow_provider_ckpt.connectors.postgres.table import Fetch
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.schema_version import SourceColumn

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.postgres.connector import PostgresSinkSection

_CURRENT_SCHEMA = "SELECT pg_catalog.current_schema()::text"
_LOCK = f"SELECT pg_catalog.pg_advisory_xact_lock({CREATION_LOCK:d})"


class TargetCreation:
    """Creator of one pipeline's missing target.

    :param pipeline: the pipeline
    :param section: its section ``sink``
    :ivar columns: function that returns the columns to create; None in a process that only reads the sink
    """

    def __init__(self, pipeline: Pipeline, section: PostgresSinkSection) -> None:
        self._pipeline = pipeline.name
        self._section = section
        self.columns: Callable[[], Sequence[SourceColumn]] | None = None

    def schema(self, fetch: Fetch) -> str:
        """Return the name of the schema in which the target would be created.

        :param fetch: runs a query on the sink's database and returns its rows
        :raises ConfigError: if the table's name has no schema, and the search path has none that exists
        """
        schema = split_table(self._section.table)[0]
        if schema is None:
            [(schema,)] = fetch(_CURRENT_SCHEMA, [])
        if schema is None:
            raise ConfigError(
                f"target table {self._section.table} cannot be created: no schema of the search path exists.",
                pipeline=self._pipeline,
                hint="Write sink.table as schema.table.",
            )
        return schema

    def create(self, fetch: Fetch) -> None:
        """Create the target unless another run has created it meanwhile.

        :param fetch: runs a statement over the sink's connection, in autocommit mode
        :raises ConfigError: if the schema does not exist, or the user may not create tables in it
        """
        statement = self._statement(fetch)
        with self._explained(fetch):
            fetch(with_durable_commit(f"{_LOCK}; {statement}; SELECT 1"), [])

    @contextmanager
    def rehearsed(self, fetch: Fetch) -> Iterator[None]:
        """Create the target in a transaction that is rolled back at the end of the ``with`` block.

        :param fetch: runs a statement over the sink's connection, in autocommit mode
        :raises ConfigError: as :meth:`create` does
        """
        import psycopg2

        statement = self._statement(fetch)
        try:
            with self._explained(fetch):
                fetch(f"BEGIN; {_LOCK}; {statement}; SELECT 1", [])
            yield
        except BaseException:
            with suppress(psycopg2.Error):  # the first error says more, and a session that is lost was rolled back
                fetch("ROLLBACK; SELECT 1", [])
            raise
        fetch("ROLLBACK; SELECT 1", [])

    def _statement(self, fetch: Fetch) -> str:
        """Return the statement that creates the target.

        :param fetch: runs a query on the sink's database and returns its rows
        :raises ConfigError: if no columns were set, or the source lacks a column of ``sink.key``
        """
        section = self._section
        if self.columns is None:
            raise ConfigError(
                f"target table {section.table} does not exist in connection {section.connection!r}.",
                pipeline=self._pipeline,
                hint="The next run creates it (sink.create: true).",
            )
        columns = self.columns()
        missing = [name for name in section.key if name not in {column.name for column in columns}]
        if missing:
            raise ConfigError(
                f"the source has no column {', '.join(missing)}, which sink.key names.",
                pipeline=self._pipeline,
                hint=f"Its columns are: {', '.join(column.name for column in columns)}.",
            )
        parts = [f"{quote(column.name)} {stored_type(fetch, column.type)}" for column in columns]
        parts += [f"PRIMARY KEY ({', '.join(map(quote, section.key))})"] if section.key else []
        name = f"{quote(self.schema(fetch))}.{quote(split_table(section.table)[1])}"
        return f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(parts)})"

    @contextmanager
    def _explained(self, fetch: Fetch) -> Iterator[None]:
        """Convert the server's refusal to create the table into a ConfigError that tells the user the remedy.

        :param fetch: runs a query on the sink's database and returns its rows
        """
        import psycopg2

        schema = self.schema(fetch)
        try:
            yield
        except psycopg2.errors.InsufficientPrivilege as error:
            raise ConfigError(
                f"the user of connection {self._section.connection!r} may not create the target table "
                f"{self._section.table} (sink.create: true).",
                pipeline=self._pipeline,
                hint=f"GRANT USAGE, CREATE ON SCHEMA {quote(schema)} to it, or create the table and leave sink.create "
                "out.",
            ) from error
        except psycopg2.errors.InvalidSchemaName as error:
            raise ConfigError(
                f"target table {self._section.table} cannot be created: schema {schema} does not exist in connection "
                f"{self._section.connection!r}.",
                pipeline=self._pipeline,
                hint=f"CREATE SCHEMA {quote(schema)}, or check sink.table.",
            ) from error
