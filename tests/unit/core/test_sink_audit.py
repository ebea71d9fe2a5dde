"""The audit finds that ledger and sink agree, or names the batch about which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey, attempt_of
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.sink_audit import (
    Difference,
    DifferenceKind,
    LedgerSnapshot,
    compare_dead_letters,
    compare_receipts,
    compare_rows,
    knows_batch,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)
EACH = Counts(10, 7, 2, 1)


def receipt(seq: int, *, counts: Counts = EACH, verdict: Verdict = Verdict.DELIVERED, generation: int = 1) -> Receipt:
    """Return a receipt of positions ``[10 seq, 10 seq + 10)``."""
    key = BatchKey(generation, "t", seq)
    return Receipt(key, Range(10 * seq, 10 * seq + 10), verdict, 3, 1, counts, AT)


def settled(found: Receipt) -> Batch:
    """The batch of a receipt that the ledger has heard of, and the checkpoint has not passed."""
    return Batch(found.key, found.range, BatchState.DELIVERED, attempts=1, receipt=found)


def recorded(
    passed: Sequence[RangeReceipt] = (),
    *batches: Batch,
    dead_letters: Mapping[AttemptKey, int] | None = None,
    generation: int = 1,
) -> LedgerSnapshot:
    """Return the ledger's record of one partition."""
    return LedgerSnapshot(passed, {batch.key: batch for batch in batches}, {"t": generation}, dead_letters or {})


def total(batches: int) -> RangeReceipt:
    """A range receipt of the first batches, merged."""
    counts = Counts(10 * batches, 7 * batches, 2 * batches, batches)
    return RangeReceipt(1, "t", Range(0, 10 * batches), counts, batches)


def differences(ledger: LedgerSnapshot, *receipts: Receipt) -> list[Difference]:
    """Return the differences between ledger and receipts."""
    return compare_receipts(ledger, receipts).differences


def test_sums_and_single_receipts_agree() -> None:
    ledger = recorded([total(3)], settled(receipt(3)))
    found = compare_receipts(ledger, [receipt(seq) for seq in range(4)])
    assert (found.differences, len(found.settled)) == ([], 4)


@pytest.mark.parametrize("lost", [0, 2, 4])
def test_a_receipt_that_the_sink_lost_is_named_though_the_ledger_keeps_only_sums(lost: int) -> None:
    (found,) = differences(recorded([total(5)]), *[receipt(seq) for seq in range(5) if seq != lost])
    assert (found.kind, found.batch) == (DifferenceKind.RECEIPT_MISSING, BatchKey(1, "t", lost))
    assert f"t#{lost} at [{10 * lost}, {10 * lost + 10})" in found.message
    assert "rewind" in found.to_do


def test_the_lost_receipt_of_a_batch_beyond_the_checkpoint_is_named() -> None:
    (found,) = differences(recorded([], settled(receipt(7))))
    assert (found.kind, found.batch) == (DifferenceKind.RECEIPT_MISSING, BatchKey(1, "t", 7))


@pytest.mark.parametrize(
    "other",
    [
        receipt(0, counts=Counts(10, 8, 2, 0)),
        receipt(0, verdict=Verdict.REJECTED),
        replace(receipt(0), attempt=2),
        replace(receipt(0), epoch=4),
        replace(receipt(0), range=Range(0, 11)),
    ],
    ids=["counts", "verdict", "attempt", "epoch", "range"],
)
def test_each_part_of_a_receipt_that_differs_is_found(other: Receipt) -> None:
    (found,) = differences(recorded([], settled(receipt(0))), other)
    assert (found.kind, found.batch) == (DifferenceKind.RECEIPT_DIFFERS, BatchKey(1, "t", 0))


