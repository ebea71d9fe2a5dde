"""Tests of the pipeline's measures that are not per partition, on both databases."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_ckpt.core.batch import BatchState
from tests.integration.ledger.ledger_driver import NOW, LedgerDriver, delivered, failed
from tests.integration.ledger.test_dead_letter_index import replay, send


def test_a_checkpoint_with_nothing_beyond_it_does_not_stand_still(driver: LedgerDriver) -> None:
    driver.deliver(10)
    assert driver.ledger.measures("orders").stalled_since is None


def test_it_stands_since_it_moved_last_however_the_plan_goes_on(driver: LedgerDriver) -> None:
    driver.deliver(10)
    driver.wait(hours=1).plan(20)
    driver.wait(hours=1).plan(30)
    driver.wait(hours=1).plan(40)

    assert driver.ledger.measures("orders").stalled_since == NOW

    driver.wait(hours=1).settle(*map(delivered, driver.begin(driver.partition().batches.values())[:1]))

    assert driver.partition().committed == 20
    assert driver.ledger.measures("orders").stalled_since == NOW + timedelta(hours=4)


def test_of_several_partitions_the_one_counts_that_waits_longest(driver: LedgerDriver) -> None:
    driver.start("u")
    driver.wait(hours=1).plan(5, name="u")
    driver.wait(hours=1).plan(5)

    assert driver.ledger.measures("orders").stalled_since == NOW


def test_parked_letters_are_counted_and_the_oldest_is_known(driver: LedgerDriver) -> None:
    for batch in driver.send(10, 20):
        driver.settle(delivered(batch, dead=5, dead_letters={"Sink": 5}))

    found = driver.ledger.measures("orders")

    assert (found.parked, found.oldest_parked) == (10, NOW)


def test_letters_that_were_replayed_are_parked_no_more(driver: LedgerDriver) -> None:
    [batch] = driver.send(10)
    driver.settle(delivered(batch, dead=5, dead_letters={"Sink": 5}))
    driver.settle(delivered(send(driver, replay(driver))))

    found = driver.ledger.measures("orders")

    assert (found.parked, found.oldest_parked) == (0, None)


def test_what_expired_after_an_event_is_told_once(driver: LedgerDriver) -> None:
    driver.window = timedelta(hours=1)
    [first, second] = driver.send(10, 20)
    before = driver.ledger.measures("orders")
    driver.wait(hours=3).settle(failed(first), delivered(second))

    found = driver.ledger.measures("orders", after=before.newest_event)

    assert driver.states() == {0: BatchState.PLANNED, 1: BatchState.DELIVERED}
    assert (before.expired, found.expired) == ([], [{"partition": "t", "range": [0, 10]}])
    assert driver.ledger.measures("orders", after=found.newest_event).expired == []


def test_a_lease_says_whether_it_was_taken_from_somebody(driver: LedgerDriver) -> None:
    own = driver.ledger.acquire("orders", "first", timedelta(seconds=60))
    taken = driver.ledger.acquire("orders", "second", timedelta(seconds=60), force=True)
    assert (own.taken_over, taken.taken_over) == (False, True)


def test_the_ledger_counts_its_seconds(driver: LedgerDriver) -> None:
    before = driver.ledger.seconds
    driver.deliver(10)
    assert driver.ledger.seconds > before
