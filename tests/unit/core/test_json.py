"""Objects that are sent or stored as JSON are equal after a round trip."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome, Wave

longs = st.integers(-(2**63), 2**63 - 2)
keys = st.builds(BatchKey, st.integers(1, 9), st.text(min_size=1, max_size=9), st.integers(0, 2**40))
ranges = st.tuples(longs, longs).filter(lambda pair: pair[0] < pair[1]).map(lambda pair: Range(*pair))
counts = st.builds(Counts, *[st.integers(0, 2**40)] * 4)
errors = st.builds(
    ErrorInfo, st.sampled_from(ErrorType), st.text(), st.booleans(), st.none() | st.just("23505"), st.booleans()
)
receipts = st.builds(
    Receipt,
    keys,
    ranges,
    st.sampled_from(Verdict),
    st.integers(0, 99),
    st.integers(1, 9),
    counts,
    st.datetimes(timezones=st.just(UTC)),
    st.none() | longs,
)
details = st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53) | st.none(), max_size=3)
tasks = st.builds(
    BatchTask,
    keys,
    ranges,
    st.integers(1, 9),
    st.sampled_from(Instruction),
    st.none() | longs,
    details,
    st.none() | errors,
    st.integers(0, 9),
    st.booleans(),
)
outcomes = st.builds(
    Outcome,
    keys,
    st.integers(1, 9),
    st.sampled_from(AttemptOutcome),
    st.none() | receipts,
    st.booleans(),
    st.none() | errors,
    st.dictionaries(st.text(), st.integers(0, 99), max_size=3),
    st.none() | details,
    st.floats(0, 1e6),
)
waves = st.builds(Wave, st.integers(1, 99), st.lists(st.lists(tasks, max_size=3), max_size=3), st.floats(0, 1e6))


def across(data: Any) -> Any:
    return json.loads(json.dumps(data))


@given(keys)
def test_a_key(key: BatchKey) -> None:
    assert BatchKey.from_json(across(key.to_json())) == key


@given(errors)
def test_an_error(error: ErrorInfo) -> None:
    assert ErrorInfo.from_json(across(error.to_json())) == error


@given(receipts)
def test_a_receipt(receipt: Receipt) -> None:
    assert Receipt.from_json(across(receipt.to_json())) == receipt


@given(tasks)
def test_a_task(task: BatchTask) -> None:
    assert BatchTask.from_json(across(task.to_json())) == task


@given(outcomes)
def test_an_outcome(outcome: Outcome) -> None:
    assert Outcome.from_json(across(outcome.to_json())) == outcome


@given(waves)
def test_a_wave(wave: Wave) -> None:
    assert Wave.from_json(across(wave.to_json())) == wave


def test_counts_add_up_and_know_whether_they_balance() -> None:
    total = Counts(10, 7, 2, 1) + Counts(5, 5)

    assert total == Counts(15, 12, 2, 1)
    assert total.is_balanced
    assert not Counts(10, 7, 2, 0).is_balanced
    assert not Counts(1, -1, 0, 2).is_balanced


def test_a_batchs_name_shows_its_generation_only_after_a_rewind() -> None:
    assert str(BatchKey(1, "flights", 3)) == "flights#3"
    assert str(BatchKey(2, "flights", 3)) == "flights#3@2"
