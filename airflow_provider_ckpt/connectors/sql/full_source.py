"""Planning side of the sql source with ``mode: full``: all rows of a table or view, in one batch.

Since several connections cannot share a snapshot, one query reads all rows, as of the time of the query. Position 0
represents the whole table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.source_plan import Plan, PlannedBatch, PlanRequest, SourceFile
from airflow_provider_ckpt.connectors.sql.source_session import SqlSourceSession
from airflow_provider_ckpt.connectors.sql.source_table import WholeTable, look_up_whole
from airflow_provider_ckpt.connectors.whole_table_source import WholeTableSource
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.refresh import RefreshExtent

if TYPE_CHECKING:
    import sqlalchemy as sa

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.core.wave_messages import BatchTask

MAX_ROWS = 1_000_000
"""Greatest number of rows of a table that is read as a whole, since one lane holds all of them in memory."""


class SqlFullSource(WholeTableSource, SqlSourceSession[WholeTable]):
    """Source that reads a whole table in each run.

    See :class:`~airflow_provider_ckpt.connectors.source_protocol.RefreshedSource`.

    :param pipeline: ``source.table`` names the table
    :param connection: the Airflow connection of the database
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None) -> None:
        super().__init__(pipeline, connection)
        self._refresh: str | None = None

    def check(self) -> None:
        """Raise ConfigError if the table or its columns are unsuitable; see :meth:`Source.check`."""
        with self._database.session(f"checking {self._section.table}") as connection:
            self._table(connection)

    def begin_refresh(self, partition: str) -> RefreshExtent:  # noqa: ARG002 - the table is the only partition
        """Return the extent of a new refresh, one position; see :class:`RefreshedSource`.

        :raises ConfigError: if the table has more than :data:`MAX_ROWS` rows
        """
        with self._database.session(f"counting the rows of {self._section.table}") as connection:
            table = self._table(connection)
            if table.count_up_to(connection, MAX_ROWS + 1) > MAX_ROWS:
                raise ConfigError(
                    f"{table.label} has more than {MAX_ROWS:,} rows, and mode: full of a sql source reads all of them "
                    "in one batch.",
                    pipeline=self._pipeline,
                    hint="Give source.cursor and leave source.mode out, or name views of parts of the table.",
                )
        self._refresh = uuid4().hex
        return RefreshExtent(1, self._refresh, {})

    def holds_snapshot(self, snapshot: str) -> bool:
        """Return whether an id is that of the newest refresh that this object began (:meth:`begin_refresh`)."""
        return snapshot == self._refresh

    def plan(self, request: PlanRequest) -> Plan:
        """Return one batch for each range that has an end, and none for the others; see :meth:`Source.plan`."""
        todo = [(item.partition, Range(item.start, item.end)) for item in request.ranges if item.end is not None]
        if not todo:
            return Plan()
        with self._database.session(f"counting the rows of {self._section.table}") as connection:
            records = self._table(connection).count_up_to(connection, MAX_ROWS)
        return Plan([PlannedBatch(partition, span, max(records, 1)) for partition, span in todo])

    def locate(self, tasks: Sequence[BatchTask], files: Sequence[SourceFile]) -> Sequence[BatchTask]:  # noqa: ARG002
        """Return the tasks as they are: a reader needs the table alone."""
        return tasks

    def _look_up(self, connection: sa.Connection) -> WholeTable:
        return look_up_whole(self._database, connection, self._section)
