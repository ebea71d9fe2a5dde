"""Several processes use one ledger: nothing is lost, and no lease is granted twice."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from datetime import timedelta

import pytest

from airflow_provider_ckpt.core.errors import LeaseBusyError, LedgerUnavailableError
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import database
from airflow_provider_ckpt.ledger.store import lease as lease_store
from tests.integration.ledger.ledger_driver import TTL, LedgerDriver, delivered

PROCESSES = 4
ROUNDS = 15


def work(url: str, name: str) -> int:
    """Run a pipeline of its own, a batch at a time."""
    with Ledger.open(url) as ledger:
        driver = LedgerDriver(ledger, owner=name, pipeline=name).start("t")
        for end in range(1, ROUNDS + 1):
            driver.settle(*map(delivered, driver.send(end * 10)))
            ledger.renew(driver.lease)
        return driver.partition().committed


def grab(url: str, owner: str) -> list[int]:
    """Take the one lease as often as it is free."""
    epochs: list[int] = []
    with Ledger.open(url) as ledger:
        while len(epochs) < ROUNDS:
            try:
                lease = ledger.acquire("orders", owner, timedelta(seconds=60))
            except LeaseBusyError:
                continue
            epochs.append(lease.epoch)
            ledger.release(lease)
    return epochs


def workers() -> ProcessPoolExecutor:
    """Processes that share nothing with this one."""
    return ProcessPoolExecutor(PROCESSES, mp_context=multiprocessing.get_context("spawn"))


def test_processes_with_pipelines_of_their_own_do_not_disturb_each_other(ledger_url: str) -> None:
    names = [f"pipeline-{number}" for number in range(PROCESSES)]
    with workers() as pool:
        assert list(pool.map(work, [ledger_url] * PROCESSES, names)) == [ROUNDS * 10] * PROCESSES


def test_no_epoch_is_granted_twice(ledger_url: str) -> None:
    owners = [f"owner-{number}" for number in range(PROCESSES)]
    with workers() as pool:
        granted = [epoch for epochs in pool.map(grab, [ledger_url] * PROCESSES, owners) for epoch in epochs]
    assert sorted(granted) == list(range(1, PROCESSES * ROUNDS + 1))


def test_a_read_does_not_wait_for_a_command_in_progress(ledger_url: str) -> None:
    with Ledger.open(ledger_url) as ledger, Ledger.open(ledger_url) as reader:
        driver = LedgerDriver(ledger).start("t")
        with ledger._command(driver.lease) as command:
            command.write("pause", {})
            assert [event["kind"] for event in reader.events("orders")] == ["lease_acquired", "partitions_started"]
        assert reader.events("orders")[-1]["kind"] == "pause"
        assert reader.acquire("other", "b", TTL).epoch == 1


def test_the_event_of_a_refused_run_waits_for_a_command_in_progress(ledger_url: str) -> None:
    """Or a subscriber would read the event first, and never those of the command, which have smaller ids."""
    with Ledger.open(ledger_url) as ledger, ThreadPoolExecutor(1) as pool:
        LedgerDriver(ledger).start("t")
        with ledger._writing() as connection:
            lease_store.lock_row(connection, "orders")
            refused = pool.submit(ledger.record_refusal, "orders", "dag/1", "the source cannot be reached")
            assert wait([refused], 0.5).not_done
        refused.result(60)
        assert ledger.failed_runs("orders")["orders"].error == "the source cannot be reached"


def test_a_process_frozen_inside_a_command_does_not_block_its_successor(
    migrated_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient = database._POSTGRES_SESSION.replace("'15s'", "'300ms'")
    monkeypatch.setattr(database, "_POSTGRES_SESSION", impatient)
    with Ledger.open(migrated_database) as frozen, Ledger.open(migrated_database) as second:
        driver = LedgerDriver(frozen, pipeline="frozen").start("t")

        def freeze() -> None:
            with frozen._command(driver.lease) as command:
                time.sleep(1)
                command.write("too late", {})

        with ThreadPoolExecutor(1) as pool:
            thawed = pool.submit(freeze)
            time.sleep(0.1)
            lease = second.acquire("frozen", "second", TTL, is_dead=lambda _: True)
        with pytest.raises(LedgerUnavailableError):
            thawed.result()
        assert lease.epoch == driver.lease.epoch + 1
        assert second.events("frozen")[-1]["kind"] == "lease_taken_over"
