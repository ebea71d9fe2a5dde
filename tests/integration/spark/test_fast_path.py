"""If only JSON is decoded, flat records do not pass through the JVM; a batch with another record is run again there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.wave_messages import Wave
from airflow_provider_ckpt.spark.transform import apply
from airflow_provider_ckpt.spark.transform.plain_json import FlatJsonDecoder
from airflow_provider_ckpt.spark.transform.projection import parse_schema
from airflow_provider_ckpt.spark.transform.strict_parsing import JSON_DIALECT
from airflow_provider_ckpt.spark.wave import run_wave
from tests.integration.spark.scripted import Script, make_job, make_wave, plain_record, task, written

DECODE = {"transform": {"decode": "json", "schema": "id bigint, name string"}}
PINNED = {"consumer": {"strategy": "pinned"}}
ODD = b'{"name": "odd one", "id": 25}'
BROKEN = b'{"id": 35, "name": \xff'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return the path of the scripted sink's log."""
    return tmp_path / "log"


def run(spark: SparkSession, log: Path, script: Script, wave: Wave, **keys: Any) -> Mapping[int, AttemptOutcome]:
    """Run a wave of a pipeline that decodes; how each batch ended, exactly once."""
    outcomes = run_wave(spark, make_job(log, script, **{**DECODE, **keys}), wave)
    assert sorted(outcome.key.seq for outcome in outcomes) == sorted(batch.key.seq for batch in wave.tasks)
    return {outcome.key.seq: outcome.outcome for outcome in outcomes}


def tens(*seqs: int) -> list[Any]:
    """Batches of ten records each."""
    return [task(seq, seq * 10, seq * 10 + 10) for seq in seqs]


def test_plain_batches_are_delivered_without_sql(
    spark: SparkSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "apply", None)

    ended = run(spark, log, Script(raw={}), make_wave(tens(0, 2), tens(1)))

    assert set(ended.values()) == {AttemptOutcome.DELIVERED}
    assert sorted(position for line in written(log) for position in line["positions"]) == list(range(30))
    assert all(line["columns"] == ["id", "name"] for line in written(log))


@pytest.mark.parametrize("keys", [{}, PINNED], ids=["free", "pinned"])
def test_a_batch_with_another_record_is_done_again_and_every_record_arrives_once(
    spark: SparkSession, log: Path, keys: Mapping[str, Any]
) -> None:
    script = Script(raw={25: ODD, 35: BROKEN, 36: plain_record(36) + b" junk"}, rows=4)

    ended = run(spark, log, script, make_wave(tens(0, 2, 3, 4), tens(1)), **keys)

    assert set(ended.values()) == {AttemptOutcome.DELIVERED}
    lines = {line["seq"]: line for line in written(log)}
    assert len(written(log)) == 5
    assert lines[2]["positions"] == list(range(20, 30))
    assert lines[2]["names"][5] == "odd one"
    assert lines[3]["positions"] == [30, 31, 32, 33, 34, 37, 38, 39]
    assert [dead_letter[:2] for dead_letter in lines[3]["dead_letters"]] == [
        [35, "MessageDeserialization"],
        [36, "MessageDeserialization"],
    ]
    assert lines[3]["dead_letters"][1][3] == '{"id": 36, "name": "row 36"} junk'
    if keys:
        assert [line["seq"] for line in written(log) if line["seq"] != 1] == [0, 2, 3, 4]


def test_the_original_of_a_row_that_the_sink_refuses_is_its_bytes(spark: SparkSession, log: Path) -> None:
    run(spark, log, Script(raw={}, bad=[7]), make_wave(tens(0)))

    (line,) = written(log)
    assert line["dead_letters"] == [[7, "Sink", "bad row", plain_record(7).decode()]]


def test_a_plain_record_that_the_transform_rejects_is_its_bytes(spark: SparkSession, log: Path) -> None:
    keys = {"transform": {**DECODE["transform"], "where": "1 / (id - 3) IS NOT NULL", "select": {"r": "1 / (id - 5)"}}}

    run(spark, log, Script(raw={7: b"{"}), make_wave(tens(0)), **keys)

    (line,) = written(log)
    assert line["positions"] == [0, 1, 2, 4, 6, 8, 9]
    assert [[position, kind, text] for position, kind, _, text in line["dead_letters"]] == [
        [3, "FilterEvaluation", plain_record(3).decode()],
        [5, "TransformEvaluation", plain_record(5).decode()],
        [7, "MessageDeserialization", "{"],
    ]


def test_a_null_is_looked_at_where_the_pipeline_says_that_it_is_an_error(spark: SparkSession, log: Path) -> None:
    keys = {"error_handling": {"null_value_behavior": "error"}}

    run(spark, log, Script(raw={3: b'{"id": 3, "name": null}'}), make_wave(tens(0)), **keys)

    (line,) = written(log)
    assert [dead_letter[0] for dead_letter in line["dead_letters"]] == [3]


