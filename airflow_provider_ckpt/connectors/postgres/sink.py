"""Control side of the postgres sink: check the target, raise the fence, read receipts and dead letters."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_provider_ckpt.connectors.batch_content import StoredDeadLetter
from airflow_provider_ckpt.connectors.file_lists import FileList
from airflow_provider_ckpt.connectors.outputs import Output, WrittenTarget
from airflow_provider_ckpt.connectors.postgres import restored_target
from airflow_provider_ckpt.connectors.postgres.bookkeeping_rights import refuse_hidden_bookkeeping
from airflow_provider_ckpt.connectors.postgres.bookkeeping_setup import create_tables, lacks_columns, lacks_tables
from airflow_provider_ckpt.connectors.postgres.client import (
    INSUFFICIENT_PRIVILEGE,
    error_info,
    open_psycopg,
    to_exception,
)
from airflow_provider_ckpt.connectors.postgres.dead_letters import to_dead_letter
from airflow_provider_ckpt.connectors.postgres.durability import (
    refuse_undurable_target,
    refuse_unlogged_tables,
    warn_of_risky_server,
    with_durable_commit,
)
from airflow_provider_ckpt.connectors.postgres.fence import fence, session_prefix
from airflow_provider_ckpt.connectors.postgres.identity import describe_difference, table_identity
from airflow_provider_ckpt.connectors.postgres.receipts import ALL_TABLES, BookkeepingTables
from airflow_provider_ckpt.connectors.postgres.schema_changes import apply_version, read_versions
from airflow_provider_ckpt.connectors.postgres.schema_check import HAS_FILLING_TRIGGER, refuse_unsuitable_columns
from airflow_provider_ckpt.connectors.postgres.sink_session import SinkSession
from airflow_provider_ckpt.connectors.postgres.table import Fetch, Table
from airflow_provider_ckpt.connectors.postgres.target_rules import refuse_altering_target, refuse_unwritable_target
from airflow_provider_ckpt.connectors.postgres.upsert_key import refuse_unsuitable_key
from airflow_provider_ckpt.connectors.receipt_row import to_receipt
from airflow_provider_ckpt.connectors.sink_protocol import Claims
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.core.next_schema_version import TargetStep
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.core.schema_version import SchemaVersion, SourceColumn

log = logging.getLogger(__name__)

_NOTHING_KNOWN = KnownReceipts(0, 0)
"""For a partition of which the ledger knows no receipt: generation 0, which comes before all generations."""

_MAX_COUNTED_BYTES = 16 << 20
"""Greatest size of a target whose rows are counted unless an exact number is requested, in bytes."""

_OWNER_HINT = (
    "Only the owner of a table may change its columns: change them by hand, or make the sink's role the owner."
)
_SIZE_AND_RIGHT = "SELECT pg_catalog.pg_table_size({0}::oid), pg_catalog.has_table_privilege({0}::oid, 'SELECT')"


class PostgresSink(SinkSession):
    """Control side of a sink that writes to a PostgreSQL table.

    See :class:`~airflow_provider_ckpt.connectors.sink_protocol.Sink`.

    :param pipeline: ``sink.table`` names the target
    :param connection: the Airflow connection of the database
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    exactly_once = True

    @property
    def location(self) -> str:
        """Address of the target, such as ``postgres://host:5432/shop/public.orders``; see :attr:`Sink.location`."""
        known = self._connection
        return f"postgres://{known.host or ''}:{known.port or 5432}/{known.schema or ''}/{self._name}"

    def check(self) -> None:
        """Raise ConfigError if the target or the bookkeeping tables are unsuitable; see :meth:`Sink.check`.

        If a run would create the target, the checks apply to the table that it would create.
        """
        with self._session("checking the properties") as fetch, self._target_to_write(fetch) as table:
            refuse_unwritable_target(fetch, table, self._declared, self._connection.id)
            refuse_undurable_target(fetch, table, self._declared)
            refuse_altering_target(fetch, table, self._declared)
            refuse_unsuitable_key(fetch, table, self._upsert, self._pipeline)
            refuse_hidden_bookkeeping(fetch, BookkeepingTables(table.schema), self._context, self._connection.id)
            refuse_unlogged_tables(fetch, table.schema, ALL_TABLES, self._pipeline)
            warn_of_risky_server(fetch, self._connection.id, self._pipeline)

    def create_target_from(self, columns: Callable[[], Sequence[SourceColumn]]) -> None:
        """Set the columns with which a missing target is created; see :class:`SinkThatCreatesTarget`.

        :param columns: function that returns the source's columns; called only if the target is missing
        """
        assert self._creation is not None
        self._creation.columns = columns

    def create_bookkeeping(self) -> None:
        """Create the target if it is missing, and the bookkeeping tables; see :meth:`Sink.create_bookkeeping`."""
        with self._session("creating the target and the bookkeeping tables") as fetch:
            if self._find_target(fetch) is None and self._creation is not None:
                self._creation.create(fetch)
                log.info("Pipeline %s: created the target table %s", self._pipeline, self._name)
            create_tables(fetch, BookkeepingTables(self._target(fetch).schema), self._connection.id, self._pipeline)

    def outputs(self) -> Sequence[Output]:
        """Return the target table as the only output, none if it does not exist; see :class:`NamesOutputs`."""
        with self._session("reading the identity") as fetch:
            table = self._find_target(fetch)
            if table is None:
                return []
            return [WrittenTarget("sink.table", table.label, "postgresql", table_identity(fetch, table.oid))]

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Raise ConfigError if rows of these columns cannot be written to the target; see :meth:`Sink.check_columns`.

        :param columns: name and Spark SQL type of each column
        """
        with self._session("reading the columns") as fetch, self._target_to_write(fetch) as table:
            refuse_unsuitable_columns(
                table, columns, filled=bool(fetch(HAS_FILLING_TRIGGER, [table.oid])), pipeline=self._context.pipeline
            )

    def claims(self) -> Claims:
        """Return the highest epoch of the pipeline's fences, their ledgers, the target's identity, and signs of loss.

        See :meth:`Sink.claims`.
        """
        with self._session("reading the fence") as fetch:
            table = self._find_target(fetch)
            bookkeeping = self._bookkeeping(fetch)
            refuse_hidden_bookkeeping(fetch, bookkeeping, self._context, self._connection.id)
            rows = [] if lacks_tables(fetch, bookkeeping) else fetch(bookkeeping.fences, [self._context.pipeline])
            identity = None
            if table is not None:
                oid = self._first_oid(fetch, bookkeeping, table.oid) if rows else table.oid
                identity = table_identity(fetch, oid)
            loss = self._find_loss(fetch, table, bookkeeping) if rows else None
        ledgers = frozenset(ledger for ledger, _ in rows)
        return Claims(max((epoch for _, epoch in rows), default=0), ledgers, identity, loss)

    def compare_targets(self, before: str, now: str) -> str | None:
        """Return the part of an error message that tells how two identities differ; see :class:`ComparesTargets`.

        None if they do not differ, or cannot be compared.

        :param before: identity of the target that was written to
        :param now: identity of the target as it is now
        """
        return describe_difference(before, now)

    def fence(self, epoch: int) -> None:
        """Raise the fence, and end sessions of older epochs that block it for over 2 s; see :meth:`Sink.fence`.

        If the fence was not at this epoch already, store a snapshot of the target with it.
        """
        with self._session("raising the fence") as fetch:
            table = self._target(fetch)
            bookkeeping = BookkeepingTables(table.schema)
            create_tables(fetch, bookkeeping, self._connection.id, self._pipeline)
            if fence(fetch, bookkeeping, self._context, epoch, self._name):
                snapshot = restored_target.take_target_snapshot(fetch, table, self._upsert)
                self._warn_of_removed_partitions(fetch, bookkeeping, snapshot)
                self._store_target_snapshot(fetch, bookkeeping, epoch, snapshot)

    def store_target_snapshot(self, epoch: int) -> None:
        """Store a description of the target's present state (a snapshot); see :class:`SinkWithTargetSnapshot`.

        Nothing is stored if the target has lost rows since the last snapshot, so that the next run reports the loss.

        :param epoch: epoch of the run
        """
        with self._session("taking a snapshot of the target") as fetch:
            table = self._target(fetch)
            bookkeeping = BookkeepingTables(table.schema)
            if lacks_columns(fetch, bookkeeping):
                return
            # The snapshot is taken before the check for losses, so that a TRUNCATE after the check differs from it.
            snapshot = restored_target.take_target_snapshot(fetch, table, self._upsert)
            if self._find_loss(fetch, table, bookkeeping) is None:
                self._store_target_snapshot(fetch, bookkeeping, epoch, snapshot)

    def receipts(self, known: Mapping[str, KnownReceipts]) -> Iterator[Receipt]:
        """Yield the pipeline's receipts that the ledger does not know, ordered by key; see :meth:`Sink.receipts`."""
        with self._session("reading receipts") as fetch:
            bookkeeping = self._bookkeeping(fetch)
            if lacks_tables(fetch, bookkeeping):
                return
            key = [self._context.ledger, self._context.pipeline]
            rows = [
                row
                for (name,) in fetch(bookkeeping.partitions, key)
                for row in fetch(bookkeeping.receipts, [*key, name, *known.get(name, _NOTHING_KNOWN)])
            ]
        yield from sorted(map(to_receipt, rows), key=lambda receipt: receipt.key)

    def batches_without_receipt(self, keys: Sequence[BatchKey]) -> Sequence[BatchKey]:
        """Return those of the given batches that have no receipt; see :meth:`Sink.batches_without_receipt`."""
        if not keys:
            return []
        with self._session("searching receipts") as fetch:
            bookkeeping = self._bookkeeping(fetch)
            if lacks_tables(fetch, bookkeeping):
                return list(keys)
            wanted = json.dumps([key.to_json() for key in keys])
            rows = fetch(bookkeeping.batches_without_receipt, [self._context.ledger, self._context.pipeline, wanted])
        return [BatchKey(*row) for row in rows]

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of the given attempts, with one query for each; see :meth:`Sink.dead_letters`."""
        for source in sources:
            with self._session("reading dead letters") as fetch:
                bookkeeping = self._bookkeeping(fetch)
                key = [source.key.generation, source.key.partition, source.key.seq, source.attempt, source.epoch]
                absent = lacks_tables(fetch, bookkeeping)
                rows = (
                    []
                    if absent
                    else fetch(bookkeeping.dead_letters, [self._context.ledger, self._context.pipeline, *key])
                )
            yield from (to_dead_letter(source, row) for row in rows)

    def store_replay(self, partition: str, replay: Replay) -> None:
        """Store the list of dead letters that a side partition sends again; see :meth:`Sink.store_replay`."""
        with self._session("storing a replay of dead letters") as fetch:
            bookkeeping = self._bookkeeping(fetch)
            document = json.dumps(replay.to_json())
            fetch(
                with_durable_commit(bookkeeping.store_replay),
                [self._context.ledger, self._context.pipeline, partition, document],
            )

    def replays(self, partitions: Iterable[str]) -> Mapping[str, Replay]:
        """Return the stored replays of the given side partitions; see :meth:`Sink.replays`."""
        with self._session("reading replays of dead letters") as fetch:
            bookkeeping = self._bookkeeping(fetch)
            if lacks_tables(fetch, bookkeeping, ALL_TABLES):
                return {}
            rows = fetch(bookkeeping.replays, [self._context.ledger, self._context.pipeline, list(partitions)])
        return {partition: Replay.from_json(document) for partition, document in rows}

    def store_file_list(self, files: FileList) -> None:
        """Store a list of discovered source files; see :meth:`Sink.store_file_list`."""
        with self._session("storing a list of source files") as fetch:
            bookkeeping = self._bookkeeping(fetch)
            document = json.dumps(files.to_json())
            fetch(bookkeeping.store_replay, [self._context.ledger, self._context.pipeline, files.name, document])

    def stored_file_lists(self, first: int) -> Sequence[FileList]:
        """Return the stored lists whose first file has at least the given ordinal; see :meth:`Sink.stored_file_lists`.

        :param first: the ordinal
        """
        with self._session("reading lists of source files") as fetch:
            bookkeeping = self._bookkeeping(fetch)
            if lacks_tables(fetch, bookkeeping, ALL_TABLES):
                return []
            rows = fetch(bookkeeping.stored_file_lists, [self._context.ledger, self._context.pipeline, first])
        return [FileList.from_json(document) for (document,) in rows]

    def schema_versions(self) -> Sequence[SchemaVersion]:
        """Return the schema versions that have a receipt; see :meth:`SinkWithSchemaChanges.schema_versions`."""
        with self._session("reading schema versions") as fetch:
            bookkeeping = self._bookkeeping(fetch)
            return (
                [] if lacks_tables(fetch, bookkeeping, ALL_TABLES) else read_versions(fetch, bookkeeping, self._context)
            )

    def apply_schema_version(self, epoch: int, version: SchemaVersion, steps: Sequence[TargetStep]) -> None:
        """Claim the receipt of a schema version and change the target in one transaction, in a session of its own.

        A newer run that raises the fence ends that session. See :meth:`SinkWithSchemaChanges.apply_schema_version`.

        :param epoch: epoch of the run
        :param version: the version
        :param steps: the changes of the target
        """
        import psycopg2

        context = replace(self._context, epoch=epoch)
        session = open_psycopg(self._connection, f"{session_prefix(context)}{epoch}", ErrorType.SINK)
        try:
            apply_version(session, self._name, self._upsert, context, version, steps)
        except psycopg2.Error as error:
            info = error_info(error, ErrorType.SINK, f"changing the columns of {self._name}", lost=session.closed != 0)
            hint = _OWNER_HINT if info.sqlstate == INSUFFICIENT_PRIVILEGE else None
            raise to_exception(info, hint) from error
        finally:
            session.close()
            self._described = None

    def target_rows(self, *, exact: bool = False) -> int | None:
        """Return the number of rows in the target; None if it is larger than 16 MiB or the user may not read it.

        Larger tables are not counted, because the first scan after a load rewrites the pages that it reads (hint bits).

        :param exact: whether to count larger tables as well
        """
        with self._session("counting the rows") as fetch:
            table = self._target(fetch)
            [(size, allowed)] = fetch(_SIZE_AND_RIGHT, [table.oid])
            if not allowed or (not exact and size > _MAX_COUNTED_BYTES):
                return None
            return int(fetch(f"SELECT count(*) FROM {table.sql}", [])[0][0])

    def _first_oid(self, fetch: Fetch, bookkeeping: BookkeepingTables, oid: int) -> int:
        """Return the oid of the table that was the target before refreshes replaced it (``sink.replace.swap: rename``).

        It is the given oid if no refresh has put this table in the place of another one.

        :param fetch: runs a query and returns its rows
        :param bookkeeping: the bookkeeping tables
        :param oid: the oid of the target now
        """
        if lacks_tables(fetch, bookkeeping, ALL_TABLES):
            return oid
        found = fetch(bookkeeping.swapped_table, [self._context.ledger, self._context.pipeline])
        return next((int(first) for first, now in found if now == oid), oid)

    def _find_loss(self, fetch: Fetch, table: Table | None, bookkeeping: BookkeepingTables) -> str | None:
        """Return evidence that rows are gone since the last snapshot of the target; None if there is none.

        It is part of a message, such as ``the table public.orders does not exist any more``.

        :param fetch: runs a query and returns its rows
        :param table: the target; None if it does not exist any more although the pipeline has a fence
        :param bookkeeping: the bookkeeping tables
        """
        if table is None:
            return f"the table {self._name} does not exist any more"
        if self._declared.sink.may_lose_rows or lacks_columns(fetch, bookkeeping):
            return None
        for stored, delivered in fetch(bookkeeping.target_snapshot, [self._context.ledger, self._context.pipeline]):
            loss = restored_target.find_loss(fetch, table, stored, delivered=delivered)
            return loss and f"{loss} (if it is emptied on purpose, write sink.may_be_emptied: true)"
        return None

    def _store_target_snapshot(
        self, fetch: Fetch, bookkeeping: BookkeepingTables, epoch: int, snapshot: Mapping[str, Any]
    ) -> None:
        """Store a snapshot of the target in the fence's row, unless the fence has a newer epoch.

        :param fetch: runs a statement and returns its rows
        :param bookkeeping: the bookkeeping tables
        :param epoch: epoch of the run
        :param snapshot: the snapshot, as :func:`.restored_target.take_target_snapshot` returned it
        """
        key = [self._context.ledger, self._context.pipeline]
        fetch(with_durable_commit(bookkeeping.store_target_snapshot), [*key, epoch, json.dumps(snapshot)])

    def _warn_of_removed_partitions(
        self, fetch: Fetch, bookkeeping: BookkeepingTables, snapshot: Mapping[str, Any]
    ) -> None:
        """Log a warning about partitions that were removed from the target since the last snapshot; the run continues.

        Nothing is logged if rows of the target may be removed on purpose (:attr:`SinkSection.may_lose_rows`).

        :param fetch: runs a query and returns its rows
        :param bookkeeping: the bookkeeping tables
        :param snapshot: a new snapshot of the target
        """
        for stored, _ in fetch(bookkeeping.target_snapshot, [self._context.ledger, self._context.pipeline]):
            names = restored_target.removed_partitions(stored, snapshot)
            if names and not self._declared.sink.may_lose_rows:
                log.warning(
                    "Pipeline %s, target %s: %s was removed since the last run, with its rows. If that was not "
                    "intended, attach it again, or rewind the pipeline.",
                    *(self._pipeline, self._target(fetch).label, names),
                )
