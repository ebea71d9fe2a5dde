"""Commands of runs: hold the lease, plan, begin, reconcile, settle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letter_replay import LostReplays
from airflow_provider_ckpt.core.lease import TAKEOVERS, assume_alive
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.ledger.commands import plan as plan_commands
from airflow_provider_ckpt.ledger.commands import reconcile, settle
from airflow_provider_ckpt.ledger.commands.begin import begin_attempts
from airflow_provider_ckpt.ledger.commands.lost_executors import settle_lost_wave
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import bulk_sql, events, tables
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.types import Lease, Reconciliation, Settlement
from airflow_provider_ckpt.ledger.unit_of_work import TouchedBatches

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.source_protocol import Plan, SourceFile, SourcePartition
    from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
    from airflow_provider_ckpt.core.wave import Outcome


class RunCommands(Session):
    """Commands of a run that holds, or wants, the lease of a pipeline."""

    def acquire(
        self,
        pipeline: str,
        owner: str,
        ttl: timedelta,
        *,
        at_least: int = 0,
        is_dead: Callable[[str], bool] = assume_alive,
        force: bool = False,
    ) -> Lease:
        """Acquire the pipeline's lease for an owner under a new epoch.

        The lease must be free or expired, or be held by the same owner or by one that is dead, unless ``force`` is set.

        :param pipeline: name of the pipeline, which is created if it is new
        :param owner: the new owner
        :param ttl: time without renewal after which another owner may take the lease over
        :param at_least: epoch of the sink's fence; the new epoch is greater than this too
        :param is_dead: function that returns whether an owner's process has certainly ended
        :param force: whether to take the lease from another owner that is alive (a user's force stop)
        :raises LeaseBusyError: if another owner holds the lease; the error names the owner and the expiry
        """
        with self._writing() as connection:
            lease, previous, reason = lease_store.acquire(
                connection, pipeline, owner, ttl, at_least, is_dead, force=force
            )
            taken = reason in TAKEOVERS
            kind = "lease_taken_over" if taken else "lease_acquired"
            detail = {"before": {"owner": previous.owner, "epoch": previous.epoch}, "reason": reason.value}
            bulk_sql.insert(
                connection, tables.event, [events.event_row(lease, lease_store.database_time(connection), kind, detail)]
            )
        return replace(lease, taken_over=taken)

    def renew(self, lease: Lease) -> None:
        """Extend the lease by its ``ttl`` from now.

        :raises StaleEpochError: if a newer epoch was granted, or it was released
        """
        with self._writing() as connection:
            lease_store.renew(connection, lease.pipeline, lease.epoch, lease.owner)

    def release(self, lease: Lease) -> None:
        """Release the lease; if it is already released or taken over, nothing happens."""
        with self._writing() as connection:
            if lease_store.release(connection, lease):
                moment = lease_store.database_time(connection)
                bulk_sql.insert(connection, tables.event, [events.event_row(lease, moment, "lease_released", {})])

    def attach(self, pipeline: str, epoch: int, owner: str) -> Lease:
        """Return and renew the lease that another process of the same run acquired.

        :param pipeline: name of the pipeline
        :param epoch: epoch of the lease
        :param owner: owner of the lease
        :raises StaleEpochError: if the epoch is not the current one, or not this owner's
        """
        with self._writing() as connection:
            return lease_store.renew(connection, pipeline, epoch, owner)

    def declare(self, lease: Lease, document: Mapping[str, Any]) -> None:
        """Store the pipeline's declaration, JSON-ready and free of secrets."""
        with self._command(lease, touch=()) as work:
            plan_commands.declare(work, document)

    def start_partitions(
        self,
        lease: Lease,
        partitions: Mapping[SourcePartition, int],
        *,
        files: Sequence[SourceFile] = (),
        now: datetime | None = None,
    ) -> None:
        """Start new partitions at their declared first position; known ones are not changed.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param partitions: first position of each partition
        :param files: files from which the positions of new partitions were counted, stored in the same transaction
        :param now: time of the command; the current time if None
        :raises LedgerStateError: if the files do not continue the pipeline's list
        :raises SourceError: if the source of a known partition was recreated or replaced since it was started
        """
        with self._command(lease, now, ()) as work:
            plan_commands.start_partitions(work, partitions, files)

    def plan(self, lease: Lease, plan: Plan, *, now: datetime | None = None) -> list[Batch]:
        """Store the result of a planning (batches, files, bounds and the source's values), all of it or nothing.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param plan: the result
        :param now: time of the command; the current time if None
        :returns: the new batches
        :raises LedgerStateError: if the pipeline is draining or stopped, or a range does not continue its partition
        """
        names = {batch.partition for batch in plan.batches} | set(plan.bounds) | set(plan.states)
        touch: TouchedBatches = dict.fromkeys(names, ())
        with self._command(lease, now, touch) as work:
            return plan_commands.plan(work, plan)

    def begin(
        self, lease: Lease, keys: Sequence[BatchKey], *, now: datetime, run: str, at_most_once: bool = False
    ) -> list[Batch]:
        """Begin an attempt of each batch, or of none.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param keys: the batches
        :param now: time of the command
        :param run: name of the run, stored with the attempts
        :param at_most_once: resolve the batches as ``sent`` at once
        :raises LedgerStateError: if a batch is not planned, is due later, or the pipeline is draining or stopped
        """
        with self._command(lease, now, _numbers(keys)) as work:
            return begin_attempts(work, keys, run=run, at_most_once=at_most_once)

    def reconcile(
        self,
        lease: Lease,
        receipts: Iterable[Receipt],
        *,
        now: datetime,
        window: timedelta | None = None,
        forgotten: LostReplays | None = None,
    ) -> Reconciliation:
        """Make the ledger agree with the sink's receipts, then fence attempts that older epochs left open.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param receipts: the sink's receipts, read after it was fenced; all are read before the transaction begins
        :param now: time of the command
        :param window: time by which the low watermark follows the checkpoint; if None, it is the checkpoint
        :param forgotten: replays of dead letters that :meth:`unknown_replays` returned, as the sink stores them
        :raises LedgerStateError: if a receipt is of a source partition that the ledger does not know
        """
        found = list(receipts)
        with self._command(lease, now) as work:
            result = reconcile.reconcile(work, found, forgotten or LostReplays())
            settle.move_low_watermark(work, window)
            return result

    def settle(
        self,
        lease: Lease,
        outcomes: Sequence[Outcome],
        *,
        now: datetime,
        policy: DeliveryPolicy,
        deviation: Callable[[], float],
        window: timedelta | None = None,
        patience: timedelta | None = None,
    ) -> Settlement:
        """End the attempts that a wave reports, and move the checkpoint.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param outcomes: outcomes of the wave's attempts
        :param now: time of the command
        :param policy: policy that decides about failed batches
        :param deviation: function that returns a random number in [-1, 1] for each retry's jitter
        :param window: time by which the low watermark follows the checkpoint; if None, it is the checkpoint
        :param patience: limit on the duration of a statement and on waiting for another command; None for the default
        """
        with self._command(lease, now, _numbers(outcome.key for outcome in outcomes), patience) as work:
            return settle.settle(work, outcomes, policy=policy, deviation=deviation, window=window)

    def settle_lost_wave(
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
        """Settle a wave whose Spark was lost before it could report.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param lanes: batches of the wave, each lane in order
        :param receipts: receipts read from the sink after the loss
        :param now: time of the command
        :param alone: whether the wave was one batch running alone
        :param limit: number of deaths at which the batch is held
        :param window: time by which the low watermark follows the checkpoint; if None, it is the checkpoint
        """
        found = list(receipts)
        touch = {key.partition for lane in lanes for key in lane} | {receipt.key.partition for receipt in found}
        with self._command(lease, now, touch) as work:
            return settle_lost_wave(work, lanes, found, alone=alone, limit=limit, window=window)

    def cancel(self, lease: Lease, *, now: datetime) -> list[BatchKey]:
        """Cancel every attempt that is open under the lease's epoch, and return the cancelled batches."""
        with self._command(lease, now) as work:
            return settle.cancel_open_attempts(work)


def _numbers(keys: Iterable[BatchKey]) -> dict[str, list[int]]:
    """Return the seqs of batches by partition id."""
    numbers: dict[str, list[int]] = {}
    for key in keys:
        numbers.setdefault(key.partition, []).append(key.seq)
    return numbers
