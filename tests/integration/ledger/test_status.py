"""Tests of the ledger's status documents, which are JSON."""

from __future__ import annotations

import json

import pytest

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.on_exhausted import OnExhausted
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy, RetryPolicy
from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.integration.ledger.ledger_driver import NOW, TTL, LedgerDriver, delivered, failed


def test_status_tells_all_and_is_json(driver: LedgerDriver) -> None:
    batches = driver.send(10, 20, 30, 40)
    hold = DeliveryPolicy(RetryPolicy(max_attempts=1, rounds=1, on_exhausted=OnExhausted.HOLD))
    driver.settle(delivered(batches[0], dead=2, dead_letters={"Sink": 2}), failed(batches[1]), delivered(batches[2]))
    driver.settle(failed(batches[3]), policy=hold)
    status = json.loads(json.dumps(driver.ledger.status("orders")))
    assert status["ledger"] == driver.ledger.id
    assert (status["phase"], status["generation"]) == ("running", 1)
    assert (status["lease"]["owner"], status["lease"]["epoch"], status["lease"]["held"]) == ("first", 1, True)
    (partition,) = status["partitions"]
    assert (partition["id"], partition["identity"], partition["base"]) == ("t", "thing of t", 0)
    assert (partition["committed"], partition["planned_end"], partition["pending_acks"]) == (10, 40, 1)
    assert status["batches"] == partition["batches"] == {"delivered": 1, "held": 1, "planned": 1}
    assert status["receipts"] == {"t": [[0, 10, 1, 10, 8, 0, 2]]}
    assert status["dead_letters"] == {"Sink": 2}
    assert [(b["batch"], b["range"], b["error"]["sqlstate"]) for b in status["held"]] == [("t#3", [30, 40], "08006")]
    assert [b["batch"] for b in status["waiting"]] == ["t#1"]
    assert status["events"][-1]["kind"] == "settled"


def test_status_of_a_pipeline_that_only_acquired_is_shown(ledger: Ledger) -> None:
    ledger.release(ledger.acquire("orders", "a", TTL))
    status = ledger.status("orders")
    assert (status["partitions"], status["lease"]["held"], status["lease"]["owner"]) == ([], False, None)


def test_an_unknown_pipeline_names_the_nearest(driver: LedgerDriver) -> None:
    with pytest.raises(ConfigError, match="Did you mean orders"):
        driver.ledger.status("order")


def test_an_unknown_pipeline_in_an_empty_ledger_says_that_there_is_none(ledger: Ledger) -> None:
    for read in (ledger.status, ledger.receipts, ledger.events):
        with pytest.raises(ConfigError, match="none yet"):
            read("orders")


def test_a_pipeline_that_never_ran_has_no_partitions_and_no_files(ledger: Ledger) -> None:
    assert (ledger.partitions("orders"), ledger.files("orders"), ledger.pipelines()) == ({}, [], [])


def test_pipelines_are_listed_in_order(ledger: Ledger) -> None:
    for name in ("b", "a", "c"):
        ledger.acquire(name, "x", TTL)
    assert ledger.pipelines() == ["a", "b", "c"]


def test_pipelines_do_not_see_each_other(driver: LedgerDriver) -> None:
    driver.settle(*map(delivered, driver.send(10)))
    other = LedgerDriver(driver.ledger, pipeline="invoices").start("t")
    other.send(5)
    assert (driver.partition().committed, other.partition().committed) == (10, 0)
    assert driver.ledger.status("invoices")["receipts"] == {}


def test_the_trail_says_who_did_what_under_which_epoch(driver: LedgerDriver) -> None:
    driver.settle(*map(delivered, driver.send(10, 20)))
    events = driver.ledger.events("orders")
    kinds = [event["kind"] for event in events]
    assert kinds == ["lease_acquired", "partitions_started", "planned", "begun", "checkpoint", "settled"]
    assert {(event["actor"], event["epoch"]) for event in events} == {("first", 1)}
    assert events[2]["detail"] == {"batches": 2, "records": 20, "ranges": {"t": [[0, 20]]}, "files": 0, "more": False}
    assert events[4]["detail"] == {"before": 0, "after": 20}
    assert events[5]["detail"]["counts"] == {"read": 20, "delivered": 20, "filtered": 0, "dead_lettered": 0}
    assert events[5]["at"] == NOW.isoformat()


def test_only_the_newest_events_are_shown_when_asked_for_a_few(driver: LedgerDriver) -> None:
    driver.send(10)
    assert [event["kind"] for event in driver.ledger.events("orders", limit=2)] == ["planned", "begun"]
