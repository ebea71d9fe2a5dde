"""Execute the waves of a run: begin a wave in the ledger, have Spark execute it, settle it, and plan more batches."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import (
    DeadlineError,
    EngineError,
    ErrorAction,
    ErrorInfo,
    LedgerUnavailableError,
)
from airflow_provider_ckpt.core.failure_decisions import RetryBatch
from airflow_provider_ckpt.core.lane_assignment import distribute, without_blocked
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.ranges import position_text
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.replication.run.batch_tasks import TaskBuilder
from airflow_provider_ckpt.replication.run.engine_protocol import Engine, WaveLostError
from airflow_provider_ckpt.replication.run.halt import AT_MOST_ONCE_HINT, halt_error
from airflow_provider_ckpt.replication.run.outage_wait import OutageWait
from airflow_provider_ckpt.replication.run.refresh import Refresh, publication_policy
from airflow_provider_ckpt.replication.run.settle import WaveSettlement
from airflow_provider_ckpt.replication.run.time_budget import GRACE, TimeBudget
from airflow_provider_ckpt.replication.run.wave_batches import WaveBatches
from airflow_provider_ckpt.replication.setup import utcnow
from airflow_provider_ckpt.spark.job import Job

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
    from airflow_provider_ckpt.ledger.types import PartitionRecord, Settlement
    from airflow_provider_ckpt.replication.run.run import Run

log = logging.getLogger(__name__)

_MAX_RESTARTS = 10
"""Maximum number of times that a run restarts Spark, after which it fails.