@pytest.mark.parametrize("where", [None, "id >= 0"], ids=["decoded alone", "filtered, too"])
def test_a_record_that_is_larger_than_may_be_never_enters_the_jvm(
    spark: SparkSession, log: Path, where: str | None
) -> None:
    fitting, odd = b'{"id": 12, "name": "%s"}' % (b"n" * 77), b'{"name": "%s", "id": 14}' % (b"n" * 78)
    plain, broken = b'{"id": 23, "name": "%s"}' % (b"n" * 78), b'{"id": ' + b"\xff" * 200
    script = Script(raw={12: fitting, 14: odd, 23: plain, **dict.fromkeys(range(30, 40), broken)}, rows=4)
    keys = {"transform": {**DECODE["transform"], "where": where, "max_record_bytes": len(fitting)}}

    ended = run(spark, log, script, make_wave(tens(0, 1), tens(2, 3)), **keys)

    assert set(ended.values()) == {AttemptOutcome.DELIVERED}
    lines = {line["seq"]: line for line in written(log)}
    names = [name for seq in range(4) for name in lines[seq]["names"]]
    assert names == ["n" * 77 if n == 12 else f"row {n}" for n in range(30) if n not in (14, 23)]
    dead_letters = [dead_letter for seq in range(4) for dead_letter in lines[seq]["dead_letters"]]
    assert [position for position, *_ in dead_letters] == [14, 23, *range(30, 40)]
    assert {kind for _, kind, _, _ in dead_letters} == {"MessageDeserialization"}
    assert dead_letters[0][2:] == [f"{len(odd)} bytes, more than transform.max_record_bytes", odd.decode()]
    assert [text for *_, text in dead_letters[1:]] == [
        record.decode(errors="backslashreplace") for record in [plain] + [broken] * 10
    ]


def _written(kind: str, chance: Random) -> str:
    """A value of a type as programs write it, or nearly."""
    digits = "".join(chance.choices("0123456789", k=chance.randint(1, 20))) if chance.random() < 0.9 else "0"
    sign, fraction = chance.choice(["", "-"]), chance.choice(["", ".", f".{digits[:17]}", ".0", "e3", "E-2"])
    moment = datetime(chance.choice([1, 999, 1000, 1582, 1969, 2026, 9999]), 12, 28) - timedelta(
        days=chance.randint(0, 300), microseconds=chance.choice([0, 1, 120_000, 999_999])
    )
    zone = chance.choice(["Z", "+00:00", "-17:59", "+18:00", "+19:30", "+05:45", ""])
    values = {
        "string": json.dumps(
            chance.choice(["", "a", "é", "日本", "\U0001f600", "null", "1.50", "a,b:{c}"]), ensure_ascii=False
        ),
        "boolean": chance.choice(["true", "false", "True"]),
        "date": f'"{moment.date().isoformat()}"',
        "timestamp": f'"{moment.isoformat()}{zone}"',
    }
    return values.get(kind, f"{sign}{digits.lstrip('0') or '0'}{fraction if chance.random() < 0.7 else ''}")


def test_what_arrow_makes_of_a_plain_record_is_what_spark_makes_of_it(spark: SparkSession) -> None:
    kinds = ["string", "boolean", "smallint", "int", "bigint", "float", "double", "date", "timestamp"]
    schema = ", ".join(f"{kind}_ {kind}" for kind in kinds)
    plain = FlatJsonDecoder.of(parse_schema(spark, schema, "x").fields)
    assert plain is not None
    chance = Random(20261122)
    # One field that is not null, so that a record is plain or not for that one alone.
    texts = [
        "{" + ",".join(f'"{each}_":{_written(kind, chance) if each == kind else "null"}' for each in kinds) + "}"
        for kind in kinds
        for _ in range(400)
    ]

    found = plain.decoded(pa.array([text.encode() for text in texts], pa.binary()))
    options = f"map('mode', 'FAILFAST', {JSON_DIALECT})"
    told = pa.table({"at": list(range(len(texts))), "text": texts}).filter(found.is_valid())
    parsed = (
        spark.createDataFrame(told).selectExpr("at", f"from_json(text, '{schema}', {options}) AS row").orderBy("at")
    )
    by_spark = parsed.selectExpr("row.*").toArrow()

    assert told.num_rows > len(kinds) * 50
    assert set(plain.fields) == {(f"{kind}_", kind) for kind in kinds}
    for field, _ in plain.fields:
        ours = pa.chunked_array([found.field(field).filter(found.is_valid())])
        assert ours.null_count < len(ours), f"no plain record has a {field}"
        theirs = by_spark.column(field).cast(ours.type)
        assert list(map(str, ours.to_pylist())) == list(map(str, theirs.to_pylist())), field
