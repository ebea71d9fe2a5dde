"""A lane delivers its batches in order and completely; a failed batch is reported and does not affect others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.spark.lane.deliver import Lane
from airflow_provider_ckpt.spark.lane.gather import GatheredBatch
from airflow_provider_ckpt.spark.wave import run_wave
from tests.integration.spark.scripted import Script, ScriptedJob, make_job, make_wave, task, written

DELIVERED, FAILED, NOT_ATTEMPTED = AttemptOutcome.DELIVERED, AttemptOutcome.FAILED, AttemptOutcome.NOT_ATTEMPTED
PINNED = {"consumer": {"strategy": "pinned"}}

Make = Callable[..., ScriptedJob]


@pytest.fixture(params=["copied", "transformed"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes a job whose records pass unchanged: in one process, or through the JVM and a ``where`` that is true."""
    keys = {"transform": {"where": "id >= 0"}} if request.param == "transformed" else {}
    return lambda script=None, **more: make_job(tmp_path / "log", script or Script(), **{**keys, **more})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return the path of the scripted sink's log."""
    return tmp_path / "log"


def run(spark: SparkSession, job: ScriptedJob, wave: Wave) -> Mapping[int, Outcome]:
    """Run a wave; its outcomes by seq, exactly one for each batch."""
    outcomes = run_wave(spark, job, wave)
    assert sorted(outcome.key.seq for outcome in outcomes) == sorted(batch.key.seq for batch in wave.tasks)
    return {outcome.key.seq: outcome for outcome in outcomes}


def kinds(outcomes: Mapping[int, Outcome]) -> dict[int, AttemptOutcome]:
    """Return the outcome of each batch."""
    return {seq: outcome.outcome for seq, outcome in sorted(outcomes.items())}


def test_every_batch_arrives_whole_and_in_order_in_its_lane(spark: SparkSession, make: Make, log: Path) -> None:
    first = [task(0, 0, 50_000), task(2, 90_000, 90_003), task(4, 90_003, 90_900), task(6, 90_900, 90_901)]
    second = [task(1, 50_000, 50_010), task(3, 50_010, 90_000), task(5, 95_000, 95_010)]
    outcomes = run(spark, make(Script(rows=7_000)), make_wave(first, second))
    assert set(kinds(outcomes).values()) == {DELIVERED}
    lines = {line["seq"]: line for line in written(log)}
    assert all(
        lines[batch.key.seq]["positions"] == list(range(batch.range.start, batch.range.end)) for batch in first + second
    )
    in_time = [line["seq"] for line in written(log)]
    assert [seq for seq in in_time if seq % 2 == 0] == [0, 2, 4, 6]
    assert [seq for seq in in_time if seq % 2 == 1] == [1, 3, 5]


def test_lanes_run_side_by_side(spark: SparkSession, make: Make, log: Path) -> None:
    run(spark, make(Script(pause=0.5)), make_wave([task(0, 0, 5)], [task(1, 5, 10)]))
    first, second = written(log)
    assert first["process"] != second["process"]


def test_many_small_batches_and_one_that_spans_arrow_batches_keep_their_records(
    spark: SparkSession, make: Make, log: Path
) -> None:
    small = [task(seq, seq * 3, seq * 3 + 3) for seq in range(40)]
    outcomes = run(spark, make(), make_wave([*small, task(40, 120, 45_120)]))
    assert sum(outcome.receipt.counts.delivered for outcome in outcomes.values() if outcome.receipt) == 45_120
    assert [position for line in written(log) for position in line["positions"]] == list(range(45_120))


def test_an_empty_batch_is_still_a_batch(spark: SparkSession, make: Make) -> None:
    outcomes = run(spark, make(Script(empty=[0, 2])), make_wave([task(seq, seq * 5, seq * 5 + 5) for seq in range(3)]))
    counts = {seq: outcome.receipt.counts for seq, outcome in outcomes.items() if outcome.receipt}
    assert kinds(outcomes) == dict.fromkeys(range(3), DELIVERED)
    assert counts == {0: Counts(), 1: Counts(read=5, delivered=5), 2: Counts()}


def test_a_batch_that_the_sink_refuses_takes_no_neighbour_with_it(spark: SparkSession, make: Make) -> None:
    batches = [task(seq, seq * 10, seq * 10 + 10) for seq in range(4)]
    outcomes = run(spark, make(Script(write_fails={1: False})), make_wave(batches))
    assert kinds(outcomes) == {0: DELIVERED, 1: FAILED, 2: DELIVERED, 3: DELIVERED}
    assert outcomes[1].error == ErrorInfo(ErrorType.SINK, "the sink refuses")


def test_a_pinned_partition_waits_behind_a_batch_that_failed(spark: SparkSession, make: Make) -> None:
    batches = [task(seq, seq * 10, seq * 10 + 10) for seq in range(4)]
    outcomes = run(spark, make(Script(write_fails={1: False}), **PINNED), make_wave(batches))
    assert kinds(outcomes) == {0: DELIVERED, 1: FAILED, 2: NOT_ATTEMPTED, 3: NOT_ATTEMPTED}


