"""Tests of the pipeline measures beyond its partitions, on both databases."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_ckpt.core.batch import BatchState
from tests.integration.ledger.ledger_driver import NOW, Acts, delivered, failed
from tests.integration.ledger.test_dead_letter_index import replay, send


def test_a_checkpoint_with_nothing_beyond_it_does_not_stand_still(acts: Acts) -> None:
    acts.deliver(10)
    assert acts.ledger.measures("orders").stalled_since is None


def test_it_stands_since_it_moved_last_however_the_plan_goes_on(acts: Acts) -> None:
    acts.deliver(10)
    acts.wait(hours=1).plan(20)
    acts.wait(hours=1).plan(30)
    acts.wait(hours=1).plan(40)

    assert acts.ledger.measures("orders").stalled_since == NOW

    acts.wait(hours=1).settle(*map(delivered, acts.begin(acts.partition().batches.values())[:1]))

    assert acts.partition().committed == 20
    assert acts.ledger.measures("orders").stalled_since == NOW + timedelta(hours=4)


def test_of_several_partitions_the_one_counts_that_waits_longest(acts: Acts) -> None:
    acts.start("u")
    acts.wait(hours=1).plan(5, name="u")
    acts.wait(hours=1).plan(5)

    assert acts.ledger.measures("orders").stalled_since == NOW


def test_parked_letters_are_counted_and_the_oldest_is_known(acts: Acts) -> None:
    for batch in acts.send(10, 20):
        acts.settle(delivered(batch, dead=5, dead_letters={"Sink": 5}))

    found = acts.ledger.measures("orders")

    assert (found.parked, found.oldest_parked) == (10, NOW)


def test_letters_that_were_replayed_are_parked_no_more(acts: Acts) -> None:
    [batch] = acts.send(10)
    acts.settle(delivered(batch, dead=5, dead_letters={"Sink": 5}))
    acts.settle(delivered(send(acts, replay(acts))))

    found = acts.ledger.measures("orders")

    assert (found.parked, found.oldest_parked) == (0, None)


def test_what_expired_after_an_event_is_told_once(acts: Acts) -> None:
    acts.window = timedelta(hours=1)
    [first, second] = acts.send(10, 20)
    before = acts.ledger.measures("orders")
    acts.wait(hours=3).settle(failed(first), delivered(second))

    found = acts.ledger.measures("orders", after=before.newest_event)

    assert acts.states() == {0: BatchState.PLANNED, 1: BatchState.DELIVERED}
    assert (before.expired, found.expired) == ([], [{"partition": "t", "range": [0, 10]}])
    assert acts.ledger.measures("orders", after=found.newest_event).expired == []


def test_a_lease_says_whether_it_was_taken_from_somebody(acts: Acts) -> None:
    own = acts.ledger.acquire("orders", "first", timedelta(seconds=60))
    taken = acts.ledger.acquire("orders", "second", timedelta(seconds=60), force=True)
    assert (own.taken_over, taken.taken_over) == (False, True)


def test_the_ledger_counts_its_seconds(acts: Acts) -> None:
    before = acts.ledger.seconds
    acts.deliver(10)
    assert acts.ledger.seconds > before