It is large enough for two batches that kill Spark again and again until both are held.
"""
_OVERDUE_HINT = (
    "Nothing was lost: its batches are planned again. The first of each lane runs alone in the next run; one that is "
    "cancelled in this way retry.rounds times is held. If batches are merely slow, raise run.time_budget or lower "
    "commit_strategy.commit_interval."
)


class WaveLoop:
    """Loop that executes the waves of one :class:`Run` on one engine.

    :param run: run in progress, whose lease is held and whose source and sink are open
    :param engine: interface to Spark, which executes the waves
    :param rounds: whether to execute later rounds of retries too; otherwise batches that wait for a later round are
        left to the task ``retry`` of the task group
    :param plan_on: whether to plan more records of the source while batches get their verdict
    """

    def __init__(self, run: Run, engine: Engine, *, rounds: bool, plan_on: bool) -> None:
        self._run = run
        self._pipeline = run.pipeline
        self._engine = engine
        self._rounds = rounds
        self._plan_on = plan_on
        self._at_most_once = run.pipeline.delivery == "at_most_once"
        self._skipped: set[BatchKey] = set()
        self._wave_number = 0
        self._revivals = 0
        self._settlement = WaveSettlement(run, self._random_deviation)
        self._task_builder = TaskBuilder(run)
        self._random = random.Random()  # noqa: S311  # spreads retries, guards nothing
        self._time_budget = TimeBudget(run, self._random_deviation)
        self._wave_batches = WaveBatches(run, self._time_budget)
        self._outage_wait = OutageWait(run, self._time_budget)
        self._refresh = Refresh(run) if run.pipeline.refreshes else None

    def run(self) -> None:
        """Execute waves until no batch is due, the time budget is over or the run must pause, then close Spark.

        After an error, Spark is ended at once.
        """
        try:
            self._run_waves()
        except BaseException:
            self._engine.kill()
            raise
        if self._engine.started:
            with self._run.step("spark_stop"):
                self._engine.close()

    def _run_waves(self) -> None:
        """Choose batches and execute them wave by wave, and wait for batches whose next attempt is due later."""
        while self._time_budget.seconds_left:
            self._run.check()
            try:
                candidates = self._candidates(self._plan_next())
            except LedgerUnavailableError as error:
                self._outage_wait.wait_for_ledger(error)
                continue
            self._outage_wait.end_of_ledger()
            if not candidates:
                break
            due = [batch for batch in candidates if batch.not_before is None or batch.not_before <= utcnow()]
            if self._pipeline.pinned:
                due = without_blocked(due, candidates)
            moment = None if due else min(batch.not_before for batch in candidates if batch.not_before)
            if self._may_pause and self._time_budget.must_pause(moment):
                return  # without the refusals of planning, which are made again when the run has resumed
            if moment is None:
                self._take_turn(due)
            else:
                self._time_budget.wait_until(moment, may_pause=self._may_pause)
        self._task_builder.finish()
        self._run.planning.raise_refused()

    @property
    def _may_pause(self) -> bool:
        """True if the run may pause, since it has nothing that a pause would lose.

        A pause would lose the snapshot of a refresh, the list of batches that the run does not begin any more, and the
        numbers of outages in a row and of restarts of Spark, which are limited.
        """
        return self._refresh is None and not (self._skipped or self._outage_wait.in_outage or self._revivals)

    def _take_turn(self, due: list[Batch]) -> None:
        """Wait for the run's turn to execute waves; then execute a wave or publish a refresh.

        The records that were read count against the turn. Nothing is executed if a user's action was applied during the
        wait, since other batches may be due after it.

        :param due: batches whose next attempt may begin now
        """
        if not self._time_budget.wait_for_turn():
            return
        before = self._run.summary.records.read
        publication = self._refresh.publication(due) if self._refresh is not None else None
        if self._refresh is not None and publication is not None:
            self._publish(self._refresh, publication)
        else:
            self._run_wave(due)
        self._run.setup.turn.charge(self._run.summary.records.read - before)

    def _plan_next(self) -> Mapping[str, PartitionRecord]:
        """Apply stored actions and plan new batches; return the ledger's partitions after that."""
        records, has_actions = self._run.ledger.open_work(self._pipeline.name)
        if has_actions:
            self._run.apply_actions_found()
        self._run.measure()
        begun = self._refresh is not None and self._refresh.advance()
        plans = begun or ((self._plan_on or self._refresh is not None) and self._run.planning.more)
        follows = not plans and self._run.planning.schema is not None
        if plans:
            self._run.plan(self._skipped)
        elif self._run.planning.schema is not None:
            self._run.planning.schema.follow()
        if has_actions or plans or follows or self._refresh is not None:
            records = self._run.ledger.partitions(self._pipeline.name)
        return records

    def _candidates(self, records: Mapping[str, PartitionRecord]) -> list[Batch]:
        """Return the planned batches that this run begins now or later, by key; none if the pipeline is not running.

        Batches whose next attempt is not due yet are included. The list is empty if this run has nothing left to begin.
        In a pinned pipeline, a batch that the run may not begin also excludes all later batches of its partition.

        :param records: the ledger's partitions
        :raises StaleEpochError: if the pipeline is not running because a force stop has taken the lease
        """
        found = []
        for record in records.values():
            if record.partition.phase is not Phase.RUNNING:
                self._run.confirm_lease()
                return []
            for _, batch in sorted(record.partition.blocking.items()):
                if batch.state is BatchState.PLANNED and batch.key not in self._skipped:
                    found.append(batch)
                elif self._pipeline.pinned:
                    break
        return sorted(found, key=lambda batch: batch.key)

    def _run_wave(self, due: list[Batch]) -> None:
        """Execute one wave of due batches in Spark, and settle it.

        :param due: batches whose next attempt may begin now
        """
        if not self._engine.started:
            self._start_spark()
        with self._run.step("spark_start"):
            ready = self._engine.ready(self._run.check)
        shape = None if self._run.planning.schema is None else self._run.planning.schema.shape
        # The current schema version may be newer than the columns that Spark knew when it started.
        as_read = shape is not None and not (self._pipeline.transform.select or self._pipeline.transform.python)
        self._run.sink.check_columns(shape.outputs if shape is not None and as_read else ready.columns)
        lanes = self._wave_batches.lane_count(ready.parallelism)
        chosen = self._wave_batches.choose(due, lanes)
        # Before the batches begin, so that a batch whose file is gone stays planned instead of counting as sent.
        tasks = self._task_builder.tasks(chosen)
        self._skipped.update(self._task_builder.refused)
        if not tasks:
            return
        keys = [task.key for task in tasks]
        alone = chosen[0].alone and len(keys) == 1
        self._run.ledger.begin(self._run.lease, keys, now=utcnow(), run=self._run.id, at_most_once=self._at_most_once)
        packed = distribute(tasks, lanes, pinned=self._pipeline.pinned)
        self._wave_number += 1
        wave = Wave(self._wave_number, packed, self._wave_batches.seconds(), None if shape is None else shape.to_json())
        started = time.monotonic()
        self._settlement.begin_wave(keys)
        self._run.metrics.started(len(keys))
        try:
            with self._run.step("spark"):
                outcomes = self._engine.run(wave, self._check_wave)
        except DeadlineError as error:
            self._engine.kill()
            self._settle_lost_wave(
                wave, alone=alone and self._time_budget.is_most_of_budget(time.monotonic() - started), error=error.info
            )
            raise
        except WaveLostError as error:
            log.warning("Wave %d of %s was lost: %s", wave.number, self._pipeline.name, error)
            self._settle_lost_wave(wave, alone=alone, error=error.error)
        except EngineError as error:
            # On a local master, driver and executor are one process, so a batch that kills its executor kills Spark.
            counted = alone and self._engine.loss_blames_batch
            revived = self._engine.revive()
            self._settle_lost_wave(wave, alone=revived and counted, error=error.info)
            self._revivals += 1
            if not revived or self._revivals > _MAX_RESTARTS:
                raise
            log.warning("Wave %d of %s: %s Spark is started again", wave.number, self._pipeline.name, error.message)
        else:
            self._settle(outcomes, started)

    def _publish(self, refresh: Refresh, batch: Batch) -> None:
        """Publish a refresh in this process, and settle its publishing batch, unless that is held for a user.

        :param refresh: the run's refresh
        :param batch: the publishing batch
        """
        started = time.monotonic()
        self._settlement.begin_wave([batch.key])
        with self._run.step("publish"):
            outcome = refresh.publish(batch)
        if outcome is not None:
            self._wave_number += 1
            self._run.metrics.started(1)
            self._settle([outcome], started, publication_policy(self._pipeline.policy))

    def _check_wave(self) -> None:
        """Settle batches with a receipt, if ``commit_strategy`` says so; the engine calls this while a wave runs.

        :raises CkptError: when the run must stop, as after the loss of its lease; a :class:`DeadlineError` for a wave
            that exceeds the time budget
        """
        self._settlement.settle_if_due()
        if self._time_budget.is_overdue:
            budget = self._pipeline.run.time_budget.total_seconds()
            raise DeadlineError(
                f"a wave was still running {GRACE:g} s after run.time_budget ({budget:g} s), and was cancelled",
                pipeline=self._pipeline.name,
                recoverable=True,
                hint=AT_MOST_ONCE_HINT if self._at_most_once else _OVERDUE_HINT,
            )

    def _start_spark(self) -> None:
        """Start Spark in the background with the description of the run."""
        pipeline, setup = self._pipeline, self._run.setup
        shape = self._run.source.shape() if self._run.planning.schema is None else self._run.planning.schema.shape
        if pipeline.transform.passes_unchanged:
            self._run.sink.check_columns(shape.outputs)
        self._engine.start(
            Job(
                pipeline.document(),
                SinkContext(setup.sink_id, pipeline.name, self._run.epoch),
                shape,
                {name: setup.connections(name) for name in pipeline.connections},
                setup.packed_function,
                registry.connector_paths(pipeline),
            )
        )
        self._run.summary.spark_started = True

    def _settle(self, outcomes: Sequence[Outcome], started: float, policy: DeliveryPolicy | None = None) -> None:
        """Settle a wave by its outcomes and log it; after an outage of source or sink, wait before the next wave.

        :param outcomes: outcomes of the wave's batches
        :param started: start of the wave, in seconds of the monotonic clock
        :param policy: policy that decides about failed batches; None for the pipeline's
        :raises HaltError: if the policy halts the run because of an error, or an outage lasts too long
        """
        with self._run.step("settle"):
            settlement = self._settlement.settle(outcomes, policy)
        self._count(outcomes, settlement)
        seconds = time.monotonic() - started
        read = sum(outcome.receipt.counts.read for outcome in outcomes if outcome.receipt is not None)
        self._wave_batches.learn(outcomes)
        log.info(
            "Wave %d of %s: %d of %d batches got their verdict, %s records in %.1f s (%s records/s), checkpoint %s",
            self._wave_number,
            self._pipeline.name,
            len(settlement.acked) + self._settlement.settled_count,
            len(outcomes),
            f"{read:,}",
            seconds,
            f"{read / max(seconds, 1e-9):,.0f}",
            ", ".join(f"{name}: {position_text(at)}" for name, at in sorted(settlement.checkpoint.items()))
            or "unchanged",
        )
        if settlement.halted is not None:
            raise halt_error(self._run, settlement.halted, outcomes)
        if self._at_most_once:
            self._check_at_most_once(outcomes)
        if settlement.failed is not None:
            self._outage_wait.wait(settlement.failed, outcomes)
        else:
            self._outage_wait.end()

    def _count(self, outcomes: Sequence[Outcome], settlement: Settlement) -> None:
        """Add a settled wave to summary and metrics, and exclude batches that this run must not begin again.

        If the run leaves later rounds to the task ``retry`` of the task group, these are the batches that wait for a
        later round.

        :param outcomes: outcomes of the wave's batches
        :param settlement: result of settling them
        """
        summary = self._run.summary
        self._run.settled(settlement.acked)
        self._run.metrics.ended(outcomes, settlement.decisions.values())
        for outcome in outcomes:
            summary.count_errors(outcome.dead_letters)
            if outcome.error is not None:
                summary.count_errors({outcome.error.type.value: 1})
        for key, decision in settlement.decisions.items():
            if isinstance(decision, RetryBatch):
                summary.retried += 1
                if decision.next_round and not self._rounds:
                    self._skipped.add(key)

    def _check_at_most_once(self, outcomes: Sequence[Outcome]) -> None:
        """Count batches without a receipt (delivery at_most_once), and halt the run if the error of one requires it.

        The run halts after an outage of sink or source, and after an error for which the delivery policy halts the run.
        Batches that were sent are never sent again.

        :param outcomes: outcomes of the wave's batches
        :raises HaltError: if a batch without a receipt has such an error
        """
        unconfirmed = [outcome for outcome in outcomes if outcome.receipt is None]
        self._run.unconfirmed += len(unconfirmed)
        for outcome in unconfirmed:
            error = outcome.error
            if error is not None and (error.is_outage or self._pipeline.policy.action(error) is ErrorAction.HALT):
                raise halt_error(self._run, error, outcomes)

    def _settle_lost_wave(self, wave: Wave, *, alone: bool, error: ErrorInfo) -> None:
        """Settle, by the sink's receipts, the batches of a wave whose outcomes were lost with Spark or a worker.

        In each lane, the first batch that has no receipt may have caused the loss, so its next attempt runs alone.

        :param wave: the wave
        :param alone: whether the wave had a single batch that was to run alone, so that it counts as the cause
        :param error: the error that ended the wave
        """
        settlement = self._run.ledger.settle_lost_wave(
            self._run.lease,
            [[task.key for task in lane] for lane in wave.lanes],
            self._run.receipts(),
            now=utcnow(),
            alone=alone,
            limit=self._pipeline.retry.rounds,
            window=self._run.window,
        )
        self._run.settled(settlement.acked)
        self._run.metrics.failed(len(wave.tasks) - self._settlement.settled_count - len(settlement.acked))
        self._run.summary.count_errors({error.type.value: 1})
        if self._at_most_once:
            acked = {receipt.key for receipt in settlement.acked}
            self._run.unconfirmed += sum(task.key not in acked for task in wave.tasks)

    def _random_deviation(self) -> float:
        return self._random.uniform(-1, 1)
