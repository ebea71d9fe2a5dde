"""Copy ranges of pages of a table to the staging table of a refresh as bytes of binary COPY; see ``raw_copy.py``."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_ckpt.connectors.postgres.connector import PostgresSinkSection, PostgresSourceSection
from airflow_provider_ckpt.connectors.postgres.copied_rows import NO_ROWS, joined_rows
from airflow_provider_ckpt.connectors.postgres.page_query import PageQuery, import_snapshot
from airflow_provider_ckpt.connectors.postgres.raw_copy import BatchQuery, PostgresRawCopy, Session
from airflow_provider_ckpt.connectors.postgres.staging import staging_place
from airflow_provider_ckpt.connectors.postgres.table import describe_table, psycopg_fetch
from airflow_provider_ckpt.connectors.raw_copy_protocol import RawRows
from airflow_provider_ckpt.core.wave_messages import BatchTask


class PostgresPageCopy(PostgresRawCopy):
    """Raw copy of one lane from the pages of a table to a staging table, under the snapshot of the refresh.

    All batches of a lane belong to one refresh. Its parameters are those of :class:`.PostgresRawCopy`.
    """

    def _columns_to_copy(self) -> list[str]:
        return [name for name, _ in self._shape.columns]

    def _target_name(self, task: BatchTask) -> str:
        return staging_place(PostgresSinkSection.of(self._pipeline).table, task.key.generation)

    def _describe(self, session: Session, task: BatchTask) -> BatchQuery | None:
        with session.cursor() as cursor:
            for statement in import_snapshot(task):
                cursor.execute(statement)
        table = describe_table(psycopg_fetch(session), PostgresSourceSection.of(self._pipeline).table)
        return None if table is None else PageQuery(table)

    def _to_rows(self, messages: Sequence[bytes], query: BatchQuery, task: BatchTask) -> RawRows | None:  # noqa: ARG002
        """Return the rows of a COPY, each with the number of the batch's first page as its position.

        The exact positions are not needed, since no receipt of a refresh stores positions. Return None if the messages
        are not one for each row.

        :param messages: all messages of the COPY
        :param query: not used
        :param task: the batch
        """
        import numpy as np

        data = joined_rows(messages)
        if data is None:
            return None
        number = 0 if data == NO_ROWS else len(messages) - 1
        return RawRows(data, np.full(number, task.range.start, np.int64))

    def _positions(self, rows: RawRows) -> None:
        """Return None, so that the receipt stores no positions: no row appears late in a snapshot."""
