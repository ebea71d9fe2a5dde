"""Apply a schema version: change the columns of a target behind the fence, with a receipt of the version.

The receipt of a schema version is a row of the table of replays. Where a transaction can change columns, as in SQLite,
one transaction compares the epochs, claims the receipt and changes the columns.

In MySQL and MariaDB, ALTER TABLE commits by itself. There a change has three parts, each of which is atomic:

1. A transaction compares the epochs behind the locked fence, and stores the change that begins: version, steps, and the
   state of the columns before it.
2. One ALTER TABLE makes the whole change.
3. A transaction compares the epochs again, removes what part 1 stored, and stores the receipt.

Throughout, the session has the pipeline's lock of columns, which the server releases only when the session has ended,
and thus after its ALTER TABLE. A run that takes over raises the fence and then takes this lock, if necessary by ending
the session. From then on no older run changes columns: its ALTER TABLE has been completed or undone, and it cannot
begin another one, since part 1 would find the newer epoch. If a change has begun and has no receipt, the newer run
compares the columns with their stored state: if they are as before, it makes the change; if they are as after it, the
change was made. Then it stores the receipt.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.refuse_fenced_run import refuse_unless_current
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.sql import lost_rows
from airflow_provider_ckpt.connectors.sql.bookkeeping import REPLAY, Bookkeeping, now
from airflow_provider_ckpt.connectors.sql.column_changes import are_made, names_after, needed_changes, state_of
from airflow_provider_ckpt.connectors.sql.columns import Table
from airflow_provider_ckpt.connectors.sql.database import Database
from airflow_provider_ckpt.connectors.sql.fence import fenced_epoch, locked_epoch, owner_digest
from airflow_provider_ckpt.connectors.sql.names import split_name
from airflow_provider_ckpt.core.errors import ConfigError, SinkError
from airflow_provider_ckpt.core.next_schema_version import StepKind, TargetStep
from airflow_provider_ckpt.core.schema_version import SchemaVersion

if TYPE_CHECKING:
    import sqlalchemy as sa

_RECEIPT, _BEGUN = "schema:", "altering:"
"""First parts of the names of rows in the table of replays: a version with a receipt, and a change without one."""

_LOCK_SECONDS = 60.0
"""Time for which a run that takes over tries to get the lock of columns, in seconds."""

_HINT = "The user needs ALTER on the target. Or change its columns by hand, then run again."


@dataclass(frozen=True, slots=True)
class BegunChange:
    """Change of a target's columns that has begun and has no receipt yet.

    :param version: the schema version
    :param steps: the changes of the target that the version requires
    :param before: name, type and nullability of the affected columns before the change, in the table's order
    :param after: names of the affected columns after the change, in the table's order
    """

    version: SchemaVersion
    steps: Sequence[TargetStep]
    before: Sequence[Sequence[Any]]
    after: Sequence[str]

    @property
    def names(self) -> frozenset[str]:
        """Names of the affected columns before and after the change."""
        return frozenset({str(column[0]) for column in self.before} | set(self.after))

    def to_json(self) -> dict[str, Any]:
        """Return the change as a JSON-ready dict; :meth:`from_json` is the inverse."""
        return {
            "version": self.version.to_json(),
            "steps": [[step.kind.value, step.name, step.type, step.spark_type] for step in self.steps],
            "before": [list(column) for column in self.before],
            "after": list(self.after),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> BegunChange:
        """Restore a change from the output of :meth:`to_json`."""
        steps = [TargetStep(StepKind(kind), *texts) for kind, *texts in data["steps"]]
        return cls(SchemaVersion.from_json(data["version"]), steps, data["before"], data["after"])


def read_versions(connection: sa.Connection, bookkeeping: Bookkeeping) -> list[SchemaVersion]:
    """Return the schema versions that have a receipt, in any order.

    :param connection: an open connection
    :param bookkeeping: the bookkeeping tables
    """
    return [SchemaVersion.from_json(document) for document in _documents(connection, bookkeeping, _RECEIPT)]


def read_begun(connection: sa.Connection, bookkeeping: Bookkeeping) -> list[BegunChange]:
    """Return the changes that have begun and have no receipt; there is one at most for each source partition.

    :param connection: an open connection
    :param bookkeeping: the bookkeeping tables
    """
    return [BegunChange.from_json(document) for document in _documents(connection, bookkeeping, _BEGUN)]


class TargetColumns:
    """Columns of a sink's target, which a run changes.

    :param database: connection of its own, marked so that a newer run can end its session; the caller closes it
    :param name: name of the target as the pipeline gives it
    :param key: key columns of an upsert; empty for append
    :param context: ids of the ledger and the pipeline
    :param epoch: epoch of the run
    """

    def __init__(self, database: Database, name: str, key: Sequence[str], context: SinkContext, epoch: int) -> None:
        self._database = database
        self._dialect = database.dialect
        self._name, self._key = name, key
        self._context = replace(context, epoch=epoch)
        self._operation = f"changing the columns of {name}"

    def apply(self, version: SchemaVersion, steps: Sequence[TargetStep]) -> None:
        """Change the columns to those of a schema version, and store its receipt.

        :param version: the version
        :param steps: the changes of the target; those that were already made are skipped
        :raises ConfigError: if a column cannot store the source's values; nothing was changed
        :raises FencedError: if the fence is at a newer epoch
        :raises SinkError: if the version has a receipt already, or another session changes the columns
        """
        if not self._dialect.transactional_ddl:
            self._take_lock()
        begun = None
        with self._database.session(self._operation, writes=True) as connection:
            table, bookkeeping = self._described(connection)
            self._refuse_unless_current(connection, bookkeeping)
            self._refuse_again(connection, bookkeeping, version)
            changes = needed_changes(table, steps, self._dialect, self._context.pipeline)
            if not changes or self._dialect.transactional_ddl:
                if changes:
                    self._dialect.alter_columns(connection, table, changes)
                self._store_receipt(connection, bookkeeping, version, steps)
            else:
                names = frozenset[str]().union(*(change.names for change in changes))
                begun = BegunChange(version, steps, state_of(table, names), names_after(table, changes))
                self._store(connection, bookkeeping, _BEGUN, version, begun.to_json())
        if begun is not None:
            self._finish(begun)

    def finish(self) -> None:
        """Complete the changes that runs have begun; when this returns, no older run changes the columns any more.

        The caller has raised the fence to the epoch.

        :raises ConfigError: if others have changed the affected columns since
        :raises FencedError: if the fence is at a newer epoch
        :raises SinkError: if a session of another user has the lock of columns for a minute, or a change fails
        """
        self._take_lock(ending=True)
        with self._database.session(self._operation) as connection:
            _, bookkeeping = self._described(connection)
            found = read_begun(connection, bookkeeping)
        for begun in found:
            self._finish(begun)

    def _finish(self, begun: BegunChange) -> None:
        """Make a change that has begun, unless it was made, and store its receipt.

        :param begun: the change
        :raises ConfigError: if others have changed the affected columns, so that it is not known whether it was made
        """
        with self._database.session(self._operation) as connection:
            table, bookkeeping = self._described(connection)
            self._refuse_unless_current(connection, bookkeeping)
        if state_of(table, begun.names) == [list(column) for column in begun.before]:
            self._alter(table, begun)
        elif not are_made(table, begun.after, begun.steps):
            raise ConfigError(
                f"the columns {', '.join(sorted(begun.names))} of target {table.label} are neither as they were before "
                f"the change to schema version {begun.version.number} nor as they are after it.",
                pipeline=self._context.pipeline,
                hint=f"Give the target the columns {', '.join(begun.after)} of the source's types, then run again.",
            )
        with self._database.session(self._operation, writes=True) as connection:
            self._refuse_unless_current(connection, bookkeeping)
            self._remove(connection, bookkeeping, begun)
            self._store_receipt(connection, bookkeeping, begun.version, begun.steps)

    def _alter(self, table: Table, begun: BegunChange) -> None:
        """Change the columns by one statement; if it fails and has changed nothing, the change has not begun.

        :param table: the target
        :param begun: the change
        :raises SinkError: if the statement failed
        """
        changes = needed_changes(table, begun.steps, self._dialect, self._context.pipeline)
        try:
            with self._database.session(self._operation, writes=True) as connection:
                self._dialect.alter_columns(connection, table, changes)
        except SinkError as error:
            error.hint = error.hint or _HINT
            if self._database.is_open:  # else the server may still execute the statement
                with suppress(SinkError):
                    self._withdraw(begun)
            raise

    def _withdraw(self, begun: BegunChange) -> None:
        with self._database.session(self._operation, writes=True) as connection:
            table, bookkeeping = self._described(connection)
            if state_of(table, begun.names) == [list(column) for column in begun.before]:
                self._remove(connection, bookkeeping, begun)

    def _take_lock(self, *, ending: bool = False) -> None:
        """Take the lock of columns for the rest of the session.

        :param ending: whether to end the session that has it, since this run has taken over
        :raises FencedError: if another session has it, and the fence is at a newer epoch
        :raises SinkError: if another session has it
        """
        mark, deadline = owner_digest(self._context), time.monotonic() + _LOCK_SECONDS
        while True:
            with self._database.session(self._operation) as connection:
                if self._dialect.lock_columns(connection, mark):
                    return
                _, bookkeeping = self._described(connection)
                fenced = fenced_epoch(connection, bookkeeping)
                refuse_unless_current(fenced, self._context.epoch, bookkeeping.place, self._context.pipeline)
                if not ending or time.monotonic() > deadline:
                    raise SinkError(
                        f"another session is changing the columns of {self._name}.",
                        pipeline=self._context.pipeline,
                        recoverable=True,
                        hint="Wait until it has ended, or end it; then run again.",
                    )
                self._dialect.end_column_change(connection, mark)

    def _described(self, connection: sa.Connection) -> tuple[Table, Bookkeeping]:
        table = self._dialect.find_table(connection, *split_name(self._name))
        if table is None:
            raise SinkError(
                f"target table {self._name} does not exist any more, so its columns were not changed.",
                pipeline=self._context.pipeline,
                hint="Create it again, or run again: the next run names the commands to choose from.",
            )
        return table, Bookkeeping(self._dialect, table.schema, self._context)

    def _refuse_unless_current(self, connection: sa.Connection, bookkeeping: Bookkeeping) -> None:
        """Lock the fence until the transaction ends, and raise an error unless it is at the run's epoch."""
        fenced = locked_epoch(connection, bookkeeping)
        refuse_unless_current(fenced, self._context.epoch, bookkeeping.place, self._context.pipeline)

    def _refuse_again(self, connection: sa.Connection, bookkeeping: Bookkeeping, version: SchemaVersion) -> None:
        """Raise an error if the version has a receipt, or a change of its partition has begun.

        :param connection: the connection with the transaction that has locked the fence
        :param bookkeeping: the bookkeeping tables
        :param version: the version
        """
        known = read_versions(connection, bookkeeping)
        begun = [found.version for found in read_begun(connection, bookkeeping)]
        if any(found.partition == version.partition and found.number == version.number for found in known):
            problem = f"schema version {version.number} has a receipt in {bookkeeping.place} already."
        elif any(found.partition == version.partition for found in begun):
            problem = f"a change of the columns of {self._name} has begun and has no receipt in {bookkeeping.place}."
        else:
            return
        raise SinkError(
            problem,
            pipeline=self._context.pipeline,
            recoverable=True,
            hint="Run again: the run completes what has begun, and reads the versions that the sink has first.",
        )

    def _store_receipt(
        self, connection: sa.Connection, bookkeeping: Bookkeeping, version: SchemaVersion, steps: Sequence[TargetStep]
    ) -> None:
        """Store the receipt of a schema version, with a new snapshot of the target if its columns may have changed.

        :param connection: the connection with the transaction that has locked the fence
        :param bookkeeping: the bookkeeping tables
        :param version: the version
        :param steps: the changes of the target that the version requires
        """
        self._store(connection, bookkeeping, _RECEIPT, version, version.to_json())
        if steps:
            table, _ = self._described(connection)
            lost_rows.store_snapshot(connection, table, self._key, bookkeeping, self._context.epoch)

    def _store(
        self, connection: sa.Connection, bookkeeping: Bookkeeping, kind: str, version: SchemaVersion, document: Any
    ) -> None:
        key = {"ledger": self._context.ledger, "pipeline": self._context.pipeline}
        row = key | {"partition": _name(kind, version), "replay": json.dumps(document), "at": now()}
        connection.execute(bookkeeping.table(REPLAY).insert().values(row))

    def _remove(self, connection: sa.Connection, bookkeeping: Bookkeeping, begun: BegunChange) -> None:
        rows = bookkeeping.table(REPLAY)
        name = _name(_BEGUN, begun.version)
        connection.execute(rows.delete().where(bookkeeping.mine(rows) & (rows.c.partition == name)))


def _name(kind: str, version: SchemaVersion) -> str:
    """Return the name of a row in the table of replays, such as ``schema:2:public.orders``."""
    return f"{kind}{version.number}:{version.partition}"


def _documents(connection: sa.Connection, bookkeeping: Bookkeeping, kind: str) -> list[Any]:
    import sqlalchemy as sa

    rows = bookkeeping.table(REPLAY)
    query = sa.select(rows.c.replay).where(bookkeeping.mine(rows) & rows.c.partition.startswith(kind, autoescape=True))
    return [json.loads(document) for (document,) in connection.execute(query)]
