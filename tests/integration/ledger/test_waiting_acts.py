"""Acts that wait for the holder of the lease keep their order."""

from __future__ import annotations

from airflow_provider_ckpt.core.actions import Act, ActKind
from tests.integration.ledger.acts import Acts


def test_an_act_does_not_overtake_one_that_waits(acts: Acts) -> None:
    acts.ledger.act("orders", Act(ActKind.DRAIN), who="ann", why="maintenance")
    acts.ledger.release(acts.lease)

    result = acts.ledger.act("orders", Act(ActKind.RESUME), who="ben", why="over")

    assert (result.before["phase"], result.after["phase"]) == ("draining", "running")
    assert acts.ledger.intents("orders") == []


def test_a_stop_that_a_dead_run_stands_in_the_way_of_goes_on_waiting(acts: Acts) -> None:
    [batch] = acts.plan(10)
    acts.begin([batch])
    for kind in (ActKind.DRAIN, ActKind.STOP):
        acts.ledger.act("orders", Act(kind), who="ann", why="maintenance")
    acts.ledger.release(acts.lease)

    acts.ledger.act("orders", Act(ActKind.HOLD, (batch.key,)), who="ben", why="look at it first")

    assert [intent.act.kind for intent in acts.ledger.intents("orders")] == [ActKind.STOP]
