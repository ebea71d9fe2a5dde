"""Queries of the ledger for runs, commands and users, as methods that :class:`Ledger` inherits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.receipt import KnownReceipts
from airflow_provider_ckpt.core.recovery import MissingRange, SourceComparison, find_missing
from airflow_provider_ckpt.core.schema_version import SchemaVersion
from airflow_provider_ckpt.ledger.queries import (
    audit,
    database_progress,
    inspect_batches,
    measures,
    range_receipts,
    schema_versions,
    status,
)
from airflow_provider_ckpt.ledger.queries.subscription import Subscription
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import partition_history
from airflow_provider_ckpt.ledger.types import Measures, PartitionRecord

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.source_plan import SourceFile
    from airflow_provider_ckpt.core.ranges import Range
    from airflow_provider_ckpt.core.sink_audit import LedgerSnapshot


class Queries(Session):
    """Queries of the ledger; each reads the tables in one snapshot, without a lease."""

    def partitions(self, pipeline: str) -> dict[str, PartitionRecord]:
        """Return every partition of a pipeline by id, with the batches beyond its checkpoint; empty if it never ran."""
        with self._reading() as connection:
            return {name: item.record for name, item in status.partitions(connection, pipeline).items()}

    def database_progress(self, database: str) -> dict[str, database_progress.PipelineProgress]:
        """Return the progress of all pipelines of a declaration of many tables, by name of the pipeline.

        It consists of the end of the plan, and whether batches are not resolved or stored actions not applied.

        :param database: name of the declaration, with which the names of its pipelines begin
        """
        with self._reading() as connection:
            return database_progress.database_progress(connection, database)

    def collected_ends(self, pipeline: str) -> dict[str, KnownReceipts]:
        """Return the end position of each side partition that was garbage-collected.

        The sink may still have receipts of such a side partition. The ledger has known all that end at this position or
        before it, and must not take them for new ones.

        :return: generation and end position, by id of the side partition
        """
        with self._reading() as connection:
            return partition_history.collected_ends(connection, pipeline)

    def files(self, pipeline: str, ranges: Sequence[Range] | None = None, *, first: int = 0) -> list[SourceFile]:
        """Return the files that a source of type ``files`` has discovered, in the order of their positions.

        :param pipeline: name of the pipeline
        :param ranges: ranges of positions; only files that overlap one of them are returned. None for all files
        :param first: number of the first file to return, counted from 0 in the order of discovery
        """
        with self._reading() as connection:
            return status.files(connection, pipeline, ranges, first)

    def schema_versions(self, pipeline: str, partition: str) -> list[SchemaVersion]:
        """Return the schema versions of a source partition, oldest first; empty if it has none.

        :param pipeline: name of the pipeline
        :param partition: id of the source partition
        """
        with self._reading() as connection:
            return schema_versions.load(connection, pipeline, partition)

    def schema_history(self, pipeline: str) -> list[dict[str, Any]]:
        """Return all schema versions of a pipeline with their columns, by partition and version, JSON-ready.

        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            status.require_pipeline(connection, pipeline)
            return schema_versions.history(connection, pipeline)

    def receipts(self, pipeline: str) -> list[RangeReceipt]:
        """Return the range receipts below the checkpoints, ordered by generation, partition and position.

        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            status.require_pipeline(connection, pipeline)
            return range_receipts.load(connection, pipeline)

    def events(self, pipeline: str, limit: int = 100) -> list[dict[str, Any]]:
        """Return the newest events of a pipeline's audit log, oldest first, JSON-ready.

        :param limit: maximum number of events
        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            status.require_pipeline(connection, pipeline)
            return status.events(connection, pipeline, limit)

    def positions_at(self, pipeline: str, at: datetime) -> dict[str, int]:
        """Return the checkpoint that each source partition had at an earlier time, for a rewind to that time.

        Where the exact checkpoint is not stored, the position is an earlier one, never a later one.

        :param at: the time, with a time zone
        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            status.require_pipeline(connection, pipeline)
            return partition_history.positions_at(connection, pipeline, at)

    def recovery_plan(
        self,
        pipeline: str,
        *,
        settle_lag: timedelta,
        now: datetime | None = None,
        window: timedelta | None = None,
        compare: SourceComparison | None = None,
    ) -> list[MissingRange]:
        """Return the ranges above the low watermarks with records that were never read; see ``core/recovery.py``.

        :param pipeline: name of the pipeline
        :param settle_lag: minimum age: ranges that were planned or got a receipt more recently are left out
        :param now: time from which ages are calculated; None for the current time
        :param window: the recovery window, with which the current low watermark is computed; None to use the stored
            low watermark
        :param compare: function that compares ranges of a partition with the source, called after the transaction that
            reads the ledger; None to find only ranges without a receipt, without reading the source
        :raises ConfigError: if the ledger does not know the pipeline, or no run has stored its partitions yet
        """
        moment = now or datetime.now(UTC)
        with self._reading() as connection:
            known = status.accounts(connection, pipeline, now=moment, settle_lag=settle_lag, window=window)
        if not known:
            raise ConfigError(
                "it has never run, so no first position is known to compare the source with.",
                pipeline=pipeline,
                hint="Run it once; source.start_from declares where it begins.",
            )
        return find_missing(known, before=moment - settle_lag, compare=compare)

    def subscribe(
        self,
        pipeline: str,
        after: int | None = None,
        *,
        settle_lag: timedelta = timedelta(0),
        now: datetime | None = None,
        window: timedelta | None = None,
        compare: SourceComparison | None = None,
    ) -> Subscription:
        """Return a reader of the ranges that are missing now and of all later events, without gaps or duplicates.

        :param pipeline: name of the pipeline
        :param after: id of the event after which to continue, as an earlier :attr:`Subscription.after` returned it;
            missing ranges are not determined then. None to begin with the ranges that are missing now
        :param settle_lag: minimum age: ranges that were planned or got a receipt more recently are left out
        :param now: time from which ages are calculated; None for the current time
        :param window: the recovery window, with which the current low watermark is computed; None to use the stored
            low watermark
        :param compare: function that compares ranges of a partition with the source; None to find only ranges without a
            receipt, without reading the source
        :raises ConfigError: if the ledger does not know the pipeline
        """
        moment = now or datetime.now(UTC)
        found: list[MissingRange] = []
        if after is None:
            with self._reading() as connection:
                known = status.accounts(connection, pipeline, now=moment, settle_lag=settle_lag, window=window)
                after = status.last_event(connection, pipeline)
            found = find_missing(known, before=moment - settle_lag, compare=compare)
        return Subscription(self._reading, pipeline, found, after)

    def audit(self, pipeline: str, *, quick: bool = False) -> dict[str, Any]:
        """Check a pipeline's data in the ledger, and account for every position.

        Each check is of an invariant with a name, such as ``NoCommitByStaleEpoch``.

        :param pipeline: name of the pipeline
        :param quick: whether to leave out the merged receipts, so that the whole history is not read
        :return: JSON-ready dict of the checked invariants, the violations, and the account of each partition; see
            ``audit.py``
        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            return audit.audit(connection, pipeline, quick=quick)

    def ledger_snapshot(self, pipeline: str) -> LedgerSnapshot:
        """Return the ledger's receipts, batches and numbers of dead letters, for the comparison with the sink.

        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            return audit.load_snapshot(connection, pipeline)

    def newest_event(self, pipeline: str) -> int:
        """Return the id of the newest event in a pipeline's audit log; 0 if the log is empty."""
        with self._reading() as connection:
            return status.last_event(connection, pipeline)

    def measures(self, pipeline: str, after: int | None = None) -> Measures:
        """Return the values that metrics report for a pipeline as a whole; see ``measures.py``.

        :param pipeline: name of the pipeline
        :param after: id of an event; only ranges that expired after this event are returned. None to return no expired
            ranges
        """
        with self._reading() as connection:
            return measures.measure(connection, pipeline, after)

    def inspect(self, pipeline: str, what: BatchKey | str | None = None) -> dict[str, Any]:
        """Return details of a batch, of a partition, or of all unresolved batches; JSON-ready.

        :param pipeline: name of the pipeline
        :param what: key of a batch, id of a partition, or None for all unresolved batches
        :raises ConfigError: if the ledger does not know the pipeline
        :raises LedgerStateError: if the ledger does not know the batch or partition
        """
        with self._reading() as connection:
            return inspect_batches.inspect(connection, pipeline, what)

    def pipelines(self) -> list[str]:
        """Return the names of all pipelines in the ledger, in alphabetical order."""
        with self._reading() as connection:
            return status.pipelines(connection)

    def status(self, pipeline: str) -> dict[str, Any]:
        """Return the status of a pipeline as a JSON-ready dict: phase, lease, partitions, batches, receipts, events.

        :raises ConfigError: if the ledger does not know the pipeline; the error names similar ones
        """
        with self._reading() as connection:
            return status.status(connection, self.id, pipeline)