def test_changed_counts_are_found_in_a_sum_and_named_where_it_is_of_one_batch() -> None:
    other = receipt(0, counts=Counts(10, 8, 2, 0))
    (in_sum,) = differences(recorded([total(2)]), other, receipt(1))
    (of_one,) = differences(recorded([total(1)]), other)
    assert (in_sum.kind, in_sum.batch) == (DifferenceKind.RECEIPT_DIFFERS, None)
    assert "delivered 14" in in_sum.message
    assert "delivered 15" in in_sum.message
    assert of_one.batch == BatchKey(1, "t", 0)


def test_a_rejected_batch_that_the_ledger_counts_as_delivered_is_found() -> None:
    (found,) = differences(recorded([total(2)]), receipt(0), receipt(1, verdict=Verdict.REJECTED))
    assert "rejected" in found.message


def test_a_batch_that_was_let_go_needs_no_receipt_and_may_have_a_void_one() -> None:
    let_go = RangeReceipt(1, "t", Range(0, 30), Counts(20, 14, 4, 2), 3, skipped=1)
    void = receipt(1, counts=Counts(), verdict=Verdict.VOID)
    assert differences(recorded([let_go]), receipt(0), receipt(2)) == []
    assert differences(recorded([let_go]), receipt(0), void, receipt(2)) == []
    (found,) = differences(recorded([let_go]), receipt(0), void)
    assert found.kind is DifferenceKind.RECEIPT_MISSING


def test_a_batch_that_was_sent_at_most_once_may_have_been_confirmed_since() -> None:
    sent = RangeReceipt(1, "t", Range(0, 20), EACH, 2, sent=1)
    assert differences(recorded([sent]), receipt(0)) == []
    assert differences(recorded([sent]), receipt(0), receipt(1)) == []


def test_a_receipt_that_the_ledger_waits_for_is_no_disagreement() -> None:
    waiting = Batch(BatchKey(1, "t", 0), Range(0, 10), BatchState.IN_FLIGHT, attempts=1)
    found = compare_receipts(recorded([], waiting), [receipt(0)])
    assert (found.differences, found.unsettled) == ([], [receipt(0)])


def test_a_receipt_of_a_batch_that_the_ledger_never_planned_is_unknown() -> None:
    ledger = recorded([total(1)])
    (found,) = differences(ledger, receipt(0), receipt(1))
    assert (found.kind, found.batch) == (DifferenceKind.RECEIPT_UNKNOWN, BatchKey(1, "t", 1))
    assert knows_batch(ledger, receipt(0))
    assert not knows_batch(ledger, receipt(1))


def test_receipts_of_a_past_that_was_collected_are_counted_and_no_more() -> None:
    side = replace(receipt(0), key=BatchKey(2, "replay:2:t", 0))
    found = compare_receipts(recorded(generation=3), [receipt(0, generation=2), side])
    assert (found.differences, len(found.collected)) == ([], 2)


@pytest.mark.parametrize(
    ("held", "indexed", "kinds"),
    [
        (1, 1, []),
        (0, 1, [DifferenceKind.DEAD_LETTERS_DIFFER]),
        (2, 1, [DifferenceKind.DEAD_LETTERS_DIFFER]),
        (1, 2, [DifferenceKind.INDEX_DIFFERS]),
        (1, 0, [DifferenceKind.INDEX_DIFFERS]),
    ],
)
def test_dead_letters_are_as_many_as_the_receipt_tells(held: int, indexed: int, kinds: list[DifferenceKind]) -> None:
    source = attempt_of(receipt(0))
    found = list(compare_dead_letters(recorded(dead_letters={source: indexed}), [receipt(0)], {source: held}))
    assert [item.kind for item in found] == kinds
    assert {item.batch for item in found} <= {BatchKey(1, "t", 0)}


@pytest.mark.parametrize(("rows", "said"), [(6, "1 fewer"), (8, "1 more")])
def test_rows_of_the_target_are_as_many_as_were_delivered(rows: int, said: str) -> None:
    assert list(compare_rows(7, 7)) == []
    (found,) = compare_rows(rows, 7)
    assert said in found.message
