"""The check of a trial accepts right results, and reports each wrong one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from tests.chaos.crash_points.accounting import Found, balance
from tests.chaos.crash_points.records import Fate, Record, id_in

RECORDS = [
    Record(1, 0, Fate.DELIVERED),
    Record(2, 0, Fate.FILTERED),
    Record(3, 0, Fate.DELIVERED),
    Record(4, 1, Fate.DEAD_LETTERED),
    Record(5, 1, Fate.DELIVERED),
]


def receipt(partition: str, start: int, end: int, counts: Counts, verdict: Verdict = Verdict.DELIVERED) -> Receipt:
    """Return the receipt of a batch of its own."""
    return Receipt(BatchKey(1, partition, start), Range(start, end), verdict, 1, 1, counts, datetime.now(UTC))


RECEIPTS = [
    receipt("in-0", 0, 2, Counts(2, 1, 1, 0)),
    receipt("in-0", 2, 3, Counts(1, 1, 0, 0)),
    receipt("in-1", 0, 2, Counts(2, 1, 0, 1)),
]
RIGHT = Found([(0, 1), (0, 3), (1, 5)], True, [4], RECEIPTS)


def test_what_is_right_balances() -> None:
    found = balance(RECORDS, RIGHT)

    assert (found.lost, found.doubled, found.faults) == (0, 0, [])


@pytest.mark.parametrize(
    ("wrong", "lost", "doubled", "said"),
    [
        ({"rows": [(0, 1), (1, 5)]}, 1, 0, "1 lost: (0, 3)"),
        ({"dead_letters": []}, 1, 0, "1 lost: 4"),
        ({"rows": [(0, 1), (0, 3), (0, 1), (1, 5)]}, 0, 1, "1 there twice: (0, 1)"),
        ({"dead_letters": [4, 4, 4]}, 0, 2, "2 there twice: 4, 4"),
        ({"rows": [(0, 1), (0, 2), (0, 3), (1, 5)]}, 0, 0, "1 delivered, and must not be: (0, 2)"),
        ({"dead_letters": [4, 5]}, 0, 0, "1 dead-lettered, and must not be: 5"),
        ({"rows": [(0, 3), (0, 1), (1, 5)]}, 0, 0, "partition 0 is out of order: [3, 1] …"),
        ({"receipts": RECEIPTS[1:]}, 0, 0, "receipts count {'read': 3"),
        ({"receipts": [replace(RECEIPTS[0], counts=Counts(2, 1, 0, 0)), *RECEIPTS[1:]]}, 0, 0, "SumIdentity of in-0#0"),
        ({"receipts": [replace(RECEIPTS[0], verdict=Verdict.REJECTED), *RECEIPTS[1:]]}, 0, 0, "in-0#0 is rejected"),
        (
            {"receipts": [replace(RECEIPTS[0], range=Range(0, 1)), *RECEIPTS[1:]]},
            0,
            0,
            "in-0: receipts [0, 1) and [2, 3)",
        ),
        ({"blocking": 2}, 0, 0, "the ledger holds 2 batches"),
        ({"audit": ["audit: a violation"]}, 0, 0, "audit: a violation"),
    ],
)
def test_what_is_wrong_is_said(wrong: Mapping[str, Any], lost: int, doubled: int, said: str) -> None:
    found = balance(RECORDS, replace(RIGHT, **wrong))

    assert (found.lost, found.doubled) == (lost, doubled)
    assert any(fault.startswith(said) for fault in found.faults), found.faults


def test_a_target_without_order_is_not_held_to_one() -> None:
    assert balance(RECORDS, replace(RIGHT, rows=[(1, 5), (0, 3), (0, 1)], ordered=False)).faults == []


@pytest.mark.parametrize("fate", Fate)
@pytest.mark.parametrize("pad", [0, 50])
def test_a_record_is_known_by_its_bytes(fate: Fate, pad: int) -> None:
    assert [id_in(Record(number, 2, fate).text(pad=pad)) for number in (17, 18)] == [17, 18]
