"""The storm's judge finds every fault that it must find, and reports none where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from tests.chaos.storm.evidence import LOST, STALE_ACCEPTED, VIOLATION, Evidence, Fault
from tests.chaos.storm.journal import Entry, Expect, Is
from tests.chaos.storm.judge import judge

KEY = [1, "p0", 0]
COUNTS = {"read": 10, "delivered": 10, "filtered": 0, "dead_lettered": 0}


def entry(number: int, do: str, result: Mapping[str, Any] | None = None, **facts: Any) -> Entry:
    """An acknowledged command of the one process, tried and told at its number."""
    return Entry("0-1", number, number, do, "orders", 1, "me", Expect.VALID, facts, number + 0.5, Is.OK, result or {})


def event(number: int, kind: str, epoch: int = 1, actor: str = "me", **detail: Any) -> dict[str, Any]:
    """A row of the audit log."""
    row = {"id": number, "kind": kind, "epoch": epoch, "actor": actor, "detail": detail}
    return row | {"generation": None, "partition": None, "seq": None}


def saw(number: int, committed: int, *blocking: int) -> Entry:
    """A look at the one partition."""
    return replace(entry(number, "look", {"p0": [1, committed, list(blocking)]}), epoch=None)


ACQUIRE = entry(1, "acquire", {"epoch": 1}, force=False)
PLAN = entry(2, "plan", {"keys": [KEY]}, ranges=[["p0", 0, 10]], generations={"p0": 1})
BEGIN = entry(3, "begin", {"attempts": [[KEY, 1]]}, keys=[KEY], at_most_once=False)
SETTLE = entry(4, "settle", {"acked": [KEY], "counts": COUNTS, "checkpoint": {"p0": 10}}, outcomes=[])
ENTRIES = [ACQUIRE, PLAN, BEGIN, SETTLE, saw(5, 10)]
EVENTS = [
    event(1, "lease_acquired"),
    event(2, "planned", batches=1, ranges={"p0": [[0, 10]]}),
    event(3, "begun", run="0-1:3"),
    event(4, "settled", counts=COUNTS),
]
SUMS = {"batches": 1, "rejected": 0, **COUNTS}
PARTITION = {"partition": "p0", "generation": 1, "committed": 10, "next_seq": 1, **SUMS}
NOTHING = {**dict.fromkeys(SUMS, 0), "committed": 0}
PASSED = {"partition": "p0", "generation": 1, "range_start": 0, "range_end": 10, **SUMS}
RECEIPT = Receipt(
    BatchKey(1, "p0", 0), Range(0, 10), Verdict.DELIVERED, 1, 1, Counts(10, 10, 0, 0), datetime(2026, 1, 1, tzinfo=UTC)
)


def evidence(
    entries: Sequence[Entry] = ENTRIES,
    events: Sequence[Mapping[str, Any]] = EVENTS,
    partition: Mapping[str, Any] = PARTITION,
    passed: Sequence[Mapping[str, Any]] = (PASSED,),
    sink: Sequence[Receipt] = (RECEIPT,),
    **more: Any,
) -> Evidence:
    """One batch that was planned, begun, settled and passed, with something changed."""
    tables = {"events": events, "partitions": [partition], "receipts": passed, "sink": sink}
    return Evidence(entries, **{name: {"orders": rows} for name, rows in tables.items()}, **more)  # type: ignore[arg-type]


def kinds(faults: Sequence[Fault]) -> set[str]:
    """Return the kinds of the faults."""
    return {fault.kind for fault in faults}


def test_a_storm_without_a_fault_passes() -> None:
    assert judge(evidence()) == []


def test_an_acknowledged_command_without_its_event_is_lost() -> None:
    assert kinds(judge(evidence(events=EVENTS[:-1]))) == {LOST}


def test_an_event_that_nobody_may_have_caused_is_a_stale_write() -> None:
    assert kinds(judge(evidence(events=[*EVENTS, event(5, "cancel", batches=0)]))) == {STALE_ACCEPTED}


def test_an_event_of_an_older_epoch_after_a_newer_one_is_a_stale_write() -> None:
    late = [event(2, "lease_acquired", 2, "you"), *(row | {"id": row["id"] + 1} for row in EVENTS[1:])]
    assert STALE_ACCEPTED in kinds(judge(evidence(events=[EVENTS[0], *late])))


@pytest.mark.parametrize("end", [Is.UNANSWERED, Is.UNAVAILABLE])
def test_a_command_without_an_answer_may_have_happened_or_not(end: Is) -> None:
    unanswered = replace(entry(6, "cancel"), end=end, result={}, told=None)
    assert judge(evidence([*ENTRIES, unanswered])) == []
    assert judge(evidence([*ENTRIES, unanswered], [*EVENTS, event(5, "cancel", batches=0)])) == []


def test_of_two_like_commands_the_one_with_an_answer_has_the_event() -> None:
    unanswered = replace(SETTLE, number=9, tried=3.6, told=3.7, end=Is.UNAVAILABLE, result={})
    assert judge(evidence([ACQUIRE, PLAN, BEGIN, unanswered, SETTLE])) == []


def test_a_plan_without_an_answer_that_happened_is_held_to_its_ranges() -> None:
    entries = [ACQUIRE, replace(PLAN, end=Is.UNANSWERED, result={}, told=None), BEGIN, SETTLE]
    assert judge(evidence(entries)) == []
    assert LOST in kinds(judge(evidence(entries, partition=PARTITION | NOTHING, passed=())))


def test_a_command_that_was_carried_out_after_a_newer_epoch_is_a_stale_write() -> None:
    newer = Entry(
        "0-2", 1, 3.6, "acquire", "orders", None, "you", Expect.VALID, {"force": False}, 3.9, Is.OK, {"epoch": 2}
    )
    found = judge(evidence([ACQUIRE, PLAN, BEGIN, newer, SETTLE], [*EVENTS, event(5, "lease_taken_over", 2, "you")]))
    assert [fault.kind for fault in found] == [STALE_ACCEPTED]


def test_a_command_under_a_released_lease_is_a_stale_write() -> None:
    release = replace(entry(3, "release"), number=9, tried=3.6, told=3.7)
    events = [*EVENTS[:3], event(4, "lease_released"), event(5, "settled", counts=COUNTS)]
    assert kinds(judge(evidence([ACQUIRE, PLAN, BEGIN, release, SETTLE], events))) == {STALE_ACCEPTED}


@pytest.mark.parametrize(
    ("expect", "end", "kind"),
    [
        (Expect.STALE, Is.REFUSED, VIOLATION),
        (Expect.VALID, Is.REFUSED, VIOLATION),
        (Expect.VALID, Is.STALE, VIOLATION),
        (Expect.VALID, Is.BROKEN, VIOLATION),
        (Expect.VALID, Is.BUSY, VIOLATION),
    ],
)
def test_an_answer_that_nothing_explains_is_found(expect: Expect, end: Is, kind: str) -> None:
    answered = replace(entry(6, "renew"), expect=expect, end=end)
    assert kinds(judge(evidence([*ENTRIES, answered]))) == {kind}


def test_an_epoch_granted_twice_is_found() -> None:
    twin = replace(ACQUIRE, process="0-2", number=1, tried=0.9, told=1.4)
    assert VIOLATION in kinds(judge(evidence([twin, *ENTRIES])))


def test_a_batch_that_is_gone_is_lost() -> None:
    assert LOST in kinds(judge(evidence(partition=PARTITION | NOTHING, passed=())))


def test_counts_that_the_sink_has_and_the_ledger_has_not_are_lost() -> None:
    fewer = {"delivered": 9}
    found = judge(evidence(partition=PARTITION | fewer, passed=[PASSED | fewer]))
    assert kinds(found) == {LOST}


def test_counts_beyond_the_sinks_are_doubled() -> None:
    more = {"read": 20, "delivered": 20}
    found = judge(evidence(partition=PARTITION | more, passed=[PASSED | more]))
    assert kinds(found) == {VIOLATION}


def test_a_sum_that_is_not_its_receipts_is_found() -> None:
    assert kinds(judge(evidence(partition=PARTITION | {"delivered": 11}))) == {VIOLATION}


def test_the_sums_of_an_ended_generation_stand_in_for_receipts_that_were_collected() -> None:
    now = PARTITION | NOTHING | {"generation": 2, "next_seq": 0}
    ended: dict[str, Any] = {"generations": {"orders": [PARTITION]}, "collected": True}
    assert judge(evidence([*ENTRIES[:-1]], partition=now, passed=(), **ended)) == []
    fewer: dict[str, Any] = {"generations": {"orders": [PARTITION | {"read": 9}]}, "collected": True}
    assert kinds(judge(evidence([*ENTRIES[:-1]], partition=now, passed=(), **fewer))) == {LOST}


def test_an_event_that_the_subscription_missed_or_told_twice_is_found() -> None:
    assert kinds(judge(evidence(kept={"orders": [event(9, "phase")]}))) == {VIOLATION}
    assert VIOLATION in kinds(judge(evidence(events=[*EVENTS, event(1, "phase")])))


def test_a_receipt_that_the_sink_does_not_have_is_found() -> None:
    assert kinds(judge(evidence(sink=()))) == {VIOLATION}


def test_a_receipt_that_is_news_twice_was_forgotten_between() -> None:
    again = entry(6, "reconcile", {"acked": [KEY], "imported": [], "fenced": 0, "counts": COUNTS}, receipts=1)
    events = [*EVENTS, event(5, "reconciled", acked=1, imported=0, fenced=0, counts=COUNTS)]
    assert kinds(judge(evidence([*ENTRIES, again], events))) == {LOST}


def test_a_batch_that_waits_after_its_verdict_was_acknowledged_is_found() -> None:
    assert kinds(judge(evidence([*ENTRIES, saw(6, 10, 0)]))) == {LOST}


def test_a_checkpoint_that_goes_back_is_found() -> None:
    assert kinds(judge(evidence([*ENTRIES, saw(6, 9)]))) == {VIOLATION}
    assert kinds(judge(evidence([*ENTRIES, saw(6, 11)]))) == {VIOLATION}


def test_an_attempt_begun_twice_is_found() -> None:
    again = replace(BEGIN, number=6, tried=6.0, told=6.5)
    assert VIOLATION in kinds(judge(evidence([*ENTRIES, again], [*EVENTS, event(5, "begun", run="0-1:6")])))


def test_a_kept_act_that_is_gone_is_lost() -> None:
    act = replace(entry(6, "act", {"applied": False, "intent": 1}, act={"kind": "drain"}), epoch=None)
    row = {"id": 1, "reason": "0-1:6", "applied_at": None}
    assert kinds(judge(evidence([*ENTRIES, act]))) == {LOST}
    assert judge(evidence([*ENTRIES, act], intents={"orders": [row]})) == []
    assert kinds(judge(evidence([*ENTRIES, act], intents={"orders": [row | {"applied_at": 7}]}))) == {LOST}
