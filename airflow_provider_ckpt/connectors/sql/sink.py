"""Control side of the sql sink: check the target, raise the fence, read receipts and dead letters."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.batch_content import StoredDeadLetter
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.file_lists import FileList
from airflow_provider_ckpt.connectors.outputs import Output, WrittenTarget
from airflow_provider_ckpt.connectors.sink_protocol import Claims, SinkContext
from airflow_provider_ckpt.connectors.sql import lost_rows
from airflow_provider_ckpt.connectors.sql.bookkeeping import FENCE, Bookkeeping
from airflow_provider_ckpt.connectors.sql.columns import Table
from airflow_provider_ckpt.connectors.sql.connector import SqlSinkSection
from airflow_provider_ckpt.connectors.sql.database import Database
from airflow_provider_ckpt.connectors.sql.dead_letters import read_attempt
from airflow_provider_ckpt.connectors.sql.documents import read_documents, store_document
from airflow_provider_ckpt.connectors.sql.fence import fence, session_mark
from airflow_provider_ckpt.connectors.sql.names import split_name
from airflow_provider_ckpt.connectors.sql.receipts import read_unknown, without_receipt
from airflow_provider_ckpt.connectors.sql.schema_changes import TargetColumns, read_begun, read_versions
from airflow_provider_ckpt.connectors.sql.table_clause import table_clause
from airflow_provider_ckpt.connectors.sql.target_checks import (
    NO_RIGHT,
    refuse_columns,
    refuse_target,
    refuse_untested,
    refuse_unwritable,
)
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ConfigError, SinkError
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.core.schema_version import SchemaVersion

if TYPE_CHECKING:
    import sqlalchemy as sa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.core.next_schema_version import TargetStep

log = logging.getLogger(__name__)

_MAX_COUNTED = 100_000
"""Number of rows up to which a target is counted unless an exact number is requested."""


class SqlSink:
    """Control side of a sink that writes to a table of an SQL database.

    See :class:`~airflow_provider_ckpt.connectors.sink_protocol.Sink`.

    :param pipeline: ``sink.table`` names the target
    :param connection: the Airflow connection of the database
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    exactly_once = True

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._section = SqlSinkSection.of(pipeline)
        self._delivery = pipeline.delivery
        self._pipeline = pipeline.name
        self._follows = pipeline.schema_ is not None
        self._name = self._section.table
        self._key = self._section.key if self._section.upserts else ()
        self._context = context
        self._database = Database(connection, "sink")
        self._described: Table | None = None

    @property
    def location(self) -> str:
        """Address of the target without user and password; see :attr:`Sink.location`."""
        return f"{self._database.location}/{self._name}"

    def check(self) -> None:
        """Raise ConfigError if the server, the target or the user's rights are unsuitable; see :meth:`Sink.check`."""
        dialect = self._database.dialect
        refuse_untested(self._database, self._section, self._delivery, self._pipeline)
        if self._follows and not dialect.changes_columns:
            raise ConfigError(
                f"schema: the columns of {dialect.label} tables cannot be changed in this version.",
                pipeline=self._pipeline,
                hint="Leave the section out, and change the target's columns by hand.",
            )
        self._described = None
        with self._database.session(f"checking {self._name}") as connection:
            table = self._target(connection)
            refuse_target(self._database, table, self._key, self._pipeline)
            problems, warnings = dialect.server_problems(connection)
        for problem, remedy in problems:
            raise ConfigError(f"{problem}.", pipeline=self._pipeline, hint=remedy)
        for warning in warnings:
            log.warning("pipeline %s: the server of connection %r %s", self._pipeline, self._database.known.id, warning)
        refuse_unwritable(self._database, table, self._section, self._pipeline)

    def create_bookkeeping(self) -> None:
        """Create the missing bookkeeping tables beside the target; see :meth:`Sink.create_bookkeeping`.

        :raises ConfigError: if tables are missing and the user may not create them
        """
        from sqlalchemy.schema import CreateTable

        with self._database.session(f"reading the tables beside {self._name}") as connection:
            bookkeeping = self._bookkeeping(connection)
            complete = not bookkeeping.lacks(connection)
        if complete:
            return
        try:
            with self._database.session(f"creating tables beside {self._name}", writes=True) as connection:
                for table in bookkeeping.metadata.sorted_tables:
                    connection.execute(CreateTable(table, if_not_exists=True))
        except SinkError as error:
            if error.sqlstate != NO_RIGHT:
                raise
            names = ", ".join(table.name for table in bookkeeping.metadata.sorted_tables)
            raise ConfigError(
                f"the user of connection {self._database.known.id!r} may not create the sink's bookkeeping tables "
                f"({names}) in {bookkeeping.place}.",
                pipeline=self._pipeline,
                hint="Grant it CREATE there, or run the pipeline once as a user that has it.",
            ) from error

    def outputs(self) -> Sequence[Output]:
        """Return a list of one output, the target table; see :class:`NamesOutputs`."""
        with self._database.session(f"reading the identity of {self._name}") as connection:
            table = self._target(connection)
            identity = self._identity(connection, table)
        return [WrittenTarget("sink.table", table.label, self._database.dialect.name, identity)]

    def check_columns(self, columns: Sequence[tuple[str, str]]) -> None:
        """Raise ConfigError if rows of these columns cannot be written to the target; see :meth:`Sink.check_columns`.

        :param columns: name and Spark SQL type of each column
        """
        with self._database.session(f"reading the columns of {self._name}") as connection:
            refuse_columns(self._target(connection), columns, self._pipeline)

    def claims(self) -> Claims:
        """Return epoch and ledgers of the pipeline's fences, the target's identity and evidence of lost rows.

        The epoch is the newest of all ledgers. See :meth:`Sink.claims`.
        """
        import sqlalchemy as sa

        with self._database.session(f"reading the fence of {self._name}") as connection:
            table = self._target(connection)
            identity, bookkeeping = self._identity(connection, table), self._bookkeeping(connection)
            if bookkeeping.lacks(connection):
                return Claims(target=identity)
            fences = bookkeeping.table(FENCE)
            query = sa.select(fences.c.ledger, fences.c.epoch).where(fences.c.pipeline == self._context.pipeline)
            rows = connection.execute(query).all()
            loss = self._find_loss(connection, table, bookkeeping)
        return Claims(
            max((epoch for _, epoch in rows), default=0), frozenset(ledger for ledger, _ in rows), identity, loss
        )

    def compare_targets(self, before: str, now: str) -> str | None:
        """Return the part of an error message: ``the target is not the one that was written: it was A and is B (…)``.

        The caller has found that the identities A and B differ. See :class:`ComparesTargets`.

        :param before: identity of the target that was written to
        :param now: identity of the target as it is now
        """
        return f"the target is not the one that was written: it was {before} and is {now} (another server or table)"

    def fence(self, epoch: int) -> None:
        """Raise the fence, and end sessions of older epochs that block it for over 2 s; see :meth:`Sink.fence`.

        If the database commits changes of columns by themselves, changes that earlier runs have begun are completed. If
        the fence was not at this epoch already, a snapshot of the target is stored with it.
        """
        self.create_bookkeeping()
        dialect = self._database.dialect
        with self._database.session(f"reading {self._name}") as connection:
            bookkeeping = self._bookkeeping(connection)
        raised = fence(self._database, bookkeeping, epoch, self._name)
        if dialect.changes_columns and not dialect.transactional_ddl:
            with self._columns(epoch) as columns:
                columns.finish()
        if raised:
            with self._database.session(f"taking a snapshot of {self._name}", writes=True) as connection:
                self._store_snapshot(connection, self._target(connection), bookkeeping, epoch)

    def store_target_snapshot(self, epoch: int) -> None:
        """Store a description of the target's present state (a snapshot); see :class:`SinkWithTargetSnapshot`.

        Nothing is stored if rows were lost since the last snapshot, so that the next run reports the loss.

        :param epoch: epoch of the run
        """
        with self._database.session(f"taking a snapshot of {self._name}", writes=True) as connection:
            table, bookkeeping = self._target(connection), self._bookkeeping(connection)
            if self._find_loss(connection, table, bookkeeping) is None:
                self._store_snapshot(connection, table, bookkeeping, epoch)

    def receipts(self, known: Mapping[str, KnownReceipts]) -> Iterator[Receipt]:
        """Yield the pipeline's receipts that the ledger does not know, ordered by key; see :meth:`Sink.receipts`."""
        with self._database.session(f"reading receipts of {self._name}") as connection:
            bookkeeping = self._bookkeeping(connection)
            found = [] if bookkeeping.lacks(connection) else read_unknown(connection, bookkeeping, known)
        yield from found

    def batches_without_receipt(self, keys: Sequence[BatchKey]) -> Sequence[BatchKey]:
        """Return the given batches that have no receipt; see :meth:`Sink.batches_without_receipt`."""
        with self._database.session(f"searching receipts of {self._name}") as connection:
            bookkeeping = self._bookkeeping(connection)
            return list(keys) if bookkeeping.lacks(connection) else without_receipt(connection, bookkeeping, keys)

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of the given attempts, with one query for each; see :meth:`Sink.dead_letters`."""
        for source in sources:
            with self._database.session(f"reading dead letters of {self._name}") as connection:
                bookkeeping = self._bookkeeping(connection)
                rows = [] if bookkeeping.lacks(connection) else read_attempt(connection, bookkeeping, source)
            yield from rows

    def store_replay(self, partition: str, replay: Replay) -> None:
        """Store the list of dead letters that a side partition sends again; see :meth:`Sink.store_replay`."""
        self._store_document(partition, replay.to_json())

    def replays(self, partitions: Iterable[str]) -> Mapping[str, Replay]:
        """Return the stored replays of the given side partitions; see :meth:`Sink.replays`."""
        wanted = set(partitions)
        return {name: Replay.from_json(found) for name, found in self._documents() if name in wanted}

    def store_file_list(self, files: FileList) -> None:
        """Store a list of discovered source files; see :meth:`Sink.store_file_list`."""
        self._store_document(files.name, files.to_json())

    def stored_file_lists(self, first: int) -> Sequence[FileList]:
        """Return the stored lists of source files from an ordinal on; see :meth:`Sink.stored_file_lists`."""
        return [
            FileList.from_json(found)
            for name, found in self._documents()
            if name.startswith("files:") and int(name.split(":")[1]) >= first
        ]

    def schema_versions(self) -> Sequence[SchemaVersion]:
        """Return the schema versions that have a receipt; see :meth:`SinkWithSchemaChanges.schema_versions`."""
        with self._database.session(f"reading schema versions of {self._name}") as connection:
            bookkeeping = self._bookkeeping(connection)
            return [] if bookkeeping.lacks(connection) else read_versions(connection, bookkeeping)

    def apply_schema_version(self, epoch: int, version: SchemaVersion, steps: Sequence[TargetStep]) -> None:
        """Change the target's columns behind the fence, with the receipt of a schema version.

        See :mod:`~.sql.schema_changes` and :meth:`SinkWithSchemaChanges.apply_schema_version`.

        :param epoch: epoch of the run
        :param version: the version
        :param steps: the changes of the target
        """
        with self._columns(epoch) as columns:
            columns.apply(version, steps)

    def target_rows(self, *, exact: bool = False) -> int | None:
        """Return the number of rows in the target; None if it has more than 100,000 rows.

        :param exact: whether to count more rows as well
        """
        import sqlalchemy as sa

        with self._database.session(f"counting the rows of {self._name}") as connection:
            rows = sa.select(sa.literal(1).label("one")).select_from(table_clause(self._target(connection), ()))
            held = (rows if exact else rows.limit(_MAX_COUNTED + 1)).subquery()
            count = int(connection.execute(sa.select(sa.func.count()).select_from(held)).scalar() or 0)
        return count if exact or count <= _MAX_COUNTED else None

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def _target(self, connection: sa.Connection) -> Table:
        if self._described is None:
            self._described = self._database.dialect.find_table(connection, *split_name(self._name))
        if self._described is None:
            raise ConfigError(
                f"target table {self._name} does not exist in connection {self._database.known.id!r}.",
                pipeline=self._pipeline,
                hint="Create it with the columns of the rows, or correct sink.table.",
            )
        return self._described

    def _bookkeeping(self, connection: sa.Connection) -> Bookkeeping:
        return Bookkeeping(self._database.dialect, self._target(connection).schema, self._context)

    def _identity(self, connection: sa.Connection, table: Table) -> str:
        return f"{self._database.dialect.server_identity(connection)}/{table.label}"

    def _find_loss(self, connection: sa.Connection, table: Table, bookkeeping: Bookkeeping) -> str | None:
        import sqlalchemy as sa

        if self._section.may_lose_rows:
            return None
        fences = bookkeeping.table(FENCE)
        stored = connection.execute(sa.select(fences.c.target_snapshot).where(bookkeeping.mine(fences))).scalar()
        if not stored:
            return None
        snapshot = json.loads(stored)
        if any(begun.names & set(snapshot["key"]) for begun in read_begun(connection, bookkeeping)):
            snapshot["values"] = []  # the name of a column of the key may belong to another column now
        return lost_rows.find_loss(connection, table, snapshot)

    def _store_snapshot(self, connection: sa.Connection, table: Table, bookkeeping: Bookkeeping, epoch: int) -> None:
        lost_rows.store_snapshot(connection, table, self._key, bookkeeping, epoch)

    def _store_document(self, name: str, document: Mapping[str, Any]) -> None:
        with self._database.session(f"storing {name} beside {self._name}", writes=True) as connection:
            store_document(connection, self._bookkeeping(connection), name, document)

    def _documents(self) -> list[tuple[str, Any]]:
        with self._database.session(f"reading the documents beside {self._name}") as connection:
            bookkeeping = self._bookkeeping(connection)
            return [] if bookkeeping.lacks(connection) else read_documents(connection, bookkeeping)

    @contextmanager
    def _columns(self, epoch: int) -> Iterator[TargetColumns]:
        """Yield the target's columns, which a session of its own changes; the target is described anew afterwards.

        :param epoch: epoch of the run
        """
        try:
            with self._marked(epoch) as database:
                yield TargetColumns(database, self._name, self._key, self._context, epoch)
        finally:
            self._described = None

    @contextmanager
    def _marked(self, epoch: int) -> Iterator[Database]:
        """Yield a new connection to the sink's database, marked so that a newer run that raises the fence can end it.

        :param epoch: epoch of this run
        """
        database = Database(self._database.known, "sink")
        try:
            with database.session(f"connecting to {self._name}") as connection:
                database.dialect.mark_session(connection, session_mark(self._context, epoch))
            yield database
        finally:
            database.close()
