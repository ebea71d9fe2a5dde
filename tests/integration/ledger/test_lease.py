"""The lease: who gets it, when it may be taken over, and the refusal of every command of an older epoch."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_ckpt.connectors.source_plan import Plan, PlannedBatch, SourcePartition
from airflow_provider_ckpt.core.errors import LeaseBusyError, StaleEpochError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store.failed_runs import MAX_ERROR_CHARACTERS, FailedRun
from airflow_provider_ckpt.ledger.types import Lease
from tests.integration.ledger.ledger_driver import NOW, TTL, LedgerDriver, delivered

COMMANDS: dict[str, Callable[[Ledger, Lease], object]] = {
    "declare": lambda ledger, lease: ledger.declare(lease, {"name": "orders"}),
    "start_partitions": lambda ledger, lease: ledger.start_partitions(lease, {SourcePartition("u", "other"): 0}),
    "plan": lambda ledger, lease: ledger.plan(lease, Plan([PlannedBatch("t", Range(20, 30))])),
    "begin": lambda ledger, lease: ledger.begin(
        lease, [next(iter(ledger.partitions("orders")["t"].partition.batches.values())).key], now=NOW, run="r"
    ),
    "reconcile": lambda ledger, lease: ledger.reconcile(lease, [], now=NOW),
    "settle": lambda ledger, lease: ledger.settle(
        lease,
        [delivered(batch) for batch in ledger.partitions("orders")["t"].partition.batches.values()],
        now=NOW,
        policy=DeliveryPolicy(),
        deviation=lambda: 0.0,
    ),
    "lost": lambda ledger, lease: ledger.settle_lost_wave(lease, [], [], now=NOW, alone=False, limit=3),
    "cancel": lambda ledger, lease: ledger.cancel(lease, now=NOW),
    "renew": lambda ledger, lease: ledger.renew(lease),
    "renew_all": lambda ledger, lease: _raise_lost(ledger, lease),
    "attach": lambda ledger, lease: ledger.attach(lease.pipeline, lease.epoch, lease.owner),
}


def _raise_lost(ledger: Ledger, lease: Lease) -> None:
    """Renew a lease as one of several, and raise its error if it was lost."""
    for error in ledger.renew_all([lease]).lost.values():
        raise error


def test_the_first_lease_has_epoch_one_and_every_later_one_a_greater(ledger: Ledger) -> None:
    first = ledger.acquire("orders", "a", TTL)
    ledger.release(first)
    second = ledger.acquire("orders", "b", TTL)
    assert (first.epoch, second.epoch) == (1, 2)


def test_the_epoch_is_beyond_the_sinks_fence(ledger: Ledger) -> None:
    assert ledger.acquire("orders", "a", TTL, at_least=41).epoch == 42


def test_a_second_owner_is_told_who_holds_the_lease_and_until_when(ledger: Ledger) -> None:
    lease = ledger.acquire("orders", "dag/run-1", TTL)
    with pytest.raises(LeaseBusyError, match="dag/run-1") as caught:
        ledger.acquire("orders", "dag/run-2", TTL)
    assert lease.expires_at.isoformat() in str(caught.value)
    assert "orders" in str(caught.value)


def test_pipelines_have_leases_of_their_own(ledger: Ledger) -> None:
    ledger.acquire("orders", "a", TTL)
    assert ledger.acquire("invoices", "b", TTL).epoch == 1


def test_the_same_owner_acquires_anew_under_a_new_epoch(ledger: Ledger) -> None:
    ledger.acquire("orders", "a", TTL)
    assert ledger.acquire("orders", "a", TTL).epoch == 2


def test_an_expired_lease_is_taken_over_and_the_trail_says_so(ledger: Ledger) -> None:
    ledger.acquire("orders", "frozen", timedelta(milliseconds=50))
    time.sleep(0.1)
    lease = ledger.acquire("orders", "second", TTL)
    event = ledger.events("orders")[-1]
    assert lease.epoch == 2
    assert event["kind"] == "lease_taken_over"
    assert event["detail"] == {"before": {"owner": "frozen", "epoch": 1}, "reason": "expired"}


def test_a_renewed_lease_does_not_expire(ledger: Ledger) -> None:
    lease = ledger.acquire("orders", "a", timedelta(seconds=2))
    for _ in range(3):
        time.sleep(0.8)
        ledger.renew(lease)
    with pytest.raises(LeaseBusyError):
        ledger.acquire("orders", "b", TTL)


def test_an_expired_lease_that_nobody_took_can_still_be_renewed(ledger: Ledger) -> None:
    lease = ledger.acquire("orders", "a", timedelta(milliseconds=20))
    time.sleep(0.05)
    ledger.renew(lease)
    assert ledger.attach("orders", 1, "a").epoch == 1


def test_a_dead_owners_lease_is_free_at_once(ledger: Ledger) -> None:
    ledger.acquire("orders", "pid 4711", TTL)
    lease = ledger.acquire("orders", "b", TTL, is_dead=lambda owner: owner == "pid 4711")
    assert (lease.epoch, ledger.events("orders")[-1]["detail"]["reason"]) == (2, "owner is dead")


def test_release_is_idempotent_and_does_not_touch_a_successors_lease(ledger: Ledger) -> None:
    lease = ledger.acquire("orders", "a", TTL)
    ledger.release(lease)
    ledger.acquire("orders", "b", TTL)
    ledger.release(lease)
    with pytest.raises(LeaseBusyError):
        ledger.acquire("orders", "c", TTL)


def test_another_process_of_the_same_run_carries_the_lease_on(ledger_url: str, ledger: Ledger) -> None:
    lease = ledger.acquire("orders", "a", TTL)
    with Ledger.open(ledger_url) as other:
        attached = other.attach("orders", lease.epoch, "a")
    assert (attached.epoch, attached.owner, attached.ttl) == (lease.epoch, "a", TTL)
    assert attached.expires_at >= lease.expires_at


def test_nobody_attaches_to_an_epoch_of_another_owner(ledger: Ledger) -> None:
    lease = ledger.acquire("orders", "a", TTL)
    with pytest.raises(StaleEpochError, match="orders"):
        ledger.attach("orders", lease.epoch, "b")


def test_nobody_attaches_to_a_pipeline_that_has_never_run(ledger: Ledger) -> None:
    with pytest.raises(StaleEpochError, match="the newest epoch in the ledger is none"):
        ledger.attach("orders", 3, "a")


def test_the_lease_lasts_its_ttl_by_the_databases_clock(ledger: Ledger) -> None:
    before = datetime.now(UTC)
    lease = ledger.acquire("orders", "a", timedelta(minutes=5))
    assert timedelta(0) <= lease.expires_at - before - timedelta(minutes=5) < timedelta(seconds=10)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_an_older_epoch_is_refused_and_stores_nothing(driver: LedgerDriver, command: str) -> None:
    driver.send(10, 20)
    old = driver.lease
    driver.again("second")
    before = driver.ledger.status("orders")
    with pytest.raises(StaleEpochError) as caught:
        COMMANDS[command](driver.ledger, old)
    text = str(caught.value)
    assert "orders" in text
    assert "epoch 1" in text
    assert "epoch 2" in text
    assert "second" in text
    assert driver.ledger.status("orders") == before


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_refused_once_its_own_lease_was_released(driver: LedgerDriver, command: str) -> None:
    driver.send(10, 20)
    driver.ledger.release(driver.lease)
    with pytest.raises(StaleEpochError, match="released"):
        COMMANDS[command](driver.ledger, driver.lease)


def test_a_lease_of_a_ledger_that_was_replaced_is_refused(driver: LedgerDriver) -> None:
    newer = Lease("orders", "first", 9, TTL, driver.lease.expires_at)
    with pytest.raises(StaleEpochError, match="restored"):
        driver.ledger.cancel(newer, now=NOW)


def test_the_error_of_the_newest_run_is_known_with_the_time_of_the_first_that_failed(ledger: Ledger) -> None:
    def run(pipeline: str, error: str | None) -> datetime:
        ledger.release(ledger.acquire(pipeline, "a", TTL), error=error, succeeded=error is None)
        return datetime.fromisoformat(ledger.events(pipeline)[-1]["at"])

    run("shop.a", "an older one")
    run("shop.a", None)
    first = run("shop.a", "column price is gone")
    run("shop.a", "column price is still gone")
    ledger.release(ledger.acquire("shop.a", "action of a user", TTL))
    run("shop.b", "mended since")
    run("shop.b", None)
    run("shop2.a", "of another declaration")

    assert ledger.failed_runs("shop.") == {"shop.a": FailedRun("column price is still gone", first)}
    run("shop.a", None)
    assert ledger.failed_runs("shop.") == {}


def test_a_refusal_is_known_until_a_run_succeeds_and_adds_one_event_for_each_error(ledger: Ledger) -> None:
    ledger.register(["shop.a"])

    ledger.record_refusal("shop.a", "dag/1", "the source cannot be reached")
    ledger.record_refusal("shop.a", "dag/2", "the source cannot be reached")
    ledger.record_refusal("shop.a", "dag/3", "x" * 10_000)
    ledger.record_refusal("shop.unknown", "dag/1", "the source cannot be reached")

    events = ledger.events("shop.a")
    assert [(event["kind"], event["actor"], event["epoch"]) for event in events] == [
        ("run_refused", "dag/1", None),
        ("run_refused", "dag/3", None),
    ]
    assert events[0]["detail"] == {"error": "the source cannot be reached"}
    since = datetime.fromisoformat(events[0]["at"])
    assert ledger.failed_runs("shop.") == {"shop.a": FailedRun("x" * MAX_ERROR_CHARACTERS, since)}
    ledger.release(ledger.acquire("shop.a", "dag/4", TTL), succeeded=True)
    assert ledger.failed_runs("shop.") == {}
    assert ledger.pipelines() == ["shop.a"]
