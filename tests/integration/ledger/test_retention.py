"""Collecting what is old: what goes, what stays, and that a run can go on beside it."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.core.actions import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.proposals import Proposal
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.ledger.commands import retention
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import tables
from tests.integration.ledger.ledger_driver import NOW, Acts, delivered, failed

MONTH = timedelta(days=30)
WINDOW = timedelta(hours=1)


def collect(acts: Acts, keep: timedelta = MONTH, *, dry_run: bool = False) -> dict[str, int]:
    """Collect, and say what went."""
    counts = acts.ledger.garbage_collect("orders", keep=keep, actor="ann", reason="tidy", now=acts.now, dry_run=dry_run)
    return {name: count for name, count in counts.items() if count}


def rows(acts: Acts, table: sa.Table) -> int:
    """Return the number of rows in a table."""
    with acts.ledger._engine.connect() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()


def test_old_events_go_and_young_ones_stay(acts: Acts) -> None:
    acts.deliver(10)
    acts.wait(days=31).deliver(20)
    counts = collect(acts)
    kinds = [event["kind"] for event in acts.ledger.events("orders")]
    assert counts["events"] == 5
    assert kinds == ["lease_acquired", "planned", "begun", "checkpoint", "settled", "collected"]


def test_it_leaves_an_event_that_says_who_why_and_what(acts: Acts) -> None:
    acts.deliver(10)
    acts.wait(days=31)
    counts = collect(acts)
    (event,) = acts.events("collected")
    assert (event["actor"], event["detail"]["reason"]) == ("ann", "tidy")
    assert event["detail"]["before"] == (acts.now - MONTH).isoformat()
    assert {name: count for name, count in event["detail"]["rows"].items() if count} == counts


def test_a_dry_run_counts_what_would_go_and_changes_nothing(acts: Acts) -> None:
    busy_past(acts)
    before = [rows(acts, table) for table in tables.metadata.sorted_tables]
    told = collect(acts, dry_run=True)
    assert [rows(acts, table) for table in tables.metadata.sorted_tables] == before
    assert collect(acts) == told
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


def test_portions_add_up_to_the_whole(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    busy_past(acts)
    told = collect(acts, dry_run=True)
    monkeypatch.setattr(retention, "_PORTION", 2)
    assert collect(acts) == told


def test_a_second_collection_finds_nothing(acts: Acts) -> None:
    busy_past(acts)
    collect(acts)
    assert collect(acts) == {}


def test_after_it_the_audit_is_clean_and_the_run_goes_on(acts: Acts) -> None:
    busy_past(acts)
    collect(acts, timedelta(0))
    assert acts.ledger.audit("orders")["violations"] == []
    acts.plan(70, start=60)
    acts.settle(*map(delivered, acts.begin(acts.partition().blocking.values())))
    acts.deliver(acts.partition().planned_end + 10)
    assert acts.partition().committed == acts.partition().planned_end
    assert acts.ledger.audit("orders")["violations"] == []


def busy_past(acts: Acts) -> None:
    """A generation that ended, a replay, a failed attempt, an import, intents, a proposal, and then a month."""
    acts.window = WINDOW
    acts.deliver(10, 20, 30)
    acts.wait(hours=2).deliver(40, 50)
    acts.action(ActionKind.REWIND, positions={"t": 20})
    acts.wait(minutes=5).deliver(30, 40)
    acts.action(ActionKind.REPLAY, ranges=[("t", Range(20, 30))])
    (side,) = [name for name in acts.ledger.partitions("orders") if name != "t"]
    acts.deliver(30, name=side)
    first, second = acts.send(60, 80)
    acts.settle(failed(first))
    stranger = BatchKey(second.key.generation, "t", second.key.seq + 1)
    receipt = Receipt(stranger, Range(70, 80), Verdict.DELIVERED, 1, 1, Counts(10, 10), acts.now)
    acts.again().reconcile(receipt)
    proposal = Proposal.new("orders", Action(ActionKind.DRAIN), origin="care/1/preview", actor="ann", reason="tidy")
    acts.ledger.propose(proposal, subject="?", body="?", valid_for=acts.now - datetime.now(UTC))
    for _ in range(3):
        acts.wait(days=15).again().reconcile()


def test_receipts_of_a_generation_go_long_after_it_ended_and_their_sums_stay(acts: Acts) -> None:
    acts.deliver(10, 20)
    acts.action(ActionKind.REWIND, positions={"t": 0})
    acts.wait(days=20)
    assert "receipts" not in collect(acts)
    acts.wait(days=20).deliver(10)
    assert collect(acts)["receipts"] == 1
    assert (acts.ranges(1), acts.ranges(2)) == ([], [(0, 10)])
    with acts.ledger._engine.connect() as connection:
        c = tables.generation.c
        assert connection.execute(sa.select(c.read, c.batches).where(c.generation == 1)).one() == (20, 2)


def test_receipts_of_an_ended_generation_are_merged_at_once(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_PORTION", 3)
    acts.window = WINDOW
    acts.deliver(*range(10, 101, 10))
    first, second, third = acts.send(110, 120, 130)
    acts.settle(failed(first), delivered(second), delivered(third))
    acts.action(ActionKind.REWIND, positions={"t": 100})
    assert collect(acts, dry_run=True)["merged_receipts"] == collect(acts)["merged_receipts"] == 10
    assert acts.ranges(1) == [(0, 100), (110, 130)]
    assert collect(acts) == {}


def test_the_current_generation_keeps_what_proves_its_prefix_however_old(acts: Acts) -> None:
    acts.window = WINDOW
    acts.deliver(10, 20)
    acts.wait(days=400).deliver(30)
    collect(acts, timedelta(0))
    assert acts.ranges() == [(0, 20), (20, 30)]


def test_a_replay_whose_stretch_recovery_still_looks_at_stays(acts: Acts) -> None:
    acts.window = timedelta(days=100)
    acts.deliver(10)
    acts.action(ActionKind.REPLAY, ranges=[("t", Range(0, 10))])
    (side,) = [name for name in acts.ledger.partitions("orders") if name != "t"]
    acts.deliver(10, name=side)
    assert "side_partitions" not in collect(acts.wait(days=40))
    acts.wait(days=100).again().reconcile()
    assert collect(acts)["side_partitions"] == 1
    assert list(acts.ledger.partitions("orders")) == ["t"]


def test_a_replay_that_is_not_done_stays(acts: Acts) -> None:
    acts.deliver(10)
    acts.action(ActionKind.REPLAY, ranges=[("t", Range(0, 10))])
    (side,) = [name for name in acts.ledger.partitions("orders") if name != "t"]
    acts.send(10, name=side)
    assert "side_partitions" not in collect(acts.wait(days=400))
    assert side in acts.ledger.partitions("orders")


def test_marks_that_the_low_watermark_waits_for_stay(acts: Acts) -> None:
    acts.window = timedelta(days=50)
    for end in range(10, 50, 10):
        acts.wait(days=10).deliver(end)
    collect(acts, timedelta(days=1))
    acts.wait(days=45).again().reconcile()
    assert acts.record().low_watermark == 30


def test_a_look_back_to_within_what_is_kept_still_works(acts: Acts) -> None:
    for end in range(10, 100, 10):
        acts.wait(days=10).deliver(end)
    collect(acts)
    assert acts.ledger.positions_at("orders", acts.now - MONTH) == {"t": 60}
    assert acts.ledger.positions_at("orders", NOW) == {"t": 0}


def test_waiting_intents_and_open_attempts_stay(acts: Acts) -> None:
    acts.send(10)
    acts.ledger.action("orders", Action(ActionKind.DRAIN), actor="ann")
    acts.now = datetime.now(acts.now.tzinfo) + timedelta(days=400)
    assert set(collect(acts)) == {"events"}
    assert (rows(acts, tables.stored_action), rows(acts, tables.attempt)) == (1, 1)


def test_other_pipelines_are_left_alone(acts: Acts) -> None:
    other = Acts(acts.ledger, pipeline="other").start("t")
    other.deliver(10)
    acts.deliver(10)
    before = other.ledger.events("other")
    collect(acts.wait(days=400), timedelta(0))
    assert other.ledger.events("other") == before


def test_an_unknown_pipeline_is_said_to_be_unknown(ledger: Ledger) -> None:
    with pytest.raises(ConfigError, match="none yet"):
        ledger.garbage_collect("orders", keep=MONTH, actor="ann")


def run(url: str) -> int:
    """A run that goes on and on, with a clock that runs fast."""
    with Ledger.open(url) as ledger:
        acts = Acts(ledger).start("t")
        acts.window = WINDOW
        for end in range(1, 61):
            acts.wait(days=1).deliver(end)
        return acts.partition().committed


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


def test_proposals_that_nobody_can_use_any_more_go(acts: Acts) -> None:
    acts.deliver(10)
    for days in (1, 365):
        proposal = Proposal.new(
            "orders", Action(ActionKind.DRAIN), origin=f"care/{days}/preview", actor="ann", reason="tidy"
        )
        acts.ledger.propose(proposal, subject="?", body="?", valid_for=timedelta(days=days))
    now = datetime.now(UTC) + timedelta(days=40)
    counts = acts.ledger.garbage_collect("orders", keep=MONTH, actor="ann", reason="tidy", now=now)
    assert counts["proposals"] == 1
    assert acts.ledger.load_newest_proposal("care/1/preview") is None
    assert acts.ledger.load_newest_proposal("care/365/preview") is not None
