"""Settle the batches of a wave: by the sink's receipts while the wave runs, and by the outcomes at its end.

Spark reports the outcomes of a wave at its end. While the wave runs, receipts are read from the sink instead, as often
as ``commit_strategy`` says. A two-phase sink (Delta, Iceberg) has no receipts of a wave before its commit at the end of
the wave, so nothing is settled while its waves run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import CkptError, LedgerUnavailableError, OffsetCommitError
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.settle_cadence import count_passable
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.replication.setup import utcnow

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
    from airflow_provider_ckpt.ledger.types import Settlement
    from airflow_provider_ckpt.replication.run.run import Run

log = logging.getLogger(__name__)

_READING_SHARE = 20
"""Minimum pause between two readings of receipts, as a multiple of the time that the first of them took."""


class WaveSettlement:
    """Recorder of the verdicts of each wave's batches in the ledger, while the wave runs and at its end.

    :param run: run in progress, whose lease is held and whose source and sink are open
    :param random_deviation: function that returns a random number in [-1, 1], which determines the jitter of delays
    """

    def __init__(self, run: Run, random_deviation: Callable[[], float]) -> None:
        self._run = run
        self._pipeline = run.pipeline
        self._random_deviation = random_deviation
        self._cadence = run.pipeline.commit_strategy.cadence
        self._reads_receipts = not registry.is_two_phase(run.pipeline)
        self._open: frozenset[BatchKey] = frozenset()
        self._settled: set[BatchKey] = set()
        self._settled_at = self._next_check_at = self._opened_at = 0.0
        self._records = 0

    @property
    def settled_count(self) -> int:
        """Number of batches of the wave whose verdicts the ledger recorded while the wave ran."""
        return len(self._settled)

    def begin_wave(self, keys: Iterable[BatchKey]) -> None:
        """Prepare to record the verdicts of a new wave's batches.

        :param keys: the wave's batches
        """
        self._open = frozenset(keys)
        self._settled = set()
        self._records = 0
        self._settled_at = self._opened_at = time.monotonic()
        self._next_check_at = self._settled_at + self._cadence.check_interval

    def settle_if_due(self) -> None:
        """Settle batches with a receipt in the sink, if ``commit_strategy`` says so; called while the wave runs.

        :raises CkptError: when the run must stop: the lease was lost, or a settlement cannot be stored
        """
        self._run.check()
        started = time.monotonic()
        if self._reads_receipts and started >= self._next_check_at:
            self._settle_due(*self._unsettled_receipts())
            now = time.monotonic()
            self._next_check_at = now + max(self._cadence.check_interval, (now - started) * _READING_SHARE)

    def settle(self, outcomes: Sequence[Outcome], policy: DeliveryPolicy | None = None) -> Settlement:
        """Record a wave's outcomes in the ledger, except for batches whose verdicts were recorded while it ran.

        :param outcomes: outcomes of all batches of the wave
        :param policy: policy that decides about failed batches; None for the pipeline's
        :raises OffsetCommitError: if the ledger stays unavailable
        :raises LedgerUnavailableError: if the ledger has an error that does not pass by itself
        """
        settlement = self._commit([outcome for outcome in outcomes if outcome.key not in self._settled], policy)
        types = {
            AttemptKey(outcome.key, outcome.attempt, outcome.receipt.epoch): outcome.dead_letters
            for outcome in outcomes
            if outcome.key in self._settled
            and outcome.receipt is not None
            and not outcome.receipt_existed
            and outcome.dead_letters
        }
        if types:  # a receipt contains the number of dead letters, but not their error types
            self._run.ledger.set_error_types(self._pipeline.name, types)
        return settlement

    def _unsettled_receipts(self) -> tuple[list[Receipt], int]:
        """Return the wave's receipts that the ledger has not recorded, and how many batches checkpoints could pass.

        These are the batches that checkpoints could pass if the receipts were settled now. If receipts cannot be read,
        this is logged, and the result is an empty list and 0.
        """
        fresh = self._open - self._settled
        try:
            records = self._run.ledger.partitions(self._pipeline.name)
            found = [receipt for receipt in self._run.receipts(records) if receipt.key in fresh]
        except CkptError as error:
            log.info(
                "%s: receipts cannot be read now, settling waits for the wave's end: %s", self._pipeline.name, error
            )
            return [], 0
        partitions = (record.partition for record in records.values())
        return found, count_passable(partitions, {receipt.key for receipt in found})

    def _settle_due(self, receipts: Sequence[Receipt], count_movable: int) -> None:
        """Settle batches by their receipts, if ``commit_strategy`` says that a settlement is due.

        :param receipts: receipts of unsettled batches
        :param count_movable: number of batches by which the checkpoint could move
        """
        if not self._cadence.due(count_movable, len(receipts), time.monotonic() - self._settled_at):
            return
        outcomes = [
            Outcome(receipt.key, receipt.attempt, AttemptOutcome(receipt.verdict.value), receipt=receipt)
            for receipt in receipts
        ]
        with self._run.step("settle"):
            settlement = self._commit(outcomes)
        self._settled |= {receipt.key for receipt in receipts}
        self._settled_at = time.monotonic()
        self._run.settled(settlement.acked)
        self._log_progress(receipts)

    def _log_progress(self, receipts: Sequence[Receipt]) -> None:
        """Log the progress of the running wave: settled batches, records and records per second.

        :param receipts: receipts of the batches that were just settled
        """
        self._records += sum(receipt.counts.read for receipt in receipts)
        seconds = time.monotonic() - self._opened_at
        log.info(
            "%s: %d of %d batches of the running wave are settled, %s records in %.1f s (%s records/s)",
            self._pipeline.name,
            len(self._settled),
            len(self._open),
            f"{self._records:,}",
            seconds,
            f"{self._records / max(seconds, 1e-9):,.0f}",
        )

    def _commit(self, outcomes: Sequence[Outcome], policy: DeliveryPolicy | None = None) -> Settlement:
        """Settle batches in the ledger; retry while the ledger is unavailable, since settling twice is harmless.

        :param outcomes: outcomes of the batches
        :param policy: policy that decides about failed batches; None for the pipeline's
        :raises OffsetCommitError: if the ledger stays unavailable
        :raises LedgerUnavailableError: if the ledger has an error that does not pass by itself; it is not tried again
        """
        retry = self._pipeline.policy.retry
        patience = timedelta(milliseconds=self._pipeline.commit_strategy.commit_timeout_ms)
        for tried in count(1):
            try:
                return self._run.ledger.settle(
                    self._run.lease,
                    outcomes,
                    now=utcnow(),
                    policy=policy or self._pipeline.policy,
                    deviation=self._random_deviation,
                    window=self._run.window,
                    patience=patience,
                )
            except LedgerUnavailableError as error:
                self._run.metrics.failed(1)
                if not error.recoverable:
                    raise
                if tried >= retry.max_attempts:
                    raise self._not_stored(error, tried) from error
                delay = retry.delay(tried, self._random_deviation())
                log.warning("%s: %s; trying again in %.1f s", self._pipeline.name, error.message, delay.total_seconds())
                time.sleep(delay.total_seconds())
        raise AssertionError("unreachable")

    def _not_stored(self, error: LedgerUnavailableError, tried: int) -> OffsetCommitError:
        """Return the error for verdicts that the ledger could not record.

        :param error: the ledger's last error
        :param tried: number of attempts
        """
        return OffsetCommitError(
            f"the sink's receipts could not be settled in {tried} attempts: {error.message}",
            pipeline=self._pipeline.name,
            sqlstate=error.sqlstate,
            hint="Nothing is lost: the next run finds the receipts and settles. See commit_strategy.commit_timeout_ms.",
        )
