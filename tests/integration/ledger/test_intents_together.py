"""Several acts that one command applies: each is stored once, whatever the ones before it have stored."""

from __future__ import annotations

from airflow_provider_ckpt.core.acts import Act, ActKind
from tests.integration.ledger.acts import NOW, Acts, delivered


def test_acts_applied_together_merge_each_receipt_once(acts: Acts) -> None:
    first, second, third = acts.plan(10, 20, 30)
    acts.settle(*map(delivered, acts.begin([second])))
    for batch in (first, third):
        acts.ledger.act("orders", Act(ActKind.SKIP, batches=(batch.key,)), who="a person", why="not needed")

    results = acts.ledger.apply_intents(acts.lease, now=NOW)

    assert [result.applied for result in results] == [True, True]
    assert acts.receipts() == [(0, 10, 1, 0), (10, 20, 1, 10), (20, 30, 1, 0)]
    acts.reconcile()
    assert acts.receipts() == [(0, 30, 3, 10)]


def test_an_act_after_a_rewind_in_the_same_command_counts_nothing_again(acts: Acts) -> None:
    first, second, third = acts.plan(10, 20, 30)
    acts.settle(*map(delivered, acts.begin([first, third])))
    acts.ledger.act("orders", Act(ActKind.REWIND, positions={"t": 5}), who="a person", why="again")
    acts.ledger.act("orders", Act(ActKind.DRAIN), who="a person", why="enough")

    results = acts.ledger.apply_intents(acts.lease, now=NOW, behind_fence=True)

    assert [result.applied for result in results] == [True, True]
    assert acts.receipts() == [(0, 10, 1, 10), (20, 30, 1, 10)]
    assert acts.partition().committed == 5
    assert second.key.seq not in acts.partition().batches


def test_an_act_does_not_overtake_one_that_waits(acts: Acts) -> None:
    acts.ledger.act("orders", Act(ActKind.DRAIN), who="ann", why="maintenance")
    acts.ledger.release(acts.lease)

    result = acts.ledger.act("orders", Act(ActKind.RESUME), who="ben", why="over")

    assert (result.before["phase"], result.after["phase"]) == ("draining", "running")
    assert acts.ledger.intents("orders") == []
