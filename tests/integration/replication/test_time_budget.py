"""A wave obeys ``run.time_budget`` even during one record: it is cancelled, and only the batch of this record fails."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

import pytest

from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import DeadlineError
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.engines.submit import SubmitEngine
from airflow_provider_ckpt.replication.run import time_budget
from airflow_provider_ckpt.replication.run.engine_protocol import Check
from airflow_provider_ckpt.replication.run.replicate import replicate
from tests.services.replication import Replication
from tests.services.tables import scalar

KILLER = 3


class BusyEngine(SessionEngine):
    """Never ends a wave that holds the batch numbered :data:`KILLER`, unless it is killed."""

    def __init__(self, replication: Replication) -> None:
        super().__init__(replication.spark)
        self.stuck: list[list[BatchKey]] = []

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Work a wave off, or be busy until ``check`` raises."""
        keys = [task.key for lane in wave.lanes for task in lane]
        if all(key.seq != KILLER for key in keys):
            return super().run(wave, check)
        self.stuck.append(keys)
        before = [list(takewhile(lambda task: task.key.seq != KILLER, lane)) for lane in wave.lanes]
        if any(before):
            super().run(replace(wave, lanes=[lane for lane in before if lane]), check)
        while True:
            check()
            time.sleep(0.01)


def held(replication: Replication) -> list[Batch]:
    """The batches that are held."""
    records = replication.ledger.partitions("orders").values()
    found = [batch for record in records for batch in record.partition.blocking.values()]
    return [batch for batch in found if batch.state is BatchState.HELD]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waves are cancelled half a second after the budget."""
    monkeypatch.setattr(time_budget, "GRACE", 0.5)


@pytest.mark.usefixtures("impatient")
def test_a_batch_that_outlives_the_budget_runs_alone_and_is_held_and_the_others_are_delivered(
    orders: Replication,
) -> None:
    spread = orders.changed(
        consumer={"strategy": "round_robin", "lanes": 2}, retry={"rounds": 2}, run={"time_budget": "6s"}
    )

    stuck: list[list[BatchKey]] = []
    while not held(spread):
        engine = BusyEngine(spread)
        with pytest.raises(DeadlineError, match=r"orders: a wave was still running .* run.time_budget \(6 s\)"):
            replicate(spread.setup(), engine)
        stuck += engine.stuck
        assert len(stuck) <= 5
    summary = replicate(spread.changed(run={"time_budget": "1m"}).setup(), BusyEngine(spread))

    assert [[key.seq for key in keys] for keys in stuck[-2:]] == [[KILLER], [KILLER]]
    assert (summary.batches_by_state, summary.route) == ({"held": 1}, ["hold"])
    assert scalar(orders.dsn, "SELECT count(*) FROM target") == 900
    (killer,) = held(spread)
    assert (killer.failures, killer.finished, killer.deaths) == (0, 0, 2)


@pytest.mark.usefixtures("impatient")
def test_a_record_that_holds_spark_does_not_hold_the_run(orders: Replication) -> None:
    numbers = "sequence(1, 1000000 + id)"
    endless = f"exists({numbers}, x -> exists({numbers}, y -> x + y < -id))"
    slow = orders.changed(transform={"where": f"id <> 450 OR NOT {endless}"}, run={"time_budget": "30s"})
    started = time.monotonic()

    with pytest.raises(DeadlineError, match="cancelled"):
        replicate(slow.setup(), SubmitEngine(slow.pipeline))

    assert time.monotonic() - started < 150
    partition = orders.ledger.partitions("orders").popitem()[1].partition
    assert not partition.in_flight
    assert any(batch.alone for batch in partition.blocking.values())
    assert not any(batch.finished for batch in partition.blocking.values())


@pytest.mark.usefixtures("impatient")
def test_what_was_being_sent_at_most_once_when_the_budget_ran_out_counts_as_sent(orders: Replication) -> None:
    once = orders.changed(
        delivery="at_most_once", consumer={"strategy": "round_robin", "lanes": 1}, run={"time_budget": "6s"}
    )
    with pytest.raises(DeadlineError, match="counts as sent"):
        replicate(once.setup(), BusyEngine(once))

    summary = replicate(once.changed(run={"time_budget": "1m"}).setup(), BusyEngine(once))

    assert summary.route == ["done"]
    assert scalar(orders.dsn, "SELECT count(*) FROM target") == 900
