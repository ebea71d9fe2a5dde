"""Queries for the page in Airflow return consistent answers, in a bounded number of pieces, and page by page."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.column_change import ChangeKind
from airflow_provider_ckpt.core.dead_letters import DeadLetterState
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.proposals import Proposal
from airflow_provider_ckpt.core.ranges import START, Range
from airflow_provider_ckpt.core.refresh import RefreshExtent
from airflow_provider_ckpt.core.schema_version import ColumnState, SchemaVersion, VersionColumn
from airflow_provider_ckpt.core.task_lease_owner import of_task
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.queries import line, schema_versions
from airflow_provider_ckpt.ledger.queries.pages import BatchFilter, DeadLetterFilter
from airflow_provider_ckpt.ledger.queries.pipeline_tasks import PlannedPipeline
from airflow_provider_ckpt.ledger.store import tables
from tests.integration.ledger.ledger_driver import BAD_DATA, LedgerDriver, delivered, failed

OWNER = of_task("shop", "manual__1", "orders", "replicate")


def a_blocked_pipeline(ledger: Ledger) -> LedgerDriver:
    """Ten batches below the checkpoint; then a held one, two delivered ones, one that has failed, one in flight."""
    driver = LedgerDriver(ledger, OWNER).start("t", "u")
    driver.deliver(*range(10, 110, 10))
    driver.wait(minutes=5)
    held, *good, bad, _ = driver.send(120, 130, 140, 150, 160)
    driver.settle(delivered(good[0], dead=3, dead_letters={"Sink": 3}), delivered(good[1]))
    driver.settle(failed(bad, BAD_DATA))
    driver.action(ActionKind.HOLD, held)
    return driver


def test_the_overview_names_what_blocks_since_when_and_what_waits(ledger: Ledger) -> None:
    driver = a_blocked_pipeline(ledger)
    LedgerDriver(ledger, "second", "prices").start("t")
    orders, prices = ledger.overview(now=driver.now + timedelta(hours=2)).pipelines
    assert (orders.name, orders.partitions, orders.lag, orders.done, orders.all) == ("orders", 2, 60, 100, 160)
    assert (orders.held, orders.planned, orders.in_flight, orders.failing, orders.waiting) == (1, 1, 1, 1, 2)
    assert orders.blocker == BatchKey(1, "t", 10)
    assert (orders.parked, orders.replaying) == (3, 0)
    assert orders.stalled_since == driver.now - timedelta(minutes=5)
    assert orders.tasks == (("shop", "replicate"),)
    assert orders.planned_at == driver.now
    assert (prices.lag, prices.held, prices.blocker, prices.tasks, prices.planned_at) == (0, 0, None, (), None)
    assert [found.name for found in ledger.overview("prices").pipelines] == ["prices"]
    assert ledger.overview("nobody").pipelines == []
    assert ledger.planned_pipeline("orders") == PlannedPipeline("orders", driver.now, (("shop", "replicate"),))
    assert ledger.planned_pipeline("prices") == PlannedPipeline("prices", None, ())
    assert ledger.planned_pipeline("nobody") is None


def test_a_refresh_has_a_lag_until_it_is_published(ledger: Ledger) -> None:
    driver = LedgerDriver(ledger).start("t")
    extent = RefreshExtent(20, "snapshot", {})
    ledger.begin_refresh(driver.lease, "t", extent, now=driver.now, reason="a test")
    lags = [ledger.overview().pipelines[0].lag]
    for end in (10, 20, 21):
        driver.deliver(end)
        lags.append(ledger.overview().pipelines[0].lag)
    assert lags == [21, 11, 1, 0], "not even what is staged as a whole is done before the publication"


def a_refresh(ledger: Ledger, rows_end: int = 30) -> LedgerDriver:
    """A second refresh of a partition, begun two hours after the first, which is published."""
    driver = LedgerDriver(ledger).start("t")
    for _ in range(2):
        ledger.begin_refresh(driver.lease, "t", RefreshExtent(rows_end, "s", {}), now=driver.now, reason="a test")
        if driver.partition().generation == 1:
            driver.deliver(rows_end, rows_end + 1)
            driver.wait(hours=2)
    return driver


def test_a_refresh_tells_how_far_it_is_until_it_is_published(ledger: Ledger) -> None:
    driver = a_refresh(ledger)
    begun = driver.now
    driver.wait(minutes=5)
    first, second, _ = driver.send(10, 20, 30)
    (found,) = ledger.refreshes("orders")
    assert (found.partition, found.generation, found.begun_at) == ("t", 2, begun)
    assert (found.positions, found.staged_positions, found.staged_batches, found.open_batches) == (30, 0, 0, 3)
    driver.settle(delivered(second))
    (found,) = ledger.refreshes("orders")
    assert (found.staged_positions, found.staged_batches, found.open_batches) == (10, 1, 2), (
        "also beyond the checkpoint"
    )
    driver.settle(delivered(first))
    (found,) = ledger.refreshes("orders")
    assert (found.staged_positions, found.staged_batches, found.open_batches) == (20, 2, 1)
    assert (found.released, found.held, found.held_batches, found.skipped_batches) == (False, None, 0, 0)


def test_a_refresh_that_is_published_is_no_longer_in_progress(ledger: Ledger) -> None:
    driver = a_refresh(ledger)
    driver.deliver(30)
    publication = driver.send(31)
    (found,) = ledger.refreshes("orders")
    assert (found.staged_positions, found.staged_batches, found.open_batches) == (30, 1, 0), (
        "without the one that publishes"
    )
    driver.settle(*map(delivered, publication))
    assert ledger.refreshes("orders") == []
    LedgerDriver(ledger, "second", "prices").start("t")
    assert ledger.refreshes("prices") == [], "a partition that is not refreshed"


def test_batches_of_a_refresh_that_are_held_or_skipped_are_not_staged(ledger: Ledger) -> None:
    driver = a_refresh(ledger)
    passed, held, beyond = driver.plan(10, 20, 30)
    driver.action(ActionKind.HOLD, held)
    driver.action(ActionKind.SKIP, passed)
    driver.action(ActionKind.SKIP, beyond)
    (found,) = ledger.refreshes("orders")
    assert (found.staged_batches, found.open_batches, found.held_batches, found.skipped_batches) == (0, 1, 1, 2)


def test_a_refresh_began_when_it_was_last_begun_in_its_own_partition(ledger: Ledger) -> None:
    driver = LedgerDriver(ledger).start("t", "u")
    begun = {}
    for name in ("t", "t", "u"):
        begun[name] = driver.wait(minutes=1).now
        ledger.begin_refresh(driver.lease, name, RefreshExtent(30, "s", {}), now=driver.now, reason="a test")
    found = {item.partition: (item.generation, item.begun_at) for item in ledger.refreshes("orders")}
    assert found == {name: (1, at) for name, at in begun.items()}, "t twice in one generation, as after a crash"


def test_a_publication_that_a_user_holds_has_not_the_reason_of_an_earlier_one(ledger: Ledger) -> None:
    driver = LedgerDriver(ledger).start("t")
    for generation in (1, 2):
        ledger.begin_refresh(driver.lease, "t", RefreshExtent(30, "s", {}), now=driver.now, reason="a test")
        driver.deliver(30)
        (publication,) = driver.plan(31)
        if generation == 1:
            ledger.hold_publication(driver.lease, publication.key, now=driver.now, reason="it has no rows")
    driver.action(ActionKind.HOLD, publication)
    (found,) = ledger.refreshes("orders")
    assert found.held is not None
    assert (found.held.key, found.held.reason, found.held.since) == (publication.key, None, None)


def test_a_held_publication_has_its_reason_until_it_is_released(ledger: Ledger) -> None:
    driver = a_refresh(ledger)
    driver.deliver(30)
    (publication,) = driver.plan(31)
    ledger.hold_publication(driver.lease, publication.key, now=driver.wait(minutes=1).now, reason="it has no rows")
    (found,) = ledger.refreshes("orders")
    assert found.held is not None
    assert (found.held.key, found.held.reason, found.held.since) == (publication.key, "it has no rows", driver.now)
    assert not found.released
    driver.action(ActionKind.RELEASE, publication)
    (found,) = ledger.refreshes("orders")
    assert (found.held, found.released) == (None, True)
    driver.wait(minutes=1).settle(failed(driver.begin([publication])[0], BAD_DATA))
    driver.action(ActionKind.HOLD, publication)
    (found,) = ledger.refreshes("orders")
    assert found.held is not None
    assert (found.held.reason, found.held.since) == ("value too long", None), "its newest reason is the error"


def test_rate_and_earlier_lag_come_from_the_history(ledger: Ledger) -> None:
    driver = LedgerDriver(ledger).start("t")
    for end in (100, 200, 300):
        driver.deliver(end)
        driver.wait(minutes=30)
    driver.plan(1000)
    found = ledger.overview(now=driver.now).pipelines[0]
    assert (found.lag, found.earlier_lag, found.rate) == (700, 0, 0)
    driver.settle(*map(delivered, driver.begin(driver.partition().batches.values())))
    found = ledger.overview(now=driver.now).pipelines[0]
    assert (found.lag, found.rate) == (0, 700 / 600)
    times = [driver.now - timedelta(minutes=minutes) for minutes in (45, 1, 0)]
    points = ledger.lag_history(["orders"], times)["orders"]
    assert [(point.planned, point.committed) for point in points] == [(200, 200), (300, 300), (1000, 1000)]


def test_positions_before_all_others_have_no_distance(ledger: Ledger) -> None:
    driver = LedgerDriver(ledger).start("t", base=START)
    driver.plan(10, start=START, records=5)
    found = ledger.overview().pipelines[0]
    assert (found.lag, found.done, found.all) == (None, None, None)
    (shown,) = ledger.lines("orders")
    assert START < shown.window.start < shown.window.end
    assert [piece.range for piece in shown.batches] == [Range(START, 10)]


def test_a_line_has_every_range_once(ledger: Ledger) -> None:
    a_blocked_pipeline(ledger)
    shown, other = ledger.lines("orders")
    assert (shown.partition, shown.committed, shown.low_watermark, shown.planned_end) == ("t", 100, 100, 160)
    assert other.partition == "u"
    pieces = [(piece.range.start, piece.state.value) for piece in shown.batches]
    assert pieces == [(110 - 10, "held"), (120, "delivered"), (130, "delivered"), (140, "planned"), (150, "in_flight")]
    assert shown.batches[3].error_type == "Sink"
    assert [(found.range, found.batches) for found in shown.receipts] == [(Range(0, 100), 10)]
    assert [(found.range, found.records) for found in shown.dead_letters] == [(Range(120, 130), 3)]
    assert shown.blocked is not None
    assert (shown.blocked.key.seq, shown.blocked.batches, shown.blocked.positions) == (10, 2, 20)
    assert (shown.gaps, shown.grouped) == ([], False)
    with ledger._writing() as connection:
        connection.execute(tables.batch.delete().where(tables.batch.c.seq == 12))
    assert ledger.lines("orders", ["t"])[0].gaps == [Range(130, 140)]
    assert [found.partition for found in ledger.lines("orders", after="t")] == ["u"]


ID, PRICE = VersionColumn("id", 1, "integer"), VersionColumn("price", 2, "integer")


def record_versions(driver: LedgerDriver, *positions: int, name: str = "t") -> None:
    """Record a version at each position; from the second on, each adds a column."""
    for number, position in enumerate(positions, 1):
        added = [VersionColumn(f"c{new}", 10 + new, "text") for new in range(2, number + 1)]
        decision = [f"column c{number} is new: the target gets it"] if number > 1 else []
        version = SchemaVersion(number, name, driver.partition(name).generation, position, (ID, *added), decision)
        driver.ledger.record_schema_version(driver.lease, version)


def test_a_line_has_the_schema_versions_of_its_own_partition_that_begin_in_its_window(ledger: Ledger) -> None:
    driver = LedgerDriver(ledger, OWNER).start("t", "u")
    driver.deliver(100)
    record_versions(driver, 0, 40, 60, 100)
    record_versions(driver, 50, name="u")
    (whole,) = ledger.lines("orders", ["t"], window=Range(0, 100))
    assert [(found.number, found.position, found.columns) for found in whole.schema_versions] == [
        (1, 0, 1),
        (2, 40, 2),
        (3, 60, 3),
        (4, 100, 4),
    ], "one that begins at the end of all that is planned is shown as well"
    assert not whole.schema_versions_left_out
    first, second = whole.schema_versions[:2]
    assert (first.changes, first.decision) == ((), [])
    assert (second.actor, second.generation) == (OWNER, 1)
    assert second.decision == ["column c2 is new: the target gets it"]
    (part,) = ledger.lines("orders", ["t"], window=Range(41, 99))
    (found,) = part.schema_versions
    assert [(change.kind, change.name) for change in found.changes] == [(ChangeKind.NEW, "c3")], "not c2 as well"


def test_the_changes_of_a_version_are_those_of_the_source(ledger: Ledger) -> None:
    driver = LedgerDriver(ledger).start("t")
    gone = VersionColumn("price", 2, "integer", ColumnState.NULL)
    for number, columns in enumerate(((ID, PRICE), (ID, gone), (VersionColumn("id", 1, "bigint"), gone)), 1):
        ledger.record_schema_version(driver.lease, SchemaVersion(number, "t", 1, 10 * number, columns))
    (shown,) = ledger.lines("orders", window=Range(0, 100))
    changes = [[(change.kind, change.name) for change in found.changes] for found in shown.schema_versions]
    assert changes == [[], [(ChangeKind.DROPPED, "price")], [(ChangeKind.OTHER_TYPE, "id")]]


def test_of_many_schema_versions_those_at_the_greatest_positions_are_shown(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_versions, "MAX_SHOWN", 2)
    driver = LedgerDriver(ledger).start("t")
    record_versions(driver, 10, 20, 30, 30)
    (shown,) = ledger.lines("orders", window=Range(0, 100))
    assert [found.number for found in shown.schema_versions] == [3, 4]
    assert shown.schema_versions_left_out
    (near,) = ledger.lines("orders", window=Range(0, 25))
    assert ([found.number for found in near.schema_versions], near.schema_versions_left_out) == ([1, 2], False)


def test_of_a_wide_table_fewer_schema_versions_are_shown_but_at_least_one(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = LedgerDriver(ledger).start("t")
    record_versions(driver, 10, 20, 30, 40)
    for most, numbers in ((8, [3, 4]), (1, [4])):
        monkeypatch.setattr(schema_versions, "MAX_COLUMNS", most)
        (shown,) = ledger.lines("orders", window=Range(0, 100))
        assert [found.number for found in shown.schema_versions] == numbers
        assert shown.schema_versions_left_out


def test_many_batches_and_receipts_become_few_pieces(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "MAX_PIECES", 20)
    driver = LedgerDriver(ledger).start("t")
    driver.window = timedelta(days=7)
    driver.deliver(*range(10, 1010, 10))
    skipped = driver.plan(1020)
    driver.action(ActionKind.SKIP, *skipped)
    driver.deliver(*range(1030, 2010, 10))
    held, *_ = driver.plan(*range(2010, 3010, 10))
    driver.action(ActionKind.HOLD, held)
    (shown,) = ledger.lines("orders", window=Range(0, 3000), buckets=10)
    assert shown.grouped
    assert len(shown.batches) == 5
    assert sum(piece.batches for piece in shown.batches) == 100
    assert [piece.range for piece in shown.batches if piece.state is BatchState.HELD] == [Range(2000, 2010)]
    assert shown.sampled[0] == Range(0, 300)
    assert shown.sampled[-1].end == 2000
    assert [(found.range.end, found.skipped) for found in shown.receipts] == [(1020, 1)]
    (near,) = ledger.lines("orders", ["t"], window=Range(950, 1050))
    assert not near.grouped
    ranges = [found.range for found in near.receipts]
    assert (ranges[0].start, ranges[-1].end) == (950, 1050)
    assert all(first.end == second.start for first, second in pairwise(ranges))
    assert sum(found.skipped for found in near.receipts) == 1
    assert shown.blocked is not None
    assert (shown.blocked.key, shown.gaps) == (held.key, [])
    with ledger._writing() as connection:
        connection.execute(tables.batch.delete().where(tables.batch.c.range_start.in_([2000, 2500])))
    (shown,) = ledger.lines("orders", window=Range(0, 3000), buckets=10)
    assert shown.gaps == [Range(2000, 2010), Range(2500, 2510)]


def test_batches_that_were_sent_at_most_once_are_no_gaps(ledger: Ledger) -> None:
    driver = LedgerDriver(ledger).start("t")
    driver.begin(driver.plan(10, 20), at_most_once=True)
    driver.plan(30)
    (shown,) = ledger.lines("orders")
    assert (shown.committed, shown.gaps) == (20, [])
    assert [(piece.range, piece.state) for piece in shown.batches][1:] == [
        (Range(10, 20), BatchState.SENT),
        (Range(20, 30), BatchState.PLANNED),
    ]


def test_marks_are_leases_and_actions(ledger: Ledger) -> None:
    driver = LedgerDriver(ledger).start("t")
    (held,) = driver.plan(10)
    driver.again("second")
    driver.action(ActionKind.HOLD, held)
    lease = driver.lease
    ledger.break_lease("orders", actor="ann", reason="its machine is gone")
    at = ledger.overview().at
    found = ledger.marks("orders", driver.now, at + timedelta(days=1))
    assert [(span.owner, span.epoch, span.end) for span in found.leases] == [
        ("first", 1, "released"),
        ("second", lease.epoch, "broken"),
    ]
    assert [(action.kind, action.actor, action.reason) for action in found.actions] == [("hold", "ann", "because")]
    assert not found.left_out


def test_batches_come_page_by_page(ledger: Ledger) -> None:
    a_blocked_pipeline(ledger)
    first, states = ledger.batch_page("orders", BatchFilter(), limit=3)
    second, _ = ledger.batch_page("orders", BatchFilter(), after=("t", first[-1].key.seq), limit=3)
    assert [batch.key.seq for batch in [*first, *second]] == [10, 11, 12, 13, 14]
    assert states == {"held": 1, "delivered": 2, "planned": 1, "in_flight": 1}
    for chosen, seqs in {
        BatchFilter(states=("held",)): [10],
        BatchFilter(error_type="Sink"): [13],
        BatchFilter(key=BatchKey(1, "t", 12)): [12],
        BatchFilter(text="%"): [],
        BatchFilter(window=Range(125, 135)): [11, 12],
    }.items():
        found, _ = ledger.batch_page("orders", chosen)
        assert [batch.key.seq for batch in found] == seqs


def test_events_come_page_by_page(ledger: Ledger) -> None:
    driver = a_blocked_pipeline(ledger)
    ids = [event["id"] for event in ledger.events("orders", 1000)]
    seen: list[int] = []
    before = None
    while True:
        page, before = ledger.event_page("orders", before=before, limit=3)
        seen += [event["id"] for event in page]
        if before is None:
            break
    assert seen == sorted(ids, reverse=True)
    found, _ = ledger.event_page("orders", kinds=["hold"], limit=5)
    assert [(event["kind"], event["actor"]) for event in found] == [("hold", "ann")]
    of_batch, _ = ledger.event_page("orders", key=driver.batch(BatchKey(1, "t", 10)).key)
    assert {event["seq"] for event in of_batch} == {10}


def test_dead_letters_are_grouped_and_come_page_by_page(ledger: Ledger) -> None:
    a_blocked_pipeline(ledger)
    groups, states = ledger.dead_letter_groups("orders", DeadLetterFilter(), limit=10)
    assert [(group["error_type"], group["state"], group["records"], group["batches"]) for group in groups] == [
        ("Sink", "parked", 3, 1)
    ]
    assert states == {"parked": 3}
    (entry,), rereads = ledger.dead_letter_page("orders", DeadLetterFilter(batches=[BatchKey(1, "t", 11)]))
    assert (entry.dead_letters.records, entry.range) == (3, Range(120, 130))
    assert len(rereads) == 2
    assert ledger.dead_letter_page("orders", DeadLetterFilter(), after=(1, "t", 11, "Sink", 0))[0] == []
    assert ledger.dead_letter_page("orders", DeadLetterFilter(states=[DeadLetterState.DISCARDED]))[0] == []


def test_a_dry_run_shows_the_line_before_and_after_and_changes_nothing(ledger: Ledger) -> None:
    driver = a_blocked_pipeline(ledger)
    tried = ledger.try_action(
        "orders", Action(ActionKind.RELEASE, (BatchKey(1, "t", 10),)), actor="ann", is_dead=lambda _: False
    )
    states = [[piece.state.value for piece in found.batches] for found in (*tried.before, *tried.after)]
    assert states[0][0] == "held"
    assert states[1][0] == "planned"
    assert driver.states()[10] is BatchState.HELD
    tried = ledger.try_action(
        "orders", Action(ActionKind.REWIND, positions={"t": 20}), actor="ann", is_dead=lambda _: False
    )
    assert (tried.before[0].committed, tried.after[0].committed, tried.after[0].window.start) == (100, 20, 20)
    replayed = Action(ActionKind.REPLAY, ranges=(("t", Range(0, 50)),))
    tried = ledger.try_action("orders", replayed, actor="ann", is_dead=lambda _: False)
    assert [found.partition for found in tried.after] == ["t", "replay:2:t"]


def test_a_proposal_is_taken_up_once_by_the_user_who_made_it(ledger: Ledger) -> None:
    driver = a_blocked_pipeline(ledger)
    action = Action(ActionKind.RELEASE, (BatchKey(1, "t", 10),))
    proposal = Proposal.new("orders", action, origin="page:ann:orders", actor="airflow:ann", reason=None)
    ledger.propose(proposal, subject="", body="", valid_for=timedelta(minutes=15))
    good: dict[str, Any] = {"pipeline": "orders", "origin": "page:ann:orders", "actor": "airflow:ann"}
    for wrong in ({"pipeline": "prices"}, {"origin": "page:bob:orders"}, {"actor": "airflow:bob"}):
        with pytest.raises(LedgerStateError, match="holds no proposal"):
            ledger.take_up(proposal.id, **good | wrong)
    ledger.release(driver.lease)
    assert ledger.take_up(proposal.id, **good).proposal.action == action
    with pytest.raises(LedgerStateError, match="approved already"):
        ledger.take_up(proposal.id, **good)
    ledger.action("orders", action, actor="airflow:ann", reason="because", proposal=proposal.id)
    with pytest.raises(LedgerStateError, match="carried out already"):
        ledger.take_up(proposal.id, **good)
    assert [row["state"] for row in ledger.proposal_page("orders")] == ["carried_out"]


def test_a_look_is_in_the_audit_log(ledger: Ledger) -> None:
    a_blocked_pipeline(ledger)
    ledger.record_look("orders", "dead_letters_read", {"records": 3}, actor="airflow:ann")
    assert ledger.events("orders", 1)[0]["actor"] == "airflow:ann"
