"""Choose the batches of a run's next wave: how many, for how many lanes, and for how long the wave begins batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.core.batch import AttemptOutcome, Batch
from airflow_provider_ckpt.core.lane_assignment import first_of_each_partition

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.wave_messages import Outcome
    from airflow_provider_ckpt.replication.run.run import Run
    from airflow_provider_ckpt.replication.run.time_budget import TimeBudget

_FIRST_WAVE_BATCHES = 256
_LEAST_WAVE_BATCHES = 16
_WAVE_SECONDS = 10.0


class WaveBatches:
    """Chooses the batches of each wave of one :class:`Run`, by the number of batches that the last wave has attempted.

    :param run: run in progress
    :param time_budget: the run's time budget, within which each wave has to begin its batches
    """

    def __init__(self, run: Run, time_budget: TimeBudget) -> None:
        self._pipeline = run.pipeline
        self._turn = run.setup.turn
        self._time_budget = time_budget
        self._cadence = run.pipeline.commit_strategy.cadence
        self._is_two_phase = registry.is_two_phase(run.pipeline)
        self._limit = _FIRST_WAVE_BATCHES

    def lane_count(self, parallelism: int) -> int:
        """Return the number of lanes of the next wave: those that the declaration allows, limited by the run's turn.

        :param parallelism: number of tasks that Spark runs at once
        """
        lanes = self._pipeline.consumer.lane_count(parallelism)
        return min(lanes, self._turn.most_lanes or lanes)

    def choose(self, due: Sequence[Batch], lanes: int) -> Sequence[Batch]:
        """Return the batches of the next wave, out of those whose next attempt may begin now.

        If a batch must run alone, the wave has only the first such batch. With at-most-once delivery, the wave has at
        most one batch for each lane. With ``commit_mode: sync`` it has at most one batch for each lane, or one of each
        partition if the pipeline is pinned. Otherwise it has as many batches as it is likely to complete (see
        :meth:`learn`), and for a two-phase sink at most ``commit_strategy.max_checkpoint_count``.

        :param due: batches whose next attempt may begin now, in the order of their keys
        :param lanes: number of lanes
        """
        alone = [batch for batch in due if batch.alone]
        if alone:
            return alone[:1]
        if self._pipeline.delivery == "at_most_once":
            return first_of_each_partition(due, pinned=self._pipeline.pinned)[:lanes]
        if self._pipeline.commit_strategy.commit_mode == "sync":
            found = first_of_each_partition(due, pinned=self._pipeline.pinned)
            return found if self._pipeline.pinned else found[:lanes]
        if self._is_two_phase:  # its waves are settled as a whole
            return due[: min(self._limit, self._cadence.max_batches)]
        return due[: self._limit]

    def seconds(self) -> float:
        """Return the seconds after which lanes begin no more batches of the next wave.

        This is the pipeline's longest interval between two settlements, or 10 s if it declares none, and at most the
        rest of the time budget. A two-phase sink commits at the end of a wave; for other sinks, 10 s is the maximum.
        """
        seconds = self._cadence.max_interval or _WAVE_SECONDS
        if not self._is_two_phase:
            seconds = min(seconds, _WAVE_SECONDS)
        return min(seconds, self._time_budget.seconds_left)

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        """Limit the next wave to twice as many batches as the last wave has attempted, or to 16 if that is more.

        :param outcomes: outcomes of the last wave's batches
        """
        attempted = sum(outcome.outcome is not AttemptOutcome.NOT_ATTEMPTED for outcome in outcomes)
        self._limit = max(_LEAST_WAVE_BATCHES, 2 * attempted)