def test_a_sink_that_is_gone_ends_its_lane_and_no_other(spark: SparkSession, make: Make) -> None:
    lanes = [[task(seq, seq * 10, seq * 10 + 10) for seq in seqs] for seqs in ((0, 2, 4), (1, 3, 5))]
    outcomes = run(spark, make(Script(write_fails={2: True})), make_wave(*lanes))
    assert kinds(outcomes) == {0: DELIVERED, 1: DELIVERED, 2: FAILED, 3: DELIVERED, 4: NOT_ATTEMPTED, 5: DELIVERED}
    assert outcomes[2].error is not None
    assert outcomes[2].error.is_outage


def test_what_nobody_foresaw_becomes_an_outcome_that_halts(spark: SparkSession, make: Make) -> None:
    batches = [task(seq, seq * 10, seq * 10 + 10) for seq in range(3)]
    outcomes = run(spark, make(Script(write_breaks=[1])), make_wave(batches))
    assert kinds(outcomes) == {0: DELIVERED, 1: FAILED, 2: DELIVERED}
    assert outcomes[1].error == ErrorInfo(ErrorType.GENERIC, "ValueError: nobody foresaw this")


@pytest.mark.parametrize("rows", [4, 20_000])
def test_nothing_of_a_batch_that_could_not_be_read_to_its_end_is_sent(
    spark: SparkSession, make: Make, log: Path, rows: int
) -> None:
    batches = [task(seq, seq * 10, seq * 10 + 10) for seq in range(3)]
    outcomes = run(spark, make(Script(read_fails={1: False}, rows=rows)), make_wave(batches))
    assert kinds(outcomes) == {0: DELIVERED, 1: FAILED, 2: DELIVERED}
    assert outcomes[1].error == ErrorInfo(ErrorType.SOURCE, "the source ended early")
    assert [line["seq"] for line in written(log)] == [0, 2]


def test_a_source_that_is_gone_ends_the_lane(spark: SparkSession, make: Make) -> None:
    batches = [task(seq, seq * 10, seq * 10 + 10) for seq in range(4)]
    outcomes = run(spark, make(Script(read_fails={1: True})), make_wave(batches))
    assert kinds(outcomes) == {0: DELIVERED, 1: FAILED, 2: NOT_ATTEMPTED, 3: NOT_ATTEMPTED}


def test_when_time_is_over_a_lane_has_done_its_first_batch_and_starts_no_other(
    spark: SparkSession, make: Make, log: Path
) -> None:
    lanes = [[task(seq, seq * 10, seq * 10 + 10) for seq in seqs] for seqs in ((0, 2, 4), (1, 3, 5))]
    outcomes = run(spark, make(), make_wave(*lanes, seconds=0.0))
    assert kinds(outcomes) == {0: DELIVERED, 1: DELIVERED, **dict.fromkeys((2, 3, 4, 5), NOT_ATTEMPTED)}
    assert sorted(line["seq"] for line in written(log)) == [0, 1]


def test_a_batch_that_is_given_up_is_dead_lettered_whole_with_its_last_error(
    spark: SparkSession, make: Make, log: Path
) -> None:
    error = ErrorInfo(ErrorType.RETRY_EXHAUSTED, "three times in vain")
    given_up = task(1, 10, 13, Instruction.REJECT, error=error)
    outcomes = run(spark, make(), make_wave([task(0, 0, 10), given_up, task(2, 13, 14, Instruction.VOID)]))
    rejected, void = outcomes[1], outcomes[2]
    assert (rejected.outcome, void.outcome) == (AttemptOutcome.REJECTED, AttemptOutcome.VOID)
    assert rejected.receipt is not None
    assert rejected.receipt.counts == Counts(read=3, dead_lettered=3)
    assert void.receipt is not None
    assert void.receipt.counts == Counts()
    assert written(log)[1]["dead_letters"] == [
        [n, "RetryExhausted", "three times in vain", f'{{"id": {n}, "name": "row {n}"}}'] for n in (10, 11, 12)
    ]


def test_a_record_that_the_sink_finds_bad_is_dead_lettered_as_the_source_had_it(
    spark: SparkSession, make: Make, log: Path
) -> None:
    select = {"transform": {"select": {"upper": "upper(name)", "id": "id"}}}
    outcomes = run(spark, make(Script(bad=[3, 8]), **select), make_wave([task(0, 0, 10)]))
    assert outcomes[0].receipt is not None
    assert outcomes[0].receipt.counts == Counts(read=10, delivered=8, dead_lettered=2)
    (line,) = written(log)
    assert line["columns"] == ["upper", "id"]
    assert line["dead_letters"] == [[n, "Sink", "bad row", f'{{"id": {n}, "name": "row {n}"}}'] for n in (3, 8)]


