"""Store dead letters in a PostgreSQL table for any sink; pipelines and ledgers may share one table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.batch_content import DeadLetter, StoredDeadLetter
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.outputs import Output, WrittenTarget
from airflow_provider_ckpt.connectors.postgres.client import (
    error_info,
    open_psycopg,
    quote,
    require_connection,
    split_table,
    to_exception,
)
from airflow_provider_ckpt.connectors.postgres.dead_letters import headers_json, to_dead_letter, to_storable_text
from airflow_provider_ckpt.connectors.postgres.durability import SET_DURABLE_COMMIT, refuse_unlogged_tables
from airflow_provider_ckpt.connectors.postgres.identity import table_identity
from airflow_provider_ckpt.connectors.postgres.receipts import CREATION_LOCK, DEAD_LETTER_COLUMNS
from airflow_provider_ckpt.connectors.postgres.table import Fetch, describe_table, psycopg_fetch
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_COLUMNS = (*DEAD_LETTER_COLUMNS, "number")
_RIGHTS = """
SELECT bool_and(pg_catalog.has_table_privilege({0}::oid, needed)) FROM unnest('{{INSERT,SELECT}}'::text[]) AS needed
"""
_PAGE = 1000


class PostgresDeadLetterStore:
    """Dead letter store in a PostgreSQL table.

    See :class:`~airflow_provider_ckpt.connectors.dead_letter_store.DeadLetterStore`.

    :param pipeline: ``dead_letter_queue.table`` names the table, which is created if it does not exist
    :param connection: the Airflow connection of the database
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._name = pipeline.dead_letter_queue.table
        schema, table = split_table(self._name)
        self._sql = f"{quote(schema)}.{quote(table)}" if schema else quote(table)
        self._connection = require_connection(connection, "dead_letter_queue")
        self._context = context
        self._client: Any = None

    def check(self) -> None:
        """Create the table if it is absent, and raise ConfigError if its columns, rights or durability are unsuitable.

        See :meth:`DeadLetterStore.check`.
        """
        with self._session("checking") as fetch:
            table = describe_table(fetch, self._name)
            if table is None:
                self._create()
                table = describe_table(fetch, self._name)
            assert table is not None
            refuse_unlogged_tables(fetch, table.schema, [table.name], self._context.pipeline)
            lacking = [name for name in _COLUMNS if name not in table.by_name]
            if lacking:
                raise ConfigError(
                    f"dead_letter_queue.table: {table.label} is another table: it has no column {', '.join(lacking)}.",
                    pipeline=self._context.pipeline,
                    hint="Name a table that does not exist; it is created with the right columns.",
                )
            if not fetch(_RIGHTS, [table.oid])[0][0]:
                raise ConfigError(
                    f"the user of connection {self._connection.id!r} may not store dead letters in {table.label}.",
                    pipeline=self._context.pipeline,
                    hint=f"GRANT INSERT, SELECT ON {table.sql} to it.",
                )

    def outputs(self) -> Sequence[Output]:
        """Return the dead letter table as the only output, none if it does not exist; see :class:`NamesOutputs`."""
        with self._session("looking up") as fetch:
            table = describe_table(fetch, self._name)
            if table is None:
                return []
            return [
                WrittenTarget("dead_letter_queue.table", table.label, "postgresql", table_identity(fetch, table.oid))
            ]

    def store(self, task: BatchTask, dead_letters: Sequence[DeadLetter], first: int) -> None:
        """Store dead letters of one attempt durably; those that the table has already are left out.

        See :meth:`DeadLetterStore.store`.

        :param task: the batch and its attempt
        :param dead_letters: all dead letters of the attempt so far; a dead letter's number is its index here
        :param first: number of the first dead letter to store; those before it were stored by an earlier call
        """
        from psycopg2.extras import execute_values

        statement = (
            f"INSERT INTO {self._sql.replace('%', '%%')} ({', '.join(map(quote, _COLUMNS))}) VALUES %s "
            "ON CONFLICT (ledger, pipeline, generation, partition, seq, attempt, epoch, number) DO NOTHING"
        )
        rows = [self._row(task, dead_letters[number], number) for number in range(first, len(dead_letters))]
        with self._session("writing to") as _, self._client.cursor() as cursor:
            cursor.execute(f"BEGIN; SELECT {SET_DURABLE_COMMIT}")
            execute_values(cursor, statement, rows, page_size=_PAGE)
            cursor.execute("COMMIT")

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the stored dead letters of some attempts; see :meth:`DeadLetterStore.dead_letters`."""
        table = self._sql.replace("{", "{{").replace("}", "}}")
        statement = f"""
            SELECT position, key, value, error_type, error, sqlstate, headers, at FROM {table}
            WHERE ledger = {{0}}::text AND pipeline = {{1}}::text AND generation = {{2}}::int
              AND partition = {{3}}::text AND seq = {{4}}::bigint AND attempt = {{5}}::int AND epoch = {{6}}::bigint
            ORDER BY number"""
        for source in sources:
            key = [source.key.generation, source.key.partition, source.key.seq, source.attempt, source.epoch]
            with self._session("reading") as fetch:
                found = describe_table(fetch, self._name) is not None
                rows = fetch(statement, [self._context.ledger, self._context.pipeline, *key]) if found else []
            yield from (to_dead_letter(source, row) for row in rows)

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _row(self, task: BatchTask, dead_letter: DeadLetter, number: int) -> tuple[Any, ...]:
        key, error = task.key, dead_letter.error
        return (
            *(self._context.ledger, self._context.pipeline, key.generation, key.partition, key.seq),
            *(task.attempt, self._context.epoch, dead_letter.position, dead_letter.key, dead_letter.value),
            *(error.type.value, to_storable_text(error.message), error.sqlstate, headers_json(dead_letter), number),
        )

    def _create(self) -> None:
        import psycopg2

        try:
            with self._client.cursor() as cursor:
                cursor.execute(
                    f"""
                    SELECT {SET_DURABLE_COMMIT};
                    SELECT pg_catalog.pg_advisory_xact_lock({CREATION_LOCK:d});
                    CREATE TABLE IF NOT EXISTS {self._sql} (
                        ledger text NOT NULL, pipeline text NOT NULL, generation int NOT NULL, partition text NOT NULL,
                        seq bigint NOT NULL, attempt int NOT NULL, epoch bigint NOT NULL, number int NOT NULL,
                        position bigint NOT NULL, key bytea, value bytea, error_type text NOT NULL, error text NOT NULL,
                        sqlstate text, headers jsonb NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(),
                        PRIMARY KEY (ledger, pipeline, generation, partition, seq, attempt, epoch, number)
                    )
                    """
                )
        except (psycopg2.errors.InsufficientPrivilege, psycopg2.errors.InvalidSchemaName) as error:
            raise ConfigError(
                f"dead_letter_queue.table: {self._name} does not exist, and the user of connection "
                f"{self._connection.id!r} may not create it.",
                pipeline=self._context.pipeline,
                hint="GRANT CREATE ON its schema to that user, or run the pipeline once as a user with that right.",
            ) from error

    @contextmanager
    def _session(self, operation: str) -> Iterator[Fetch]:
        import psycopg2

        if self._client is None:
            self._client = open_psycopg(self._connection, f"ckpt-dead-letters:{self._context.pipeline}", ErrorType.SINK)
        try:
            yield psycopg_fetch(self._client)
        except psycopg2.Error as error:
            lost = self._client.closed != 0
            self.close()
            info = error_info(error, ErrorType.SINK, f"{operation} dead letter table {self._name}", lost=lost)
            raise to_exception(info) from error
