"""Garbage collection: which rows are deleted and which remain, while runs go on."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from airflow_provider_ckpt.core.proposals import Proposal
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.ledger.commands import garbage_collection
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import tables
from tests.integration.ledger.ledger_driver import NOW, LedgerDriver, delivered, failed

MONTH = timedelta(days=30)
WINDOW = timedelta(hours=1)


def collect(driver: LedgerDriver, keep: timedelta = MONTH, *, dry_run: bool = False) -> dict[str, int]:
    """Collect, and say what went."""
    counts = driver.ledger.garbage_collect(
        "orders", keep=keep, actor="ann", reason="tidy", now=driver.now, dry_run=dry_run
    )
    return {name: count for name, count in counts.items() if count}


def rows(driver: LedgerDriver, table: sa.Table) -> int:
    """Return the number of rows in a table."""
    with driver.ledger._engine.connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


def test_old_events_go_and_young_ones_stay(driver: LedgerDriver) -> None:
    driver.deliver(10)
    driver.wait(days=31).deliver(20)
    counts = collect(driver)
    kinds = [event["kind"] for event in driver.ledger.events("orders")]
    assert counts["events"] == 5
    assert kinds == ["lease_acquired", "planned", "begun", "checkpoint", "settled", "collection_begun", "collected"]


def test_it_leaves_an_event_that_says_who_why_and_what(driver: LedgerDriver) -> None:
    driver.deliver(10)
    driver.wait(days=31)
    counts = collect(driver)
    for kind in ("collection_begun", "collected"):
        (event,) = driver.events(kind)
        assert (event["actor"], event["detail"]["reason"]) == ("ann", "tidy")
        assert event["detail"]["before"] == (driver.now - MONTH).isoformat()
    assert {name: count for name, count in event["detail"]["rows"].items() if count} == counts


def approved(driver: LedgerDriver) -> Proposal:
    """Propose to collect what is older than a month, and approve it."""
    action = Action(ActionKind.COLLECT_GARBAGE, older_than=driver.now - MONTH)
    proposal = Proposal.new("orders", action, origin="page/ann", actor="ann", reason="tidy")
    driver.ledger.propose(proposal, subject="?", body="?", valid_for=WINDOW)
    driver.ledger.answer(proposal.id, proposal.digest, approved=True, actor="ann")
    return proposal


def test_a_proposal_that_can_no_longer_be_used_deletes_nothing(driver: LedgerDriver) -> None:
    driver.deliver(10)
    driver.wait(days=31)
    proposal = approved(driver)
    driver.ledger.void_proposals("page/ann")
    before = [rows(driver, table) for table in tables.metadata.sorted_tables]
    with pytest.raises(LedgerStateError):
        driver.ledger.garbage_collect("orders", keep=MONTH, actor="ann", now=driver.now, proposal=proposal.id)
    assert [rows(driver, table) for table in tables.metadata.sorted_tables] == before


def test_a_collection_that_is_killed_has_an_event_and_has_used_up_its_proposal(
    driver: LedgerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.deliver(10)
    driver.wait(days=31)
    proposal = approved(driver)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(garbage_collection.GarbageCollection, "_snapshots", killed)
    with pytest.raises(KeyboardInterrupt):
        driver.ledger.garbage_collect(
            "orders", keep=MONTH, actor="ann", reason="tidy", now=driver.now, proposal=proposal.id
        )
    assert rows(driver, tables.attempt) == 0
    assert [event["actor"] for kind in ("approved", "collection_begun") for event in driver.events(kind)] == ["ann"] * 2
    assert driver.events("collected") == []
    with pytest.raises(LedgerStateError, match="carried out already"):
        driver.ledger.garbage_collect("orders", keep=MONTH, actor="ann", now=driver.now, proposal=proposal.id)


def test_a_dry_run_counts_what_would_go_and_changes_nothing(driver: LedgerDriver) -> None:
    busy_past(driver)
    before = [rows(driver, table) for table in tables.metadata.sorted_tables]
    told = collect(driver, dry_run=True)
    assert [rows(driver, table) for table in tables.metadata.sorted_tables] == before
    assert collect(driver) == told
    assert set(told) == {
        "side_partitions",
        "receipts",
        "superseded_batches",
        "attempts",
        "intents",
        "proposals",
        "marks",
        "events",
    }


def test_portions_add_up_to_the_whole(driver: LedgerDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    busy_past(driver)
    told = collect(driver, dry_run=True)
    monkeypatch.setattr(garbage_collection, "_PORTION", 2)
    assert collect(driver) == told


def test_a_second_collection_finds_nothing(driver: LedgerDriver) -> None:
    busy_past(driver)
    collect(driver)
    assert collect(driver) == {}


def test_after_it_the_audit_is_clean_and_the_run_goes_on(driver: LedgerDriver) -> None:
    busy_past(driver)
    collect(driver, timedelta(0))
    assert driver.ledger.audit("orders")["violations"] == []
    driver.plan(70, start=60)
    driver.settle(*map(delivered, driver.begin(driver.partition().blocking.values())))
    driver.deliver(driver.partition().planned_end + 10)
    assert driver.partition().committed == driver.partition().planned_end
    assert driver.ledger.audit("orders")["violations"] == []


def busy_past(driver: LedgerDriver) -> None:
    """A generation that ended, a replay, a failed attempt, an import, intents, a proposal, and then a month."""
    driver.window = WINDOW
    driver.deliver(10, 20, 30)
    driver.wait(hours=2).deliver(40, 50)
    driver.action(ActionKind.REWIND, positions={"t": 20})
    driver.wait(minutes=5).deliver(30, 40)
    driver.action(ActionKind.REPLAY, ranges=[("t", Range(20, 30))])
    (side,) = [name for name in driver.ledger.partitions("orders") if name != "t"]
    driver.deliver(30, name=side)
    first, second = driver.send(60, 80)
    driver.settle(failed(first))
    stranger = BatchKey(second.key.generation, "t", second.key.seq + 1)
    receipt = Receipt(stranger, Range(70, 80), Verdict.DELIVERED, 1, 1, Counts(10, 10), driver.now)
    driver.again().reconcile(receipt)
    proposal = Proposal.new("orders", Action(ActionKind.DRAIN), origin="care/1/preview", actor="ann", reason="tidy")
    driver.ledger.propose(proposal, subject="?", body="?", valid_for=driver.now - datetime.now(UTC))
    for _ in range(3):
        driver.wait(days=15).again().reconcile()


def test_receipts_of_a_generation_go_long_after_it_ended_and_their_sums_stay(driver: LedgerDriver) -> None:
    driver.deliver(10, 20)
    driver.action(ActionKind.REWIND, positions={"t": 0})
    driver.wait(days=20)
    assert "receipts" not in collect(driver)
    driver.wait(days=20).deliver(10)
    assert collect(driver)["receipts"] == 1
    assert (driver.ranges(1), driver.ranges(2)) == ([], [(0, 10)])
    with driver.ledger._engine.connect() as connection:
        c = tables.generation.c
        assert connection.execute(sa.select(c.read, c.batches).where(c.generation == 1)).one() == (20, 2)


def test_receipts_of_an_ended_generation_are_merged_at_once(
    driver: LedgerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_collection, "_PORTION", 3)
    driver.window = WINDOW
    driver.deliver(*range(10, 101, 10))
    first, second, third = driver.send(110, 120, 130)
    driver.settle(failed(first), delivered(second), delivered(third))
    driver.action(ActionKind.REWIND, positions={"t": 100})
    assert collect(driver, dry_run=True)["merged_receipts"] == collect(driver)["merged_receipts"] == 10
    assert driver.ranges(1) == [(0, 100), (110, 130)]
    assert collect(driver) == {}


def test_the_current_generation_keeps_what_proves_its_prefix_however_old(driver: LedgerDriver) -> None:
    driver.window = WINDOW
    driver.deliver(10, 20)
    driver.wait(days=400).deliver(30)
    collect(driver, timedelta(0))
    assert driver.ranges() == [(0, 20), (20, 30)]


def test_a_replay_whose_stretch_recovery_still_looks_at_stays(driver: LedgerDriver) -> None:
    driver.window = timedelta(days=100)
    driver.deliver(10)
    driver.action(ActionKind.REPLAY, ranges=[("t", Range(0, 10))])
    (side,) = [name for name in driver.ledger.partitions("orders") if name != "t"]
    driver.deliver(10, name=side)
    assert "side_partitions" not in collect(driver.wait(days=40))
    driver.wait(days=100).again().reconcile()
    assert collect(driver)["side_partitions"] == 1
    assert list(driver.ledger.partitions("orders")) == ["t"]


def test_a_replay_that_is_not_done_stays(driver: LedgerDriver) -> None:
    driver.deliver(10)
    driver.action(ActionKind.REPLAY, ranges=[("t", Range(0, 10))])
    (side,) = [name for name in driver.ledger.partitions("orders") if name != "t"]
    driver.send(10, name=side)
    assert "side_partitions" not in collect(driver.wait(days=400))
    assert side in driver.ledger.partitions("orders")


def test_marks_that_the_low_watermark_waits_for_stay(driver: LedgerDriver) -> None:
    driver.window = timedelta(days=50)
    for end in range(10, 50, 10):
        driver.wait(days=10).deliver(end)
    collect(driver, timedelta(days=1))
    driver.wait(days=45).again().reconcile()
    assert driver.record().low_watermark == 30


def test_a_look_back_to_within_what_is_kept_still_works(driver: LedgerDriver) -> None:
    for end in range(10, 100, 10):
        driver.wait(days=10).deliver(end)
    collect(driver)
    assert driver.ledger.positions_at("orders", driver.now - MONTH) == {"t": 60}
    assert driver.ledger.positions_at("orders", NOW) == {"t": 0}


def test_waiting_intents_and_open_attempts_stay(driver: LedgerDriver) -> None:
    driver.send(10)
    driver.ledger.action("orders", Action(ActionKind.DRAIN), actor="ann")
    driver.now = datetime.now(driver.now.tzinfo) + timedelta(days=400)
    assert set(collect(driver)) == {"events"}
    assert (rows(driver, tables.stored_action), rows(driver, tables.attempt)) == (1, 1)


def test_other_pipelines_are_left_alone(driver: LedgerDriver) -> None:
    other = LedgerDriver(driver.ledger, pipeline="other").start("t")
    other.deliver(10)
    driver.deliver(10)
    before = other.ledger.events("other")
    collect(driver.wait(days=400), timedelta(0))
    assert other.ledger.events("other") == before


def test_an_unknown_pipeline_is_said_to_be_unknown(ledger: Ledger) -> None:
    with pytest.raises(ConfigError, match="none yet"):
        ledger.garbage_collect("orders", keep=MONTH, actor="ann")


def run(url: str) -> int:
    """A run that goes on and on, with a clock that runs fast."""
    with Ledger.open(url) as ledger:
        driver = LedgerDriver(ledger).start("t")
        driver.window = WINDOW
        for end in range(1, 61):
            driver.wait(days=1).deliver(end)
        return driver.partition().committed


def tidy(url: str) -> int:
    """Collections one after another."""
    events = 0
    with Ledger.open(url) as ledger:
        for day in range(60):
            events += ledger.garbage_collect("orders", keep=timedelta(0), actor="ann", now=NOW + timedelta(days=day))[
                "events"
            ]
    return events


def test_a_run_and_collections_at_once_do_not_disturb_each_other(ledger: Ledger, ledger_url: str) -> None:
    ledger.release(ledger.acquire("orders", "first", WINDOW))
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        runs, collections = pool.submit(run, ledger_url), pool.submit(tidy, ledger_url)
        assert (runs.result(), collections.result() >= 0) == (60, True)
    assert ledger.audit("orders")["violations"] == []
    assert ledger.partitions("orders")["t"].totals.counts == Counts(60, 60)


def test_proposals_that_nobody_can_use_any_more_go(driver: LedgerDriver) -> None:
    driver.deliver(10)
    for days in (1, 365):
        proposal = Proposal.new(
            "orders", Action(ActionKind.DRAIN), origin=f"care/{days}/preview", actor="ann", reason="tidy"
        )
        driver.ledger.propose(proposal, subject="?", body="?", valid_for=timedelta(days=days))
    now = datetime.now(UTC) + timedelta(days=40)
    counts = driver.ledger.garbage_collect("orders", keep=MONTH, actor="ann", reason="tidy", now=now)
    assert counts["proposals"] == 1
    assert driver.ledger.load_newest_proposal("care/1/preview") is None
    assert driver.ledger.load_newest_proposal("care/365/preview") is not None