def test_of_records_that_share_a_position_the_sink_s_bad_ones_alone_are_dead_lettered(
    spark: SparkSession, make: Make, log: Path
) -> None:
    outcomes = run(spark, make(Script(bad=[4, 8], shared=5, rows=3)), make_wave([task(0, 0, 10)]))
    assert outcomes[0].receipt is not None
    assert outcomes[0].receipt.counts == Counts(read=10, delivered=8, dead_lettered=2)
    (line,) = written(log)
    assert line["dead_letters"] == [
        [at, "Sink", "bad row", f'{{"id": {n}, "name": "row {n}"}}'] for at, n in ((0, 4), (5, 8))
    ]


def test_of_records_that_share_a_position_each_has_its_own_fate(spark: SparkSession, log: Path) -> None:
    transform = {"where": "id <> 1", "select": {"id": "id + 0 * (1 div (id - 2))"}}
    outcome = run(spark, make_job(log, Script(bad=[4], shared=6), transform=transform), make_wave([task(0, 0, 6)]))[0]
    assert outcome.receipt is not None
    assert outcome.receipt.counts == Counts(read=6, delivered=3, filtered=1, dead_lettered=2)
    (line,) = written(log)
    assert line["positions"] == [0, 3, 5]
    assert [(position, json.loads(value)["id"]) for position, _, _, value in line["dead_letters"]] == [(0, 2), (0, 4)]


@pytest.mark.parametrize(
    ("behavior", "counts"),
    [
        ("passthrough", Counts(read=10, delivered=10)),
        ("skip", Counts(read=10, delivered=8, filtered=2)),
        ("error", Counts(read=10, delivered=8, dead_lettered=2)),
    ],
)
def test_a_null_counts_as_the_pipeline_says_with_a_transform_or_without(
    spark: SparkSession, make: Make, behavior: str, counts: Counts
) -> None:
    job = make(Script(nameless=[2, 5]), error_handling={"null_value_behavior": behavior})
    outcome = run(spark, job, make_wave([task(0, 0, 10)]))[0]
    assert outcome.receipt is not None
    assert outcome.receipt.counts == counts


def test_filtered_and_rejected_records_are_counted_and_the_sum_holds(spark: SparkSession, log: Path) -> None:
    transform = {"where": "id % 3 <> 0", "select": {"inverse": "100 div (id - 7)"}}
    outcome = run(spark, make_job(log, Script(), transform=transform), make_wave([task(0, 0, 12)]))[0]
    assert outcome.receipt is not None
    assert outcome.receipt.counts == Counts(read=12, delivered=7, filtered=4, dead_lettered=1)
    (line,) = written(log)
    assert line["positions"] == [1, 2, 4, 5, 8, 10, 11]
    message = "select inverse failed: 100 div (id - 7)"
    assert line["dead_letters"] == [[7, "TransformEvaluation", message, '{"id": 7, "name": "row 7"}']]


def test_without_dead_letters_a_record_that_calls_for_one_halts_and_nothing_is_sent(
    spark: SparkSession, log: Path
) -> None:
    keys: dict[str, Any] = {"transform": {"select": {"z": "1 div (id - 12)"}}, "dead_letter_queue": {"enabled": False}}
    batches = [task(0, 0, 10), task(1, 10, 20)]
    outcomes = run(spark, make_job(log, Script(), **keys), make_wave(batches))
    assert kinds(outcomes) == {0: DELIVERED, 1: FAILED}
    assert outcomes[1].error is not None
    assert outcomes[1].error.type is ErrorType.DEAD_LETTER_QUEUE
    assert "the record at position 12 cannot be delivered" in outcomes[1].error.message
    assert [line["seq"] for line in written(log)] == [0]


def test_a_batch_whose_sum_does_not_hold_is_never_sent(log: Path) -> None:
    lane = Lane(make_job(log, Script()), transformed=False)
    rows = pa.table({POSITION: pa.array([0, 1], pa.int64()), "id": pa.array([0, 1], pa.int64())})
    outcome = lane.deliver(task(0, 0, 3), GatheredBatch.of(rows, 3))
    assert outcome.outcome is FAILED
    assert outcome.error is not None
    assert outcome.error.message.startswith("SumIdentity: 3 records were read, but 2 are to be delivered")
    assert written(log) == []


def test_the_plan_is_a_scan_a_projection_and_python_on_either_side(spark: SparkSession, log: Path) -> None:
    from airflow_provider_ckpt.spark.wave import wave_frame

    job = make_job(log, Script(), transform={"where": "id > 1", "select": {"name": "upper(name)"}})
    wave = make_wave([task(0, 0, 1)], [task(1, 1, 2)])
    frame = wave_frame(spark, job, len(wave.lanes), lambda: (job, wave), fast_path=False)
    plan = frame._jdf.queryExecution().executedPlan()
    nodes = [line.strip("+-:* ()0123456789").split()[0] for line in plan.toString().splitlines()]
    assert [node for node in nodes if node not in ("Project", "InputAdapter")] == ["MapInArrow", "MapInArrow", "Range"]
