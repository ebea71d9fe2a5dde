"""Build the query that reads one batch of a refresh: the pages of a table, under the snapshot of the refresh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_provider_ckpt.connectors.postgres.client import literal
from airflow_provider_ckpt.connectors.postgres.table import Table
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask

PAGE = "(ctid::text::point)[0]::bigint"
"""SQL expression of the number of the page that contains a row."""


@dataclass(frozen=True, slots=True)
class PageQuery:
    """Query for the rows in a range of pages.

    :param table: the source table
    """

    table: Table

    def select(self, columns: Sequence[str], span: Range) -> str:
        """Return the SELECT statement for the rows in a range of pages; it returns them in the order of the pages.

        :param columns: SQL expressions of the columns to return
        :param span: numbers of the pages
        """
        low, high = (f"'({page},0)'::tid" for page in (span.start, span.end))
        return f"SELECT {', '.join(columns)} FROM ONLY {self.table.sql} WHERE ctid >= {low} AND ctid < {high}"


def import_snapshot(task: BatchTask) -> Sequence[str]:
    """Return the statements that begin a read-only transaction under the snapshot of a batch's refresh.

    :param task: the batch, with the snapshot's id in its ``detail``
    :raises SourceError: if the batch has no snapshot
    """
    snapshot = task.detail.get("snapshot")
    if snapshot is None:
        raise SourceError("the batch was not given the snapshot of its refresh", batch=str(task.key))
    return ["BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", f"SET TRANSACTION SNAPSHOT {literal(snapshot)}"]
