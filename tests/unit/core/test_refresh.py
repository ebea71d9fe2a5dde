"""Refreshes: the next step of a run, when it publishes, and which refreshes wait for a user."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from airflow_provider_ckpt.core import refresh
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.invariants import refresh_violations
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.refresh import RefreshExtent, RefreshStep, ReplaceLimits, next_step

EXTENT = RefreshExtent(10, "00000003-0000001B-1", {"oid": 7})
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def step(
    partition: Partition,
    extent: RefreshExtent | None,
    *,
    own: bool = False,
    begun: bool = False,
    staged: bool = True,
) -> RefreshStep:
    """Return the next step."""
    return next_step(partition, extent, own=own, begun=begun, is_staged=lambda: staged)


def receipt(seq: int, start: int, end: int, verdict: Verdict = Verdict.DELIVERED) -> Receipt:
    """A receipt of a range of pages."""
    return Receipt(BatchKey(1, "t", seq), Range(start, end), verdict, 1, 1, Counts(), NOW)


def resolve(partition: Partition, seq: int) -> None:
    """Deliver a planned batch."""
    batch = partition.batches[seq]
    partition.begin(partition.planned_ticket(seq), epoch=1, now=NOW)
    partition.ack(receipt(seq, batch.range.start, batch.range.end))


def test_each_run_begins_one_refresh() -> None:
    published = Partition("t", committed=EXTENT.publication.end, next_seq=3)

    assert step(Partition("t"), None) is RefreshStep.BEGIN
    assert step(published, EXTENT) is RefreshStep.BEGIN
    assert step(published, EXTENT, own=True, begun=True) is RefreshStep.NOTHING


def test_a_refresh_names_the_generations_before_it_that_were_not_published() -> None:
    def partition(generation: int, committed: int) -> Partition:
        return Partition("t", generation=generation, committed=committed, next_seq=3)

    passed = EXTENT.publication.end
    second = EXTENT.after(partition(4, EXTENT.rows_end), EXTENT, skipped=False)
    third = EXTENT.after(partition(5, EXTENT.rows_end), second, skipped=False)

    assert (second.abandoned_from, third.abandoned_from) == (4, 4)
    assert RefreshExtent.of(third.to_state()) == third
    assert EXTENT.after(partition(6, passed), third, skipped=False).abandoned_from is None
    assert EXTENT.after(partition(6, passed), third, skipped=True).abandoned_from == 4
    assert EXTENT.after(Partition("t"), None, skipped=False).abandoned_from is None


def test_a_refresh_is_continued_by_its_own_process_or_once_a_person_has_released_it() -> None:
    staged = Partition("t", committed=EXTENT.rows_end, next_seq=3)

    assert step(staged, EXTENT) is RefreshStep.BEGIN
    assert step(staged, EXTENT, own=True, begun=True) is RefreshStep.CONTINUE
    assert step(staged, EXTENT.with_held_publication()) is RefreshStep.CONTINUE
    assert step(staged, EXTENT.with_held_publication(), staged=False) is RefreshStep.BEGIN
    staged.plan(EXTENT.publication)
    staged.hold(staged.planned_ticket(3), reason="empty")
    assert step(staged, EXTENT.with_held_publication(), own=True) is RefreshStep.WAIT


def test_the_publishing_batch_is_due_once_every_row_has_a_verdict() -> None:
    partition = Partition("t")
    assert refresh.unplanned_rows(partition, EXTENT) == [Range(0, 10)]
    partition.plan(Range(0, 4))
    partition.plan(Range(4, 10))
    resolve(partition, 1)
    assert (refresh.unplanned_rows(partition, EXTENT), refresh.publication_due(partition, EXTENT)) == ([], False)

    early = Partition("t", committed=4, planned_end=10, next_seq=2)
    early.plan(EXTENT.publication)
    assert refresh_violations(early, EXTENT.to_state()) == []
    early.begin(early.planned_ticket(2), epoch=1, now=NOW)
    assert [found.name for found in refresh_violations(early, EXTENT.to_state())] == ["PublishedGenerationIsComplete"]
    resolve(partition, 0)
    assert refresh.publication_due(partition, EXTENT)
    partition.plan(EXTENT.publication)
    assert not refresh.publication_due(partition, EXTENT)
    assert refresh.is_unpublished(partition, EXTENT)
    resolve(partition, 2)
    assert refresh_violations(partition, EXTENT.to_state()) == []
    assert not refresh.is_unpublished(partition, EXTENT)


def test_a_new_refresh_supersedes_the_batches_of_the_old_one_from_the_first_page_on() -> None:
    partition = Partition("t")
    assert refresh.begin(partition, generation=2, reason="first") == []
    assert partition.generation == 1
    partition.plan(Range(0, 4))

    kinds = [event.kind for event in refresh.begin(partition, generation=2, reason="again")]

    assert kinds == ["superseded", "rewound"]
    assert (partition.generation, partition.committed, partition.planned_end, partition.batches) == (2, 0, 0, {})


def test_pages_that_are_skipped_or_have_no_receipt_are_missing() -> None:
    found = [receipt(0, 0, 4), receipt(1, 4, 5, Verdict.REJECTED), receipt(2, 5, 7, Verdict.VOID)]

    assert refresh.missing_ranges(found, 10) == [Range(5, 10)]
    assert refresh.missing_ranges(found[:2], 5) == []
    assert refresh.missing_ranges([], 0) == []


def test_the_extent_is_stored_among_the_values_of_the_source() -> None:
    assert RefreshExtent.of(EXTENT.to_state()) == EXTENT
    assert RefreshExtent.of(EXTENT.with_held_publication().to_state()) == replace(EXTENT, questioned=True)
    assert RefreshExtent.of({}) is None


@pytest.mark.parametrize(
    ("staged", "present", "limits", "waits"),
    [
        (0, 0, ReplaceLimits(), False),
        (0, 5, ReplaceLimits(), True),
        (0, 5, ReplaceLimits(allow_empty=True), False),
        (50, 100, ReplaceLimits(), False),
        (49, 100, ReplaceLimits(), True),
        (99, 100, ReplaceLimits(max_shrink=Decimal(0)), True),
        (1, 100, ReplaceLimits(max_shrink=Decimal(1)), False),
        (200, 100, ReplaceLimits(max_shrink=Decimal(0)), False),
    ],
)
def test_a_refresh_that_lacks_too_many_rows_waits(
    staged: int, present: int, limits: ReplaceLimits, *, waits: bool
) -> None:
    assert (limits.refusal_reason(staged, present) is not None) == waits
