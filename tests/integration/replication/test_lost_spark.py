"""A batch that crashes Spark on a local master affects only itself: it is run alone, and then held."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import EngineError
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.replication.run.engine_protocol import Check
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.turn import Turn
from tests.services.replication import Replication
from tests.services.tables import scalar

KILLER = 3


class MortalEngine(SessionEngine):
    """Ends at the batch numbered :data:`KILLER`, after the batches before it; may be started again."""

    def __init__(self, replication: Replication) -> None:
        super().__init__(replication.spark)
        self.loss_blames_batch = True
        self.deaths: list[list[BatchKey]] = []

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Work a wave off, or die."""
        keys = [task.key for lane in wave.lanes for task in lane]
        if any(key.seq == KILLER for key in keys):
            self.deaths.append(keys)
            raise EngineError("Spark ended unexpectedly.")
        return super().run(wave, check)

    def revive(self) -> bool:
        """As new."""
        self.started = False
        return True


def test_a_batch_that_kills_spark_is_held_and_the_others_are_delivered(orders: Replication) -> None:
    spread = orders.changed(consumer={"strategy": "round_robin", "lanes": 2}, retry={"rounds": 2})
    engine = MortalEngine(spread)

    summary = replicate(spread.setup(), engine)

    assert summary.records == Counts(900, 900, 0, 0)
    assert (summary.batches_by_state, summary.route) == ({"held": 1}, ["hold"])
    assert [[key.seq for key in keys] for keys in engine.deaths[-2:]] == [[KILLER], [KILLER]]
    assert scalar(orders.dsn, "SELECT count(*) FROM target") == 900
    assert summary.errors == {"Processing": len(engine.deaths)}


def test_a_run_whose_spark_ended_does_not_pause(orders: Replication) -> None:
    spread = orders.changed(consumer={"strategy": "round_robin", "lanes": 2}, retry={"rounds": 2})
    engine = MortalEngine(spread)

    class PausesAfterDeath(Turn):
        def must_pause(self, seconds_used: float, seconds_idle: float) -> bool:
            return bool(engine.deaths)

    summary = replicate(replace(spread.setup(), turn=PausesAfterDeath()), engine)

    assert summary.batches_by_state == {"held": 1}
