"""Tests of deferred batches: the driver's evaluation, the second wave, and tracebacks without secrets."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorType, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome, Wave
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.dead_letters.originals import MESSAGE
from airflow_provider_ckpt.spark.failures import to_error_info
from airflow_provider_ckpt.spark.lane.stack_traces import TRACES, DeferredBatch, retry_wave, split_outcomes

NOT_ATTEMPTED, DELIVERED = AttemptOutcome.NOT_ATTEMPTED, AttemptOutcome.DELIVERED


def task(seq: int, partition: str = "p") -> BatchTask:
    return BatchTask(BatchKey(1, partition, seq), Range(seq, seq + 1), 1, detail={"path": "x"})


def outcome(of: BatchTask, kind: AttemptOutcome) -> Outcome:
    return Outcome(of.key, of.attempt, kind)


def rejected(records: int) -> pa.Table:
    return pa.table(
        {
            POSITION: pa.array(range(records), pa.int64()),
            c.VERDICT: ["TransformEvaluation"] * records,
            MESSAGE: ["select n failed"] * records,
            c.ORIGINAL: [{"value": b"\xff\x00"}] * records,
        }
    )


def test_questions_and_outcomes_travel_together_and_are_told_apart() -> None:
    asked, done = DeferredBatch.from_rejected(task(1), rejected(2)), outcome(task(0), DELIVERED)

    outcomes, (question,) = split_outcomes([json.dumps(done.to_json()), json.dumps(asked.to_json())])

    assert outcomes == [done]
    assert question.key == task(1).key
    assert question.records is not None
    assert question.records.column(c.ORIGINAL).to_pylist() == [{"value": b"\xff\x00"}] * 2


def test_a_hundred_records_of_a_batch_are_evaluated_and_no_more() -> None:
    records = DeferredBatch.from_rejected(task(1), rejected(250)).records
    assert records is not None
    assert records.num_rows == 100


@pytest.mark.parametrize(("pinned", "done_again"), [(True, [1, 2, 3]), (False, [1])])
def test_what_was_put_off_is_done_again_and_in_order_with_what_waited_for_it(
    pinned: bool, done_again: list[int]
) -> None:
    tasks = [task(seq) for seq in range(4)]
    other = task(0, "q")
    outcomes = [
        outcome(tasks[0], DELIVERED),
        outcome(tasks[2], NOT_ATTEMPTED),
        outcome(tasks[3], NOT_ATTEMPTED),
        outcome(other, NOT_ATTEMPTED),
    ]

    rest, stand = retry_wave(
        Wave(7, [tasks, [other]], 10.0), outcomes, {tasks[1].key: {TRACES: {"5": "[X] no"}}}, pinned=pinned
    )

    assert [[item.key.seq for item in lane] for lane in rest.lanes] == [done_again]
    assert rest.lanes[0][0].detail == {"path": "x", TRACES: {"5": "[X] no"}}
    assert {item.key for item in stand} | {item.key for item in rest.tasks} == {*(t.key for t in tasks), other.key}
    assert (rest.number, rest.seconds) == (7, 10.0)


def test_a_traceback_has_the_frames_and_no_word_of_the_cause() -> None:
    said = "password=hunter2"
    with pytest.raises(SourceError) as caught:
        _fail_by(ValueError(said))

    info = to_error_info(caught.value, traced=True)

    assert to_error_info(caught.value, traced=False).trace is None
    assert info.trace is not None
    assert info.trace.startswith("Traceback (most recent call last):\n")
    assert info.trace.endswith("SourceError: it cannot be read.")
    assert "ValueError" in info.trace
    assert "test_stack_traces.py" in info.trace
    assert said not in info.trace


def _fail_by(cause: Exception) -> None:
    try:
        raise cause
    except type(cause) as error:
        raise SourceError("it cannot be read.") from error


def test_an_error_that_nothing_foresaw_halts_with_its_type() -> None:
    info = to_error_info(ZeroDivisionError("by zero"), traced=False)

    assert (info.type, info.message) == (ErrorType.GENERIC, "ZeroDivisionError: by zero")
