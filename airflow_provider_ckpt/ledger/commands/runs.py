"""What runs do in the ledger: hold the lease, plan, begin, reconcile, settle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.batch import Batch, BatchKey, Receipt
from airflow_provider_ckpt.core.dead_letters import Forgotten
from airflow_provider_ckpt.core.lease import TAKEOVERS, nobody_is_dead
from airflow_provider_ckpt.ledger.commands import plan as planning
from airflow_provider_ckpt.ledger.commands import reconcile as reconciling
from airflow_provider_ckpt.ledger.commands import settle as settling
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import bulk_sql, events, tables
from airflow_provider_ckpt.ledger.store import lease as leases
from airflow_provider_ckpt.ledger.types import Lease, Reconciliation, Settlement
from airflow_provider_ckpt.ledger.unit_of_work import Touch

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.protocols import Plan, SourceFile, SourcePartition
    from airflow_provider_ckpt.core.policy import Policy
    from airflow_provider_ckpt.core.wave import Outcome


class RunCommands(Session):
    """The commands of whoever holds, or wants, the lease of a pipeline."""

    def acquire(
        self,
        pipeline: str,
        owner: str,
        ttl: timedelta,
        *,
        at_least: int = 0,
        is_dead: Callable[[str], bool] = nobody_is_dead,
        force: bool = False,
    ) -> Lease:
        """Take the pipeline's lease under a new epoch, if it is free, expired, our own, or a dead owner's.

        :param ttl: not renewed for this long, it may be taken over
        :param at_least: the new epoch is greater than this too: the sink's fence
        :param is_dead: knows whether an owner is certainly gone
        :param force: take it from whoever holds it (a person's force stop)
        :raises LeaseBusyError: if another owner holds it; says who and until when
        """
        with self._writing() as connection:
            lease, held, why = leases.acquire(connection, pipeline, owner, ttl, at_least, is_dead, force=force)
            taken = why in TAKEOVERS
            kind = "lease_taken_over" if taken else "lease_acquired"
            detail = {"before": {"owner": held.owner, "epoch": held.epoch}, "why": why.value}
            bulk_sql.insert(connection, tables.event, [events.row(lease, leases.now(connection), kind, detail)])
        return replace(lease, taken_over=taken)

    def renew(self, lease: Lease) -> None:
        """Hold the lease for another ``ttl`` from now.

        :raises StaleEpochError: if a newer epoch was granted, or it was released
        """
        with self._writing() as connection:
            leases.renew(connection, lease.pipeline, lease.epoch, lease.owner)

    def release(self, lease: Lease) -> None:
        """Give the lease back; a second time, or after a takeover, nothing happens."""
        with self._writing() as connection:
            if leases.release(connection, lease):
                moment = leases.now(connection)
                bulk_sql.insert(connection, tables.event, [events.row(lease, moment, "lease_released", {})])

    def attach(self, pipeline: str, epoch: int, owner: str) -> Lease:
        """Carry on the lease that another process of the same run acquired, and renew it.

        :raises StaleEpochError: if the epoch is not the current one, or not this owner's
        """
        with self._writing() as connection:
            return leases.renew(connection, pipeline, epoch, owner)

    def declare(self, lease: Lease, document: Mapping[str, Any]) -> None:
        """Store the pipeline's declaration, JSON-ready and free of secrets."""
        with self._command(lease, touch=()) as work:
            planning.declare(work, document)

    def start_partitions(
        self,
        lease: Lease,
        partitions: Mapping[SourcePartition, int],
        *,
        files: Sequence[SourceFile] = (),
        now: datetime | None = None,
    ) -> None:
        """Start new partitions at their declared first position; known ones stay as they are.

        :param files: what the positions of new ones were counted on, recorded in the same transaction
        :raises SourceError: if a known partition is another thing now than the one it was started on
        """
        with self._command(lease, now, ()) as work:
            planning.start_partitions(work, partitions, files)

    def plan(self, lease: Lease, plan: Plan, *, now: datetime | None = None) -> list[Batch]:
        """Record what planning found: batches, files, bounds and states; all of it or nothing.

        :returns: the new batches
        :raises LedgerStateError: while draining or stopped, or if a range does not continue its partition
        """
        names = {batch.partition for batch in plan.batches} | set(plan.bounds) | set(plan.states)
        touch: Touch = dict.fromkeys(names, ())
        with self._command(lease, now, touch) as work:
            return planning.plan(work, plan)

    def begin(
        self, lease: Lease, keys: Sequence[BatchKey], *, now: datetime, run: str, at_most_once: bool = False
    ) -> list[Batch]:
        """Open an attempt of each batch, or of none.

        :param run: names the run in the attempts' records
        :param at_most_once: resolve the batches as ``sent`` at once
        :raises LedgerStateError: if a batch is not planned, is due later, or the pipeline is draining or stopped
        """
        with self._command(lease, now, _numbers(keys)) as work:
            return planning.begin(work, keys, run=run, at_most_once=at_most_once)

    def reconcile(
        self,
        lease: Lease,
        receipts: Iterable[Receipt],
        *,
        now: datetime,
        window: timedelta | None = None,
        forgotten: Forgotten | None = None,
    ) -> Reconciliation:
        """Make the ledger agree with the sink's receipts, then fence what older epochs left open.

        :param receipts: read after the sink was fenced; all of them are read before the transaction begins
        :param window: the low watermark follows the checkpoint at this distance; without one it is the checkpoint
        :param forgotten: replays of dead letters that :meth:`forgotten_replays` named, as the sink keeps them
        :raises LedgerStateError: if they speak of a partition or generation that the ledger does not know
        """
        found = list(receipts)
        with self._command(lease, now) as work:
            result = reconciling.reconcile(work, found, forgotten or Forgotten())
            settling.follow(work, window)
            return result

    def settle(
        self,
        lease: Lease,
        outcomes: Sequence[Outcome],
        *,
        now: datetime,
        policy: Policy,
        unit: Callable[[], float],
        window: timedelta | None = None,
        patience: timedelta | None = None,
    ) -> Settlement:
        """End the attempts that a wave reports, and move the checkpoint.

        :param unit: gives a random number in [-1, 1] for each retry's jitter
        :param window: the low watermark follows the checkpoint at this distance; without one it is the checkpoint
        :param patience: how long a statement may take, or wait for another command
        """
        with self._command(lease, now, _numbers(outcome.key for outcome in outcomes), patience) as work:
            return settling.settle(work, outcomes, policy=policy, unit=unit, window=window)

    def lost(
        self,
        lease: Lease,
        lanes: Sequence[Sequence[BatchKey]],
        receipts: Iterable[Receipt],
        *,
        now: datetime,
        alone: bool,
        limit: int,
        window: timedelta | None = None,
    ) -> Settlement:
        """Account for a wave that Spark did not live to report.

        :param lanes: what the wave held, each lane in order
        :param receipts: read from the sink after the loss
        :param alone: whether the wave was one batch running alone
        :param limit: at so many deaths the batch is held
        :param window: the low watermark follows the checkpoint at this distance; without one it is the checkpoint
        """
        found = list(receipts)
        touch = {key.partition for lane in lanes for key in lane} | {receipt.key.partition for receipt in found}
        with self._command(lease, now, touch) as work:
            return settling.lost(work, lanes, found, alone=alone, limit=limit, window=window)

    def cancel(self, lease: Lease, *, now: datetime) -> list[BatchKey]:
        """Cancel every open attempt of this lease."""
        with self._command(lease, now) as work:
            return settling.cancel(work)


def _numbers(keys: Iterable[BatchKey]) -> dict[str, list[int]]:
    """The batches that a command is about, by partition."""
    numbers: dict[str, list[int]] = {}
    for key in keys:
        numbers.setdefault(key.partition, []).append(key.seq)
    return numbers
