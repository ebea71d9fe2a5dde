"""A user's Python function runs in lanes, after Spark's part and before the sink, batch by batch and in order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.errors import ErrorType, InvalidTransformError
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.spark.transform.python_function import pack
from airflow_provider_ckpt.spark.wave import check_transform, run_wave
from tests.integration.spark.scripted import Script, ScriptedJob, make_job, make_wave, task, written

OWN = {"python": "task", "returns": "id bigint, name string, at timestamp"}


def stamped(rows: pa.Table) -> pa.Table:
    """Keeps even ids, and cannot bear those that end in 7."""
    ids = rows.column("id").to_pylist()
    if any(n % 10 == 7 for n in ids):
        raise KeyError("seven")
    at = pa.array([None] * len(ids), pa.timestamp("us", "UTC"))
    return rows.append_column("at", at).append_column("_keep", pa.array([n % 2 == 0 for n in ids]))


def short(rows: pa.Table) -> pa.Table:
    return stamped(rows).slice(1)


def job_with(function: Any, log: Path, script: Script | None = None, **keys: Any) -> ScriptedJob:
    made = make_job(log, script or Script(), **{"transform": OWN, **keys})
    return replace(made, function=pack(function))


def run(spark: SparkSession, job: ScriptedJob, *lanes: Any) -> dict[int, Outcome]:
    return {outcome.key.seq: outcome for outcome in run_wave(spark, job, make_wave(*lanes))}


def counts(outcome: Outcome) -> Counts:
    assert outcome.receipt is not None
    return outcome.receipt.counts


def test_it_gets_what_spark_puts_out_and_order_count_and_identity_hold(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"
    transform = {**OWN, "where": "id <> 4", "select": {"id": "id", "name": "upper(name)"}}
    job = job_with(stamped, log, Script(rows=3, empty=[1]), transform=transform)

    outcomes = run(spark, job, [task(0, 0, 10), task(1, 10, 11), task(2, 11, 19)])

    assert check_transform(spark, job) == [("id", "bigint"), ("name", "string"), ("at", "timestamp")]
    assert counts(outcomes[0]) == Counts(read=10, delivered=4, filtered=5, dead_lettered=1)
    assert counts(outcomes[1]) == Counts(0, 0, 0, 0)
    assert counts(outcomes[2]) == Counts(read=8, delivered=4, filtered=3, dead_lettered=1)
    lines = written(log)
    assert [line["seq"] for line in lines] == [0, 1, 2]
    assert [line["positions"] for line in lines] == [[0, 2, 6, 8], [], [12, 14, 16, 18]]
    assert lines[0]["columns"] == ["id", "name", "at"]
    assert lines[0]["dead_letters"] == [[7, "Processing", "KeyError: 'seven'", '{"id": 7, "name": "row 7"}']]


def test_a_row_that_the_sink_refuses_afterwards_is_dead_lettered_as_the_source_held_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    outcomes = run(spark, job_with(stamped, log, Script(bad=[2])), [task(0, 0, 10)])

    assert counts(outcomes[0]) == Counts(read=10, delivered=4, filtered=4, dead_lettered=2)
    assert sorted(dead_letter[0] for dead_letter in written(log)[0]["dead_letters"]) == [2, 7]
    assert [dead_letter[3] for dead_letter in written(log)[0]["dead_letters"] if dead_letter[0] == 2] == [
        '{"id": 2, "name": "row 2"}'
    ]


def test_a_function_that_loses_rows_halts_before_anything_is_sent(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"

    outcome = run(spark, job_with(short, log), [task(0, 0, 5)])[0]

    assert outcome.outcome is AttemptOutcome.FAILED
    assert outcome.error is not None
    assert outcome.error.type is ErrorType.INVALID_TRANSFORM
    assert written(log) == []


def test_what_it_raises_may_be_skipped_instead(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"

    outcomes = run(spark, job_with(stamped, log, error_policy={"Processing": "skip_and_log"}), [task(0, 0, 10)])

    assert counts(outcomes[0]) == Counts(read=10, delivered=5, filtered=5, dead_lettered=0)


def test_a_batch_that_is_given_up_is_not_shown_to_it(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "log"

    outcomes = run(spark, job_with(short, log), [task(0, 0, 5, Instruction.REJECT)])

    assert counts(outcomes[0]) == Counts(read=5, delivered=0, filtered=0, dead_lettered=5)


def test_one_that_cannot_be_imported_is_refused_before_the_first_wave(spark: SparkSession, tmp_path: Path) -> None:
    job = make_job(tmp_path / "log", Script(), transform={**OWN, "python": "nowhere:f"})

    with pytest.raises(InvalidTransformError, match="cannot be imported"):
        check_transform(spark, job)
