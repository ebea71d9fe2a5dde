"""Class with the ledger's queries as methods, from which :class:`Ledger` inherits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.receipt import KnownReceipts
from airflow_provider_ckpt.core.recovery import MissingRange, SourceComparison, find_missing
from airflow_provider_ckpt.ledger.queries import audit, inspect_batches, measures, range_receipts, status
from airflow_provider_ckpt.ledger.queries.subscription import Subscription
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import partition_history
from airflow_provider_ckpt.ledger.types import Measures, PartitionRecord

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.source_protocol import SourceFile
    from airflow_provider_ckpt.core.ranges import Range
    from airflow_provider_ckpt.core.sink_audit import LedgerSnapshot


class Queries(Session):
    """Queries of the ledger; each reads the tables in one snapshot, without a lease."""

    def partitions(self, pipeline: str) -> dict[str, PartitionRecord]:
        """Return every partition by id, with the batches beyond its checkpoint; empty if the pipeline never ran."""
        with self._reading() as connection:
            return {name: item.record for name, item in status.partitions(connection, pipeline).items()}

    def collected_ends(self, pipeline: str) -> dict[str, KnownReceipts]:
        """Return the end positions of garbage-collected side partitions; receipts up to there are known."""
        with self._reading() as connection:
            return partition_history.collected_ends(connection, pipeline)

    def files(self, pipeline: str, ranges: Sequence[Range] | None = None) -> list[SourceFile]:
        """Return the files that a source of type ``files`` has discovered, in the order of their positions.

        :param pipeline: name of the pipeline
        :param ranges: return only files that overlap one of these ranges; None for all files
        """
        with self._reading() as connection:
            return status.files(connection, pipeline, ranges)

    def receipts(self, pipeline: str) -> list[RangeReceipt]:
        """Return the receipts below the checkpoint, ordered by generation, partition and position.

        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            status.require_pipeline(connection, pipeline)
            return range_receipts.load(connection, pipeline)

    def events(self, pipeline: str, limit: int = 100) -> list[dict[str, Any]]:
        """Return the newest events of the audit log in order, JSON-ready.

        :param limit: maximum number of events
        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            status.require_pipeline(connection, pipeline)
            return status.events(connection, pipeline, limit)

    def positions_at(self, pipeline: str, at: datetime) -> dict[str, int]:
        """Return the checkpoint of each source partition at a time, or an earlier position, never a later one.

        :param at: the time, with a zone
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
        shown: SourceComparison | None = None,
    ) -> list[MissingRange]:
        """Return the ranges above the low watermarks with records that were never read; see ``core/recovery.py``.

        :param pipeline: name of the pipeline
        :param settle_lag: minimum age: ranges that were planned or got a receipt more recently are left out
        :param now: time from which ages are calculated; the current time if None
        :param window: distance at which the low watermark would be by now; if None, it is taken as stored
        :param shown: compares ranges of a partition with the source, after the snapshot was closed; if None, the source
            is not asked
        :raises ConfigError: if the ledger does not know the pipeline, or no run has declared its first start
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
        return find_missing(known, before=moment - settle_lag, shown=shown)

    def subscribe(
        self,
        pipeline: str,
        after: int | None = None,
        *,
        settle_lag: timedelta = timedelta(0),
        now: datetime | None = None,
        window: timedelta | None = None,
        shown: SourceComparison | None = None,
    ) -> Subscription:
        """Return a reader of the ranges that are missing now and of all later events, without gaps or duplicates.

        :param pipeline: name of the pipeline
        :param after: continue after this event, which :attr:`Subscription.after` gave, instead of looking for what is
            missing
        :param settle_lag: minimum age: ranges that were planned or got a receipt more recently are left out
        :param now: time from which ages are calculated; the current time if None
        :param window: distance at which the low watermark would be by now; if None, it is taken as stored
        :param shown: compares ranges of a partition with the source; if None, the source is not asked
        :raises ConfigError: if the ledger does not know the pipeline
        """
        moment = now or datetime.now(UTC)
        found: list[MissingRange] = []
        if after is None:
            with self._reading() as connection:
                known = status.accounts(connection, pipeline, now=moment, settle_lag=settle_lag, window=window)
                after = status.last_event(connection, pipeline)
            found = find_missing(known, before=moment - settle_lag, shown=shown)
        return Subscription(self._reading, pipeline, found, after)

    def audit(self, pipeline: str, *, quick: bool = False) -> dict[str, Any]:
        """Check every named invariant and account for every position; JSON-ready, see ``audit.py``.

        :param pipeline: name of the pipeline
        :param quick: whether to check only what lies beyond the merged receipts, instead of the whole history
        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            return audit.audit(connection, pipeline, quick=quick)

    def ledger_snapshot(self, pipeline: str) -> LedgerSnapshot:
        """Return the ledger's receipts, batches and numbers of dead letters, for a comparison with the sink.

        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            return audit.load_snapshot(connection, pipeline)

    def measures(self, pipeline: str, after: int | None = None) -> Measures:
        """Return measured values of a pipeline that do not belong to one partition; see ``measures.py``.

        :param pipeline: name of the pipeline
        :param after: report ranges that expired after this event; none if None
        """
        with self._reading() as connection:
            return measures.measure(connection, pipeline, after)

    def inspect(self, pipeline: str, what: BatchKey | str | None = None) -> dict[str, Any]:
        """Return details of a batch, of a partition, or of everything unresolved; JSON-ready.

        :param pipeline: name of the pipeline
        :param what: key of a batch, id of a partition, or None for everything unresolved
        :raises ConfigError: if the ledger does not know the pipeline
        :raises LedgerStateError: if it does not know the batch or partition
        """
        with self._reading() as connection:
            return inspect_batches.inspect(connection, pipeline, what)

    def pipelines(self) -> list[str]:
        """Return the names of all pipelines in the ledger, in alphabetical order."""
        with self._reading() as connection:
            return status.pipelines(connection)

    def status(self, pipeline: str) -> dict[str, Any]:
        """Return the status of a pipeline, JSON-ready.

        :raises ConfigError: if the ledger does not know it; names similar ones
        """
        with self._reading() as connection:
            return status.status(connection, self.id, pipeline)
