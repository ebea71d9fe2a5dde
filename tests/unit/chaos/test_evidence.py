"""The crash test's judge finds every fault that it must find."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_ckpt.core.ranges import Range
from tests.chaos.evidence import Entry, Evidence, judge

_RECEIPTS = [Entry(Range(1 + 10 * seq, 11 + 10 * seq), 10, 10, seq) for seq in range(5)]
_GOOD = Evidence(
    expected=Range(1, 51),
    source_rows=50,
    target_rows=50,
    target_ids=50,
    missing=0,
    sink=_RECEIPTS,
    ledger=[Entry(Range(1, 51), 50, 50)],
    committed=51,
    unresolved=0,
)


def test_a_whole_delivery_passes() -> None:
    findings = judge(_GOOD)
    assert (findings.lost, findings.doubled, findings.faults) == (0, 0, [])


def test_a_doubled_row_is_found() -> None:
    findings = judge(replace(_GOOD, target_rows=51))
    assert findings.doubled == 1
    assert "1 target rows are doubled" in findings.faults


def test_a_lost_row_is_found() -> None:
    findings = judge(replace(_GOOD, target_rows=49, target_ids=49, missing=1))
    assert findings.lost == 1
    assert "1 source rows are not in the target" in findings.faults


def test_a_lost_row_is_not_hidden_by_a_doubled_one() -> None:
    findings = judge(replace(_GOOD, target_rows=50, target_ids=49, missing=1))
    assert (findings.lost, findings.doubled) == (1, 1)


def test_a_changed_row_counts_as_lost() -> None:
    assert judge(replace(_GOOD, missing=1)).lost == 1


def test_a_hole_in_the_receipts_is_found() -> None:
    holed = [receipt for receipt in _RECEIPTS if receipt.seq != 2]
    assert "sink: no receipt for [21, 31)" in judge(replace(_GOOD, sink=holed)).faults
    assert "ledger: no receipt for [21, 31)" in judge(replace(_GOOD, ledger=holed)).faults


def test_overlapping_receipts_are_found() -> None:
    wider = replace(_RECEIPTS[1], range=Range(9, 21))
    faults = judge(replace(_GOOD, sink=[_RECEIPTS[0], wider, *_RECEIPTS[2:]])).faults
    assert faults == ["sink: receipts [1, 11) and [9, 21) overlap"]


def test_receipts_that_stop_short_are_found() -> None:
    faults = judge(replace(_GOOD, sink=_RECEIPTS[:-1])).faults
    assert "sink: receipts reach from 1 to 41, not [1, 51)" in faults


def test_missing_receipts_are_found() -> None:
    assert "sink: there are no receipts" in judge(replace(_GOOD, sink=[])).faults


def test_a_batch_with_two_receipts_is_found() -> None:
    twice = [*_RECEIPTS[:-1], replace(_RECEIPTS[-1], seq=0)]
    assert judge(replace(_GOOD, sink=twice)).faults == ["sink: a batch has two receipts"]


def test_a_checkpoint_that_lags_and_unresolved_batches_are_found() -> None:
    faults = judge(replace(_GOOD, committed=41, unresolved=1)).faults
    assert faults == ["ledger: the checkpoint stands at 41, not 51", "ledger: 1 batches are unresolved"]
