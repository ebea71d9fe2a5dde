"""An accepted loss is no difference, but only as a whole; everything else is compared as before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airflow_provider_ckpt.core.accepted_sink import AcceptedSink, find_lost_receipts
from airflow_provider_ckpt.core.range_receipts import RangeReceipt, merge_receipts
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Verdict
from airflow_provider_ckpt.core.sink_audit import DifferenceKind, LedgerSnapshot, compare_receipts, compare_rows
from tests.unit.core.test_sink_audit import EACH, receipt, recorded, settled, total

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.receipt import Receipt


def accepting(ledger: LedgerSnapshot, *receipts: Receipt) -> AcceptedSink:
    """The acceptance of a sink that holds these receipts."""
    return AcceptedSink(find_lost_receipts(ledger.passed, ledger.batches.values(), receipts))


def kinds(ledger: LedgerSnapshot, accepted: AcceptedSink, *receipts: Receipt) -> list[DifferenceKind]:
    """Kinds of what ledger and sink disagree about after an acceptance."""
    found = compare_receipts(replace(ledger, accepted=accepted), receipts).differences
    return [difference.kind for difference in found]


def test_it_survives_as_json() -> None:
    accepted = AcceptedSink(accepting(recorded([total(3)], settled(receipt(4))), receipt(1)).lost, -7)
    assert len(accepted.lost) == 2
    assert AcceptedSink.from_json(accepted.to_json()) == accepted


@pytest.mark.parametrize("kept", [(), (0,), (2,), (0, 2), (1, 2)])
def test_what_a_sum_has_lost_is_no_difference_once_it_was_accepted(kept: tuple[int, ...]) -> None:
    ledger, there = recorded([total(3)]), [receipt(seq) for seq in kept]
    assert kinds(ledger, AcceptedSink(), *there) == [DifferenceKind.RECEIPT_MISSING]

    assert kinds(ledger, accepting(ledger, *there), *there) == []


def test_a_receipt_that_is_lost_later_is_missing_though_others_of_its_sum_were_accepted() -> None:
    ledger = recorded([total(4)])
    accepted = accepting(ledger, receipt(1), receipt(2), receipt(3))

    assert kinds(ledger, accepted, receipt(1), receipt(3)) == [DifferenceKind.RECEIPT_MISSING]
    assert kinds(ledger, accepted) == [DifferenceKind.RECEIPT_MISSING]


def test_counts_of_what_was_not_lost_are_still_compared() -> None:
    ledger = recorded([total(3)])
    accepted = accepting(ledger, receipt(1), receipt(2))
    other = receipt(2, counts=Counts(10, 8, 1, 1))

    assert kinds(ledger, accepted, receipt(1), other) == [DifferenceKind.RECEIPT_DIFFERS]


def test_receipts_that_were_put_back_are_no_difference() -> None:
    ledger = recorded([total(3)])

    assert kinds(ledger, accepting(ledger, receipt(1)), *(receipt(seq) for seq in range(3))) == []


def test_a_loss_stays_accepted_when_the_sums_around_it_are_merged() -> None:
    each = [replace(total(1), range=Range(10 * seq, 10 * seq + 10)) for seq in range(5)]
    ledger = recorded(each)
    there = [receipt(seq) for seq in (0, 1, 4)]
    accepted = accepting(ledger, *there)
    assert [(item.range, item.batches) for item in accepted.lost] == [(Range(20, 40), 2)]

    assert kinds(ledger, accepted, *there) == []
    assert kinds(recorded(merge_receipts(each)), accepted, *there) == []


def test_a_batch_that_waited_for_an_earlier_one_stays_accepted_in_its_sum() -> None:
    ledger = recorded([total(2)], settled(receipt(3)))
    there = [receipt(0), receipt(1)]
    accepted = accepting(ledger, *there)
    assert kinds(ledger, accepted, *there) == []

    passed = recorded([total(4)])
    assert kinds(passed, accepted, *there, receipt(2)) == []
    assert kinds(passed, accepted, *there) == [DifferenceKind.RECEIPT_MISSING]


def test_a_second_acceptance_contains_the_first() -> None:
    ledger = recorded([total(4)])
    first = accepting(ledger, *(receipt(seq) for seq in (0, 1, 2)))
    second = accepting(replace(ledger, accepted=first), receipt(0), receipt(2))

    assert kinds(ledger, second, receipt(0), receipt(2)) == []


def test_a_loss_is_of_its_own_generation() -> None:
    ledger = recorded([total(2), replace(total(2), generation=2)], generation=2)
    accepted = accepting(ledger, receipt(0, generation=2), receipt(1, generation=2))

    assert kinds(ledger, accepted, receipt(1, generation=2)) == [DifferenceKind.RECEIPT_MISSING]


def test_rejected_and_skipped_batches_that_were_lost_are_counted_as_such() -> None:
    skipped = RangeReceipt(1, "t", Range(0, 30), EACH + EACH, 3, rejected=1, skipped=1)
    rejected = receipt(1, verdict=Verdict.REJECTED)
    ledger = recorded([skipped])
    assert kinds(ledger, AcceptedSink(), receipt(0), rejected) == []

    assert kinds(ledger, accepting(ledger, receipt(0)), receipt(0)) == []
    assert kinds(ledger, accepting(ledger, rejected), rejected) == []


def test_rows_are_compared_with_what_was_there_at_the_acceptance() -> None:
    assert list(compare_rows(70, 100, accepted_missing=30)) == []
    (fewer,) = compare_rows(69, 100, accepted_missing=30)
    assert "69 rows, 1 fewer than the 70 that its receipts delivered, 30 less by the acceptance" in fewer.message
    assert list(compare_rows(130, 100, accepted_missing=-30)) == []
