"""Control side of the postgres sink with ``replace.swap: rename``: publishing renames the staging table to the target.

No row is deleted or copied, so publishing takes as long for a large table as for a small one, apart from counting rows.
Readers wait while the tables change places. So that they do not wait long, the lock that excludes readers is requested
with a short timeout, repeatedly, until no reader uses the table.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider_ckpt.connectors.postgres.client import quote
from airflow_provider_ckpt.connectors.postgres.receipts import SWAP, BookkeepingTables
from airflow_provider_ckpt.connectors.postgres.rename_swap import creation, obstacles, replacement, settings
from airflow_provider_ckpt.connectors.postgres.replacing_sink import PostgresReplacingSink, count_rows, store_added
from airflow_provider_ckpt.connectors.postgres.staging import staging_owner, staging_sql
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table, describe_table, psycopg_fetch
from airflow_provider_ckpt.connectors.postgres.table_definition import TableDefinition, read_definition
from airflow_provider_ckpt.connectors.staged_rows import incomplete_error
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError, SinkError
from airflow_provider_ckpt.core.refresh import ReplaceLimits
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome

READERS_WAIT_MS = 500
"""Longest time for which one request for the lock that excludes readers lets them wait, in milliseconds."""

WRITERS_WAIT_MS = 10_000
"""Longest time of one request for a lock that only excludes writers, in milliseconds; autovacuum yields after 1 s."""

LOCK_SECONDS = 60.0
"""Time after which publishing fails if the table was in use at each request for a lock."""

_PAUSE = 1.0
"""Time between two requests for a lock, in seconds, in which readers go on."""

_HOLDERS = """
SELECT DISTINCT l.pid::int, coalesce(nullif(a.application_name, ''), a.usename::text, 'unknown')
FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
JOIN pg_catalog.pg_database d ON d.oid = l.database AND d.datname = current_database()
WHERE l.locktype = 'relation' AND l.relation = {0}::oid AND l.granted AND l.pid <> pg_catalog.pg_backend_pid()
ORDER BY 1 LIMIT 5
"""
_OWNER = """
SELECT pg_catalog.pg_get_userbyid(relowner)::text, pg_catalog.pg_has_role(relowner, 'USAGE')
FROM pg_catalog.pg_class WHERE oid = {0}::oid
"""
_INSTEAD = "leave sink.replace.swap out: then rows are deleted and inserted, and the table itself stays"


class PostgresRenamingSink(PostgresReplacingSink):
    """Control side of a sink that puts the staging table of each refresh in the place of the target.

    Its parameters are those of :class:`.PostgresSink`.
    """

    def check(self) -> None:
        """Raise ConfigError if the target is unsuitable for ``mode: replace``, or a table cannot be put in its place.

        A staging table is created in a transaction that is rolled back, to find before the first refresh what cannot be
        carried over to it. See :meth:`PostgresReplacingSink.check`.
        """
        import psycopg2

        super().check()
        with self._session("rehearsing the swap") as fetch:
            target = self._find_target(fetch)
            if target is None:  # a run creates it, and nothing can depend on it yet
                return
            [(owner, is_owner)] = fetch(_OWNER, [target.oid])
            if not is_owner:
                raise ConfigError(
                    f"the user of connection {self._connection.id!r} may not drop {target.label}, which belongs to "
                    f"{owner}, so a refresh cannot take its place (sink.replace.swap: rename).",
                    pipeline=self._pipeline,
                    hint=f"GRANT {quote(owner)} to the user, ALTER TABLE {target.sql} OWNER TO it, or {_INSTEAD}.",
                )
            problem = self._swap_problem(fetch, target)
            if problem is None:
                try:
                    with _rolled_back(fetch):
                        problem = self._rehearse(fetch, target)
                except psycopg2.errors.InsufficientPrivilege as error:
                    problem = f"its owner or grants cannot be carried over: {error.diag.message_primary}"
        if problem is not None:
            raise ConfigError(
                f"a refresh cannot take the place of {target.label} (sink.replace.swap: rename): {problem}.",
                pipeline=self._pipeline,
                hint=f"Drop or change it, or {_INSTEAD}.",
            )

    def is_staged(self, key: BatchKey, rows_end: int) -> bool:
        """Return whether all rows of a refresh are staged in a table with the target's columns and constraints.

        See :class:`ReplacingSink`.

        :param key: the batch that publishes the refresh
        :param rows_end: position after the last one that may contain rows
        """
        if not super().is_staged(key, rows_end):
            return False
        with self._session("comparing the staging table") as fetch:
            target = self._target(fetch)
            staging = describe_table(fetch, staging_sql(target, key.generation))
            return staging is not None and not _definitions_of(fetch, target, staging)[2]

    def publish(self, task: BatchTask, epoch: int, limits: ReplaceLimits | None) -> Outcome:
        """Rename the staging table of a refresh to the target; see :class:`ReplacingSink`.

        :param task: the batch that publishes
        :param epoch: epoch of the run
        :param limits: limits beyond which nothing is published; None if a user has approved the refresh
        """
        try:
            return super().publish(task, epoch, limits)
        finally:
            self._described = None  # the target is another table now, or may be

    def _create_staging(self, fetch: Fetch, target: Table, generation: int) -> None:
        """Create the staging table of a refresh in the open transaction.

        :param fetch: runs a statement and returns its rows
        :param target: the target
        :param generation: generation of the refresh
        """
        for statement in creation(fetch, target, staging_sql(target, generation), staging_owner(self._context)):
            fetch(f"{statement}; SELECT 1", [])

    def _replace_rows(
        self,
        client: Any,
        target: Table,
        task: BatchTask,
        bookkeeping: BookkeepingTables,
        limits: ReplaceLimits | None,
    ) -> bool:
        """Put the staging table in the place of the target in the open transaction, if all rows are staged.

        Writers of the target wait from the count of its rows to the commit, readers only for the swap itself.

        :param client: psycopg2 connection in an open transaction
        :param target: the target
        :param task: the batch that publishes
        :param bookkeeping: the bookkeeping tables
        :param limits: limits beyond which the rows must not be replaced; None for no limit
        :return: False if a limit is exceeded, and the caller must roll the transaction back; otherwise True
        :raises SinkError: if the refresh is not complete, the target was in use all the time, or something of it cannot
            be carried over
        """
        fetch = psycopg_fetch(client)
        staging = describe_table(fetch, staging_sql(target, task.key.generation))
        if staging is None:
            raise incomplete_error(task, "its staging table does not exist", self._pipeline)
        rows = self._staged(fetch, task.key, target)
        rows.refuse_missing(task, self._pipeline)
        self._lock(client, staging, "ACCESS EXCLUSIVE", WRITERS_WAIT_MS)
        rows.refuse_lost(task, count_rows(fetch, staging.sql), self._pipeline)
        with client.cursor() as cursor:
            cursor.execute(f"ANALYZE {staging.sql}")  # or readers plan without statistics until autovacuum comes
        self._lock(client, target, "SHARE ROW EXCLUSIVE", WRITERS_WAIT_MS)
        if limits is not None and limits.refusal_reason(rows.count, count_rows(fetch, target.sql)) is not None:
            return False
        self._lock(client, target, "ACCESS EXCLUSIVE", READERS_WAIT_MS)
        self._swap(client, target, staging, task)
        store_added(client, bookkeeping, self._context, task.key, rows.count)
        self._store_swap(fetch, bookkeeping, target, staging)
        return True

    def _swap(self, client: Any, target: Table, staging: Table, task: BatchTask) -> None:
        """Copy owner, grants and comments of the target to the staging table, drop the target, and rename the other.

        Readers of the target wait until the transaction ends.

        :param client: psycopg2 connection in a transaction that has locked both tables
        :param target: the target
        :param staging: the staging table
        :param task: the batch that publishes
        :raises SinkError: if another object, such as a view, depends on the target; or if columns, constraints or
            indexes of the target were changed while rows were staged
        """
        fetch = psycopg_fetch(client)
        problem = self._swap_problem(fetch, target)
        of_target, of_staging, differences = _definitions_of(fetch, target, staging)
        if problem is None and differences:
            problem = f"the table was altered while rows were staged: {', '.join(differences)}"
        if problem is None:
            _execute(client, settings(fetch, target, staging, of_target, of_staging))
            of_staging = read_definition(fetch, staging.oid)
            differences = of_target.differences(of_staging)
            if differences:
                problem = f"{', '.join(differences)} cannot be carried over to the new table"
        if problem is not None:
            raise SinkError(
                f"publishing {task.key}: the refresh cannot take the place of {target.label}: {problem}.",
                pipeline=self._pipeline,
                batch=str(task.key),
                hint=f"Nothing was published. Change it and run again, which begins a new refresh, or {_INSTEAD}.",
            )
        _execute(client, replacement(fetch, target, staging, of_target, of_staging))

    def _swap_problem(self, fetch: Fetch, target: Table) -> str | None:
        found = obstacles(fetch, target)
        return f"dropping the old table would lose or break what depends on it: {', '.join(found)}" if found else None

    def _rehearse(self, fetch: Fetch, target: Table) -> str | None:
        """Create a staging table with the target's properties, and return how it still differs; None if it does not.

        :param fetch: runs a statement in an open transaction, which is to be rolled back
        :param target: the target
        """
        self._create_staging(fetch, target, 0)
        staging = describe_table(fetch, staging_sql(target, 0))
        assert staging is not None
        of_target, of_staging, differences = _definitions_of(fetch, target, staging)
        if not differences:
            for statement in settings(fetch, target, staging, of_target, of_staging):
                fetch(f"{statement}; SELECT 1", [])
            differences = of_target.differences(read_definition(fetch, staging.oid))
        return f"{', '.join(differences)} cannot be carried over to another table" if differences else None

    def _lock(self, client: Any, table: Table, mode: str, timeout_ms: int) -> None:
        """Lock a table in the open transaction, by short requests, between which other waiting sessions get the table.

        :param client: psycopg2 connection in an open transaction
        :param table: the table
        :param mode: name of the lock mode
        :param timeout_ms: longest time of one request
        :raises SinkError: if the table was in use at each request for :data:`LOCK_SECONDS`
        """
        from psycopg2 import errors

        deadline = time.monotonic() + LOCK_SECONDS
        with client.cursor() as cursor:
            cursor.execute(f"SET LOCAL lock_timeout = {timeout_ms}; SAVEPOINT ckpt_lock")
            while True:
                try:
                    cursor.execute(f"LOCK TABLE {table.sql} IN {mode} MODE; RELEASE SAVEPOINT ckpt_lock")
                    return
                except errors.LockNotAvailable:
                    cursor.execute("ROLLBACK TO SAVEPOINT ckpt_lock")
                if time.monotonic() > deadline:
                    raise self._busy_error(psycopg_fetch(client), table)
                time.sleep(_PAUSE)

    def _busy_error(self, fetch: Fetch, table: Table) -> SinkError:
        holders = ", ".join(f"{application} (pid {pid})" for pid, application in fetch(_HOLDERS, [table.oid]))
        return SinkError(
            f"{table.label} was in use at each of the requests for a lock for {LOCK_SECONDS:.0f} s"
            f"{f', now by {holders}' if holders else ''}.",
            pipeline=self._pipeline,
            sqlstate="55P03",
            recoverable=True,
            hint=f"Nothing was published. Let transactions that read the table end sooner, or {_INSTEAD}.",
        )

    def _store_swap(self, fetch: Fetch, bookkeeping: BookkeepingTables, target: Table, staging: Table) -> None:
        """Store that the staging table is the target now, so that the reported identity of the target stays the same.

        :param fetch: runs a statement in the transaction that swaps
        :param bookkeeping: the bookkeeping tables
        :param target: the table that was the target
        :param staging: the table that is the target now
        """
        swap = {"first": self._first_oid(fetch, bookkeeping, target.oid), "now": staging.oid}
        fetch(bookkeeping.store_replay, [self._context.ledger, self._context.pipeline, SWAP, json.dumps(swap)])


@contextmanager
def _rolled_back(fetch: Fetch) -> Iterator[None]:
    """Begin a transaction, and roll it back at the end of the ``with`` block.

    :param fetch: runs a statement over a connection in autocommit mode
    """
    fetch("BEGIN; SELECT 1", [])
    try:
        yield
    finally:
        fetch("ROLLBACK; SELECT 1", [])


def _definitions_of(fetch: Fetch, target: Table, staging: Table) -> tuple[TableDefinition, TableDefinition, list[str]]:
    """Return the definitions of target and staging table, and labels of the differences in their shape.

    :param fetch: runs a query and returns its rows
    :param target: the target
    :param staging: the staging table
    """
    of_target, of_staging = read_definition(fetch, target.oid), read_definition(fetch, staging.oid)
    return of_target, of_staging, of_target.shape_differences(of_staging)


def _execute(client: Any, statements: Any) -> None:
    with client.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
