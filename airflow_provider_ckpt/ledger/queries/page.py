"""Queries for the page in Airflow, as methods that :class:`Ledger` inherits from :class:`PageQueries`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import IndexEntry, RereadRange
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.ledger.queries import (
    lag_history,
    line,
    marks,
    overview,
    pages,
    pipeline_tasks,
    refreshes,
    status,
)
from airflow_provider_ckpt.ledger.queries.lag_history import LagPoint
from airflow_provider_ckpt.ledger.queries.line import PartitionLine
from airflow_provider_ckpt.ledger.queries.marks import Marks
from airflow_provider_ckpt.ledger.queries.overview import Overview
from airflow_provider_ckpt.ledger.queries.pages import BatchFilter, DeadLetterFilter
from airflow_provider_ckpt.ledger.queries.pipeline_tasks import PlannedPipeline
from airflow_provider_ckpt.ledger.queries.refreshes import RefreshProgress
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import dead_letter_index
from airflow_provider_ckpt.ledger.store.failed_runs import FailedRun, load_failures


class PageQueries(Session):
    """Queries with answers of bounded size, whose cost does not grow with the history of the pipelines."""

    def overview(self, pipeline: str | None = None, *, now: datetime | None = None) -> Overview:
        """Return the state of all pipelines, or of one; the list is empty if there is no such pipeline.

        :param pipeline: name of the pipeline; None for all
        :param now: time from which ages are calculated; None for the database's time
        """
        with self._reading() as connection:
            return overview.overview(connection, pipeline, now)

    def failed_runs(self, prefix: str) -> dict[str, FailedRun]:
        """Return the failures of the pipelines whose newest run has failed, by name of the pipeline.

        :param prefix: beginning of the names of the pipelines to look at; empty for all
        """
        with self._reading() as connection:
            return load_failures(connection, prefix)

    def planned_pipeline(self, pipeline: str) -> PlannedPipeline | None:
        """Return a pipeline with the Airflow tasks that have planned it; None if there is no such pipeline."""
        with self._reading() as connection:
            return pipeline_tasks.planned_pipeline(connection, pipeline)

    def lag_history(self, pipelines: Sequence[str], times: Sequence[datetime]) -> dict[str, list[LagPoint]]:
        """Return the sums of planned ends and checkpoints of pipelines at some times, by name of the pipeline.

        :param pipelines: names of the pipelines
        :param times: the times, oldest first
        """
        with self._reading() as connection:
            return lag_history.lag_history(connection, pipelines, times)

    def lines(
        self,
        pipeline: str,
        partitions: Sequence[str] | None = None,
        *,
        after: str | None = None,
        limit: int = 20,
        window: Range | None = None,
        buckets: int = 400,
    ) -> list[PartitionLine]:
        """Return the number lines of some partitions of a pipeline, ordered by id; see ``line.py``.

        :param pipeline: name of the pipeline
        :param partitions: ids of the partitions; None for all
        :param after: only partitions whose id is greater, for the next page; None for all
        :param limit: maximum number of partitions
        :param window: the range of positions to describe; None for the range from shortly before the low watermark to
            the end of the plan, or to the known end of the source if that is later
        :param buckets: number of buckets into which the window is divided if there are many batches or receipts
        """
        with self._reading() as connection:
            return line.lines(
                connection, pipeline, partitions=partitions, after=after, limit=limit, window=window, buckets=buckets
            )

    def refreshes(self, pipeline: str) -> list[RefreshProgress]:
        """Return the progress of a pipeline's refreshes that are not published, in the order of partitions, at most 20.

        :param pipeline: name of the pipeline
        """
        with self._reading() as connection:
            return refreshes.refreshes(connection, pipeline)

    def marks(self, pipeline: str, since: datetime, until: datetime) -> Marks:
        """Return the leases that began, and the actions that users took, in a period; see ``marks.py``.

        :param pipeline: name of the pipeline
        :param since: start of the period
        :param until: end of the period, exclusive
        """
        with self._reading() as connection:
            return marks.marks(connection, pipeline, since, until)

    def batch_page(
        self, pipeline: str, chosen: BatchFilter, *, after: tuple[str, int] | None = None, limit: int = 50
    ) -> tuple[list[Batch], dict[str, int]]:
        """Return a page of the batches of the present generations, and the number of batches by state.

        :param pipeline: name of the pipeline
        :param chosen: filter of the batches
        :param after: partition and seq of the last batch of the previous page; None for the first page
        :param limit: maximum number of batches
        :return: the batches, and the number of batches by state, counted without the filter by state
        """
        with self._reading() as connection:
            return pages.batches(connection, pipeline, chosen, after=after, limit=limit)

    def event_page(
        self,
        pipeline: str,
        *,
        before: int | None = None,
        limit: int = 50,
        kinds: Sequence[str] = (),
        actor: str | None = None,
        key: BatchKey | None = None,
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return a page of the audit log, newest first, and the id before which the next page begins.

        :param pipeline: name of the pipeline
        :param before: only events with a lower id; None for the newest
        :param limit: maximum number of events
        :param kinds: only events of these kinds; all if empty
        :param actor: only events of this actor; None for all
        :param key: only events of this batch; None for all
        :return: the events, and the id for ``before`` of the next page; None if there is no further page
        """
        with self._reading() as connection:
            return pages.events(connection, pipeline, before=before, limit=limit, kinds=kinds, actor=actor, key=key)

    def dead_letter_page(
        self, pipeline: str, chosen: DeadLetterFilter, *, after: Sequence[Any] | None = None, limit: int = 50
    ) -> tuple[list[IndexEntry], list[RereadRange]]:
        """Return a page of the dead letter index, and the ranges of the source that were read again.

        :param pipeline: name of the pipeline
        :param chosen: filter of the dead letters
        :param after: generation, partition, seq, error type and ordinal of the last entry of the previous page; None
            for the first page
        :param limit: maximum number of entries
        :return: the entries, and the ranges; older dead letters in such a range are obsolete
        """
        with self._reading() as connection:
            found = pages.dead_letters(connection, pipeline, chosen, after=after, limit=limit)
            return found, dead_letter_index.load_rereads(connection, pipeline)

    def dead_letter_groups(
        self, pipeline: str, chosen: DeadLetterFilter, *, limit: int
    ) -> tuple[list[dict[str, Any]], dict[str, int]]:
        """Return the numbers of dead letters by hour, error type and state, newest first, and by state alone.

        :param pipeline: name of the pipeline
        :param chosen: filter of the dead letters
        :param limit: maximum number of groups
        """
        with self._reading() as connection:
            groups = pages.dead_letter_groups(connection, pipeline, chosen, limit=limit)
            return groups, pages.dead_letter_totals(connection, pipeline, chosen)

    def proposal_page(self, pipeline: str, *, limit: int = 50) -> list[dict[str, Any]]:
        """Return the newest proposals of a pipeline, newest first, as dicts by column of the ledger's table.

        The columns ``subject`` and ``body``, the text of the question to the approver, are left out.

        :param pipeline: name of the pipeline
        :param limit: maximum number of proposals
        """
        with self._reading() as connection:
            return pages.proposals(connection, pipeline, limit=limit)

    def stored_action_page(self, pipeline: str, *, ended: int = 20) -> list[dict[str, Any]]:
        """Return the stored actions that wait for a run, and the newest applied or refused ones, newest first.

        Each action is a dict by column of the ledger's table.

        :param pipeline: name of the pipeline
        :param ended: maximum number of applied or refused actions
        """
        with self._reading() as connection:
            return pages.stored_actions(connection, pipeline, ended=ended)

    def partition_rows(self, pipeline: str, *, limit: int = 500) -> tuple[list[dict[str, Any]], int]:
        """Return the partitions of a pipeline, source partitions first, and the number of all partitions.

        Each partition is a dict by column of the ledger's table. Its additional key ``states`` has the number of
        batches beyond the checkpoint by state, and ``batches_settled`` the number of batches that the checkpoint has
        passed.

        :param pipeline: name of the pipeline
        :param limit: maximum number of rows
        """
        with self._reading() as connection:
            return pages.partition_rows(connection, pipeline, limit=limit)

    def declaration(self, pipeline: str) -> dict[str, Any] | None:
        """Return the declaration that the newest run of a pipeline stored; None if there is none.

        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            document: dict[str, Any] | None = status.require_pipeline(connection, pipeline).document
            return document


def lines_of(connection: Connection, pipeline: str, windows: Mapping[str, Range | None]) -> list[PartitionLine]:
    """Return the number lines of some existing partitions, each in a window of its own.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param windows: by partition, the range of positions to describe; None for the range that :func:`.line.lines`
        describes by default
    """
    return [
        found
        for name, window in windows.items()
        for found in line.lines(connection, pipeline, partitions=[name], window=window)
    ]
