"""Commands of a run: acquire and renew the lease, plan, begin attempts, reconcile, settle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.lease import TAKEOVERS, never_dead
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.replay_content import LostReplays
from airflow_provider_ckpt.ledger.commands import plan as plan_commands
from airflow_provider_ckpt.ledger.commands import reconcile, settle
from airflow_provider_ckpt.ledger.commands.begin import begin_attempts
from airflow_provider_ckpt.ledger.commands.lost_executors import settle_lost_wave
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import bulk_sql, events, failed_runs, tables
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.types import Lease, PartitionRecord, Reconciliation, Renewal, Settlement
from airflow_provider_ckpt.ledger.unit_of_work import TouchedBatches

if TYPE_CHECKING:
    from airflow_provider_ckpt.connectors.source_plan import Plan, SourceFile, SourcePartition
    from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
    from airflow_provider_ckpt.core.wave_messages import Outcome


class RunCommands(Session):
    """Commands of a run: acquire, renew and release the lease of a pipeline, and write under it."""

    def acquire(
        self,
        pipeline: str,
        owner: str,
        ttl: timedelta,
        *,
        at_least: int = 0,
        is_dead: Callable[[str], bool] = never_dead,
        force: bool = False,
    ) -> Lease:
        """Acquire the pipeline's lease for an owner under a new epoch.

        The lease must be free or expired, or be held by the same owner or by a dead owner, unless ``force`` is set.

        :param pipeline: name of the pipeline, which is created if it is new
        :param owner: the new owner
        :param ttl: time without renewal after which another owner may take the lease over
        :param at_least: epoch of the sink's fence, which the new epoch must exceed; 0 if it is not known
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

    def register(self, pipelines: Iterable[str]) -> None:
        """Create the rows of pipelines before any of them runs; pipelines that the ledger knows are left as they are.

        The pipelines of a declaration of many tables are registered together. Otherwise, if the first run ended before
        every table had its turn, the next run would take the remaining tables for tables that were created since.

        :param pipelines: names of the pipelines
        """
        with self._writing() as connection:
            lease_store.insert_pipelines(connection, pipelines)

    def renew(self, lease: Lease) -> None:
        """Extend the lease by its TTL from now, even after its expiry, so that no other owner takes it over.

        :raises StaleEpochError: if a newer epoch was granted, or the lease was released
        """
        with self._writing() as connection:
            lease_store.renew(connection, lease.pipeline, lease.epoch, lease.owner)

    def renew_all(self, leases: Collection[Lease]) -> Renewal:
        """Extend each of several leases by its TTL from now, in one SQL statement; a lost lease does not affect others.

        The statement does not wait for rows that another command has locked. Such leases are returned, and the caller
        renews them a little later. A second statement is executed only if leases were lost or locked.

        :param leases: the leases, of any pipelines
        :return: the lost and the locked leases
        """
        with self._writing() as connection:
            return lease_store.renew_all(connection, leases)

    def release(self, lease: Lease, *, error: str | None = None, succeeded: bool = False) -> None:
        """Release the lease, so that another run can acquire it.

        Nothing happens if it was already released or taken over.

        :param lease: the lease
        :param error: the error with which the run that held the lease failed; :meth:`failed_runs` returns it until a
            run succeeds. None if that run did not fail, or a user's action held the lease
        :param succeeded: whether the lease was held by a run that ended without an error
        """
        with self._writing() as connection:
            if lease_store.release(connection, lease):
                moment = lease_store.database_time(connection)
                detail = {}
                if succeeded:
                    failed_runs.delete_failure(connection, lease.pipeline)
                elif error is not None:
                    detail["error"] = failed_runs.shortened(error)
                    failed_runs.store_failure(connection, lease.pipeline, error, moment)
                bulk_sql.insert(connection, tables.event, [events.event_row(lease, moment, "lease_released", detail)])

    def record_refusal(self, pipeline: str, owner: str, error: str) -> None:
        """Record the error of a run that was refused before it held the lease.

        Until a run succeeds, :meth:`failed_runs` returns the error. An event is added to the audit log only if the
        newest run has not failed with the same error. Nothing happens if the ledger does not know the pipeline.

        :param pipeline: name of the pipeline
        :param owner: the owner in whose name the run would have acquired the lease
        :param error: text of the error with its hint
        """
        with self._writing() as connection:
            lease_store.lock_row(connection, pipeline)  # events of a pipeline get their ids in the order of commits
            moment = lease_store.database_time(connection)
            if failed_runs.store_failure(connection, pipeline, error, moment):
                row = events.refusal_row(pipeline, owner, moment, failed_runs.shortened(error))
                bulk_sql.insert(connection, tables.event, [row])

    def attach(self, pipeline: str, epoch: int, owner: str) -> Lease:
        """Renew a lease that another process of the same run has acquired, and return it for use in this process.

        :param pipeline: name of the pipeline
        :param epoch: epoch of the lease
        :param owner: owner of the lease
        :raises StaleEpochError: if the lease has another epoch or another owner, or was released
        """
        with self._writing() as connection:
            return lease_store.renew(connection, pipeline, epoch, owner)

    def declare(self, lease: Lease, document: Mapping[str, Any]) -> None:
        """Store the pipeline's declaration in the ledger, and record an event if it has changed.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param document: the declaration, JSON-ready and free of secrets
        """
        with self._command(lease, touch=()) as work:
            plan_commands.declare(work, document)

    def start_partitions(
        self,
        lease: Lease,
        partitions: Mapping[SourcePartition, int],
        *,
        files: Sequence[SourceFile] = (),
        now: datetime | None = None,
    ) -> dict[str, PartitionRecord]:
        """Store source partitions that the ledger does not know yet, each with its first position as the checkpoint.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param partitions: first position of each source partition; of known partitions only the identity is checked
        :param files: for a source of files, the files from whose sizes the first positions of new partitions were
            computed, stored in the same transaction
        :param now: time of the command; None for the current time
        :return: all partitions of the pipeline by id, as :meth:`partitions` returns them
        :raises LedgerStateError: if the files do not continue the pipeline's list of files
        :raises SourceError: if the source of a known partition was recreated or replaced since it was started
        """
        with self._command(lease, now) as work:
            plan_commands.start_partitions(work, partitions, files)
            return work.records

    def plan(self, lease: Lease, plan: Plan, *, now: datetime | None = None) -> list[Batch]:
        """Store the result of a planning, as a whole or not at all: batches, files, bounds and the source's state.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param plan: the result of the source's planning
        :param now: time of the command; None for the current time
        :return: the new batches
        :raises LedgerStateError: if the pipeline is draining or stopped, a range neither continues its partition nor
            fills a gap, or a file does not continue the pipeline's list of files
        """
        names = {batch.partition for batch in plan.batches} | set(plan.bounds) | set(plan.states)
        touch: TouchedBatches = dict.fromkeys(names, ())
        with self._command(lease, now, touch) as work:
            return plan_commands.plan(work, plan)

    def begin(
        self, lease: Lease, keys: Sequence[BatchKey], *, now: datetime, run: str, at_most_once: bool = False
    ) -> list[Batch]:
        """Begin an attempt of all given batches, or of none, and return the batches in their new state.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param keys: the batches
        :param now: time of the command
        :param run: name of the run, stored with the attempts
        :param at_most_once: whether to resolve the batches as ``sent``, so that they are never sent a second time
        :raises LedgerStateError: if a batch is not planned or not due yet, or the pipeline is draining or stopped
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
        lost_replays: LostReplays | None = None,
    ) -> Reconciliation:
        """Make the ledger agree with the sink's receipts, and end the attempts that older epochs left open.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param receipts: the sink's receipts, read after the sink was fenced; all are read before the transaction begins
        :param now: time of the command
        :param window: the recovery window, by which the low watermark follows the checkpoint; None or zero moves the
            low watermark to the checkpoint
        :param lost_replays: replays that the ledger has lost (see :meth:`unknown_replays`), as the sink stores them;
            None if there are none
        :return: the receipts that were new to the ledger, the batches whose attempts were ended, and the rewinds that
            the ledger had lost and has carried out again
        :raises LedgerStateError: if a receipt is of a source partition that the ledger does not know
        """
        found = list(receipts)
        with self._command(lease, now) as work:
            result = reconcile.reconcile(work, found, lost_replays or LostReplays())
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
        """End the attempts of a wave according to their outcomes, and move the checkpoint.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param outcomes: outcomes of the wave's attempts
        :param now: time of the command
        :param policy: delivery policy, which decides about failed batches
        :param deviation: function that returns a random number in [-1, 1], which determines the jitter of a retry's
            delay
        :param window: the recovery window, by which the low watermark follows the checkpoint; None or zero moves the
            low watermark to the checkpoint
        :param patience: limit on the duration of one SQL statement and of waiting for locks; None for the defaults
        :return: the new receipts, the decisions about failed batches, and the checkpoints
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
        """Settle a wave whose Spark was lost before it could report, by the receipts that the sink has.

        The first batch without a receipt in each lane runs alone in its next attempt, because it may have killed the
        executor. If the lost wave consisted of this batch alone, another death is counted for it.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param lanes: batches of the wave, each lane in order
        :param receipts: receipts read from the sink after the loss
        :param now: time of the command
        :param alone: whether the wave consisted of one batch that ran alone
        :param limit: number of deaths at which the batch is held
        :param window: the recovery window, by which the low watermark follows the checkpoint; None or zero moves the
            low watermark to the checkpoint
        :return: the new receipts, the batches that were held, and the checkpoints
        """
        found = list(receipts)
        touch = {key.partition for lane in lanes for key in lane} | {receipt.key.partition for receipt in found}
        with self._command(lease, now, touch) as work:
            return settle_lost_wave(work, lanes, found, alone=alone, limit=limit, window=window)

    def cancel(self, lease: Lease, *, now: datetime) -> list[BatchKey]:
        """Cancel every attempt that is open under the lease's epoch, and return the batches concerned.

        Until these batches are started again or resolved, the checkpoint does not pass the first of them.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param now: time of the command
        """
        with self._command(lease, now) as work:
            return settle.cancel_open_attempts(work)


def _numbers(keys: Iterable[BatchKey]) -> dict[str, list[int]]:
    """Return the seqs of batches as lists, by the id of their partition."""
    numbers: dict[str, list[int]] = {}
    for key in keys:
        numbers.setdefault(key.partition, []).append(key.seq)
    return numbers
