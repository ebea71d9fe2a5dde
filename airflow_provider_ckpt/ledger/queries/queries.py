"""What the ledger shows of a pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.batch import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.receipts import Known, RangeReceipt
from airflow_provider_ckpt.core.recovery import Missing, Shown, missing
from airflow_provider_ckpt.ledger.queries import audit as audits
from airflow_provider_ckpt.ledger.queries import inspect_batches, recorded
from airflow_provider_ckpt.ledger.queries import measures as measuring
from airflow_provider_ckpt.ledger.queries import range_receipts as ranges
from airflow_provider_ckpt.ledger.queries import status as reads
from airflow_provider_ckpt.ledger.queries.subscription import Subscription
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import partition_history
from airflow_provider_ckpt.ledger.types import Measures, PartitionRecord

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.protocols import SourceFile
    from airflow_provider_ckpt.core.ranges import Range
    from airflow_provider_ckpt.core.sink_comparison import Recorded


class Views(Session):
    """Reads; each is one snapshot and takes no lease."""

    def partitions(self, pipeline: str) -> dict[str, PartitionRecord]:
        """Every partition by id, with the batches beyond its checkpoint; empty for a pipeline that never ran."""
        with self._reading() as connection:
            return {name: item.record for name, item in reads.partitions(connection, pipeline).items()}

    def collected(self, pipeline: str) -> dict[str, Known]:
        """Up to where no receipt of the sink's is news, of side partitions that are ended and collected."""
        with self._reading() as connection:
            return partition_history.collected(connection, pipeline)

    def files(self, pipeline: str, ranges: Sequence[Range] | None = None) -> list[SourceFile]:
        """Discovered files by ordinal, all or those that overlap one of the ranges."""
        with self._reading() as connection:
            return reads.files(connection, pipeline, ranges)

    def receipts(self, pipeline: str) -> list[RangeReceipt]:
        """What the checkpoint has passed, by generation, partition and position."""
        with self._reading() as connection:
            reads.known(connection, pipeline)
            return ranges.load(connection, pipeline)

    def events(self, pipeline: str, limit: int = 100) -> list[dict[str, Any]]:
        """The newest events of the audit trail, oldest of them first, JSON-ready."""
        with self._reading() as connection:
            reads.known(connection, pipeline)
            return reads.events(connection, pipeline, limit)

    def positions_at(self, pipeline: str, at: datetime) -> dict[str, int]:
        """Where the checkpoint of each source partition stood at some time, and never later than that; for a rewind.

        :param at: aware
        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            reads.known(connection, pipeline)
            return partition_history.positions_at(connection, pipeline, at)

    def recovery_plan(
        self,
        pipeline: str,
        *,
        settle_lag: timedelta,
        now: datetime | None = None,
        window: timedelta | None = None,
        shown: Shown | None = None,
    ) -> list[Missing]:
        """What is above the low watermarks and unaccounted for, each position once; see ``core/recovery.py``.

        :param settle_lag: leave out what is younger
        :param window: where the low watermark would stand by now; where it was stored if None
        :param shown: asks the source how many records it shows in some ranges of a partition, after the read has ended
        :raises ConfigError: if the ledger does not know the pipeline, or no run has declared its first start
        """
        moment = now or datetime.now(UTC)
        with self._reading() as connection:
            known = reads.accounts(connection, pipeline, now=moment, settle_lag=settle_lag, window=window)
        if not known:
            raise ConfigError(
                "its first start was never declared, so nothing can be said to be missing.",
                pipeline=pipeline,
                hint="Run it once: source.start_from says where it begins.",
            )
        return missing(known, before=moment - settle_lag, shown=shown)

    def subscribe(
        self,
        pipeline: str,
        after: int | None = None,
        *,
        settle_lag: timedelta = timedelta(0),
        now: datetime | None = None,
        window: timedelta | None = None,
        shown: Shown | None = None,
    ) -> Subscription:
        """What is missing now, then everything new, without a gap or a double; see ``subscription.py``.

        :param after: go on after this event instead, as :attr:`Subscription.after` gave it
        :raises ConfigError: if the ledger does not know the pipeline
        """
        moment = now or datetime.now(UTC)
        found: list[Missing] = []
        if after is None:
            with self._reading() as connection:
                known = reads.accounts(connection, pipeline, now=moment, settle_lag=settle_lag, window=window)
                after = reads.last_event(connection, pipeline)
            found = missing(known, before=moment - settle_lag, shown=shown)
        return Subscription(self._reading, pipeline, found, after)

    def audit(self, pipeline: str, *, quick: bool = False) -> dict[str, Any]:
        """Check every named invariant and account for every position; JSON-ready, see ``audit.py``.

        :param quick: leave out what only the whole history can show
        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            return audits.audit(connection, pipeline, quick=quick)

    def recorded(self, pipeline: str) -> Recorded:
        """What the ledger says of receipts and dead letters, to be held against the sink.

        :raises ConfigError: if the ledger does not know the pipeline
        """
        with self._reading() as connection:
            return recorded.load(connection, pipeline)

    def measures(self, pipeline: str, after: int | None = None) -> Measures:
        """What is measured of a pipeline beyond its partitions; see ``measuring.py``.

        :param after: tell of what expired after this event; of nothing if None
        """
        with self._reading() as connection:
            return measuring.measure(connection, pipeline, after)

    def inspect(self, pipeline: str, what: BatchKey | str | None = None) -> dict[str, Any]:
        """A batch, a partition by its id, or everything that is not resolved; JSON-ready, see ``inspecting.py``.

        :raises ConfigError: if the ledger does not know the pipeline
        :raises LedgerStateError: if it does not know the batch or partition
        """
        with self._reading() as connection:
            return inspect_batches.inspect(connection, pipeline, what)

    def pipelines(self) -> list[str]:
        """The names of all pipelines."""
        with self._reading() as connection:
            return reads.pipelines(connection)

    def status(self, pipeline: str) -> dict[str, Any]:
        """All that a person wants to see of a pipeline, JSON-ready.

        :raises ConfigError: if the ledger does not know it; names the nearest known ones
        """
        with self._reading() as connection:
            return reads.status(connection, self.id, pipeline)
