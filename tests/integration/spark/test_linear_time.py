"""The time for a record grows linearly with its length, in Spark, in Arrow and in Python.

Each record is long, and made to keep one expression or parser busy. It is processed at growing lengths, so that a
defect shows before it takes hours: each length must take less than a fixed time, and twice the length about twice the
time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.lane.stack_traces import _SPARK_ERROR
from airflow_provider_ckpt.spark.transform import apply
from airflow_provider_ckpt.spark.transform.plain_json import FlatJsonDecoder
from airflow_provider_ckpt.spark.transform.projection import parse_schema
from tests.integration.spark.judging import CONTROL

KILOBYTES = (8, 32, 64, 128)
SECONDS = 10.0
"""Seconds of processor time for all records of one length; a quadratic one takes many times this at the longest."""

TYPES = "d double, f float, n decimal(38,2), at timestamp, local timestamp_ntz, day date, i bigint, b boolean, t string"
NAMES = re.findall(r"(\w+) [a-z]", TYPES)

VALUES = {
    "a number with Java's letter": ("", "1", "d"),
    "a number with a space behind": ("", "1", " "),
    "a fraction with Java's letter": (".", "1", "d"),
    "a number of many digits": ("", "1", ""),
    "a number of many digits, in groups": ("", "1,", "1"),
    "a number of digits that are not ASCII": ("", "\u0661", ""),
    "a fraction of many digits": ("0.", "1", "x"),
    "an exponent of many digits": ("1e", "1", ""),
    "an exponent of many zeros": ("1e", "0", "9999999"),
    "spaces before": ("", " ", "x"),
    "signs": ("", "-", "1"),
    "a time with spaces behind": ("2020-01-01 ", " ", "x"),
    "a time of many digits": ("2020-01-01T00:00:00.", "1", "x"),
    "a time of many zones": ("2020-01-01T00:00:00", "+01", ""),
    "a time zone of many parts": ("2020-01-01T00:00:00 ", "A/", ""),
}
"""Beginning, repeated part and end of a record of each kind."""

CSV = {
    "quotes in quotes": ('"', '""', '",x'),
    "quotes never closed": ('"', '""', "x"),
    "quoted fields": ("", '"a",', ""),
    "delimiters": ("", ",", ""),
}

JSON = {
    "a name again and again": ("{", '"t":"a",', '"d":1}'),
    "an array again and again": ("{", '"list":[1.5,2],', '"d":1}'),
    "a map again and again": ('{"map":{', '"map":{},', '"a":"b"}}'),
    "quotes never closed": ('{"t":"', 'a":', ""),
    "escapes": ('{"t":"', r"\"t\":", '"}'),
    "strings in an array": ('{"list":[', '"list",', "1]}"),
    "open arrays": ('{"list":', "[", ""),
    "spaces behind a name": ('{"t"', " ", ':"x"}'),
    "huge numbers": ('{"list":[', "1" * 199 + "x", "]}"),
    "exponents": ('{"list":[', "1e999,", "1]}"),
    "decimals": ('{"prices":[', "1e99,", "1]}"),
}


def cpu_seconds(spark: SparkSession) -> float:
    """Processor time that Spark's JVM has taken."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    process = jvm.java.lang.ProcessHandle.current().pid()
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def judge(
    spark: SparkSession, keys: dict[str, str], records: dict[str, tuple[str, str, str]]
) -> Callable[[int], dict[str, str | None]]:
    """Return a function that evaluates long records, made in Spark, with a repeated part of a given length.

    :param keys: of the pipeline's ``transform``
    :param records: the beginning, what is repeated, and the end
    """
    pipeline = Pipeline.model_validate(
        {
            "name": "long",
            "source": {"type": "files", "path": "/in"},
            "transform": keys,
            "sink": {"type": "delta", "path": "/out"},
        }
    )
    parts = [(at, first, part, last) for at, (first, part, last) in enumerate(records.values())]
    table = spark.createDataFrame(parts, "at bigint, first string, part string, last string").cache()
    names = [field.name for field in parse_schema(spark, CONTROL, "long").fields]

    def verdicts(length: int) -> dict[str, str | None]:
        text = f"concat(first, repeat(part, cast({length} / length(part) AS int)), last)"
        control = [f"0L AS {names[0]}", f"at AS {names[1]}", f"cast(NULL AS string) AS {names[2]}"]
        frame = table.selectExpr(*control, f"cast({text} AS binary) AS value")
        judged = apply.apply(frame, pipeline, RecordShape(True, [("value", "binary")]))
        rows = judged.select(names[1], c.VERDICT).collect()
        found = {row[0]: row[1] for row in rows}
        return {name: found[at] for at, name in enumerate(records)}

    return verdicts


def grows_as_its_length(judged: Callable[[int], object], clock: Callable[[], float]) -> None:
    """Judge at each length, within the bound, and at twice the length in about twice the time."""
    judged(1)
    times = {}
    for length in KILOBYTES:
        before = clock()
        judged(length << 10)
        times[length] = clock() - before
        assert times[length] < SECONDS, times
    *_, half, whole = times.values()
    assert whole < 3.5 * max(half, 1.5), times


def with_values(form: str) -> dict[str, tuple[str, str, str]]:
    """Records that have one of :data:`VALUES` in one field."""
    columns = NAMES if "{" not in form else [*NAMES, "list", "map", "prices", "v"]
    records = {}
    for at, column in enumerate(columns):
        for name, (first, part, last) in VALUES.items():
            before, _, behind = form.replace("NAME", column).partition("VALUE")
            commas = "" if "{" in form else "," * at, "" if "{" in form else "," * (len(columns) - at - 1)
            records[f"{column}: {name}"] = (commas[0] + before + first, part, last + behind + commas[1])
    return records


def test_no_csv_record_holds_its_batch(spark: SparkSession) -> None:
    records = CSV | with_values('"VALUE"')
    judged = judge(spark, {"decode": "csv", "schema": TYPES}, records)
    grows_as_its_length(judged, lambda: cpu_seconds(spark))


@pytest.mark.parametrize("form", ['{"NAME":"VALUE"}', '{"NAME":VALUE}', '{"NAME":["VALUE"]}'])
def test_no_json_record_holds_its_batch(spark: SparkSession, form: str) -> None:
    more = "v variant, list array<double>, prices array<decimal(9,2)>, map map<string,string>"
    judged = judge(spark, {"decode": "json", "schema": f"{TYPES}, {more}"}, JSON | with_values(form))
    grows_as_its_length(judged, lambda: cpu_seconds(spark))


@pytest.mark.parametrize("value", ["1e999999999", "-1.5E+2147483647", "1e-999999999", "1e0000999999999", "1" * 2000])
@pytest.mark.parametrize("decode", ["csv", "json", "json in quotes", "json twice", "json in an array"])
def test_a_short_record_with_a_huge_decimal_is_told_at_once(spark: SparkSession, decode: str, value: str) -> None:
    record = {
        "csv": f"{value},a",
        "json": f'{{"n":{value},"t":"a"}}',
        "json in quotes": f'{{"n":"{value}","t":"a"}}',
        "json twice": f'{{"n":{value},"t":"a","n":1}}',
        "json in an array": f'{{"list":[1,{value}],"n":1}}',
    }[decode]
    schema = "n decimal(38,2), t string" + (", list array<decimal(9,2)>" if "json" in decode else "")
    judged = judge(spark, {"decode": decode[:4].strip(), "schema": schema}, {"it": (record, "x", "")})
    started = time.monotonic()
    verdict = judged(0)["it"]
    assert verdict is not None
    assert verdict.startswith("MessageDeserialization")
    assert time.monotonic() - started < SECONDS


def test_what_resembles_a_huge_decimal_beside_a_decimal_is_delivered(spark: SparkSession) -> None:
    digits = "1" * 2000
    fine = {
        "csv": f"1.5,{digits}",
        "json": f'{{"n":1.5,"t":"{digits}"}}',
        "a hash in json": '{"n":1.5,"t":"9e9999","list":[1]}',
        "a hash in csv": "1.5,9e9999",
    }
    for name, record in fine.items():
        decode = "csv" if "csv" in name else "json"
        schema = "n decimal(38,2), t string" + (", list array<decimal(9,2)>" if "list" in record else "")
        judged = judge(spark, {"decode": decode, "schema": schema}, {"it": (record, "x", "")})
        assert judged(0) == {"it": None}, name


def test_no_record_holds_the_look_for_plain_ones(spark: SparkSession) -> None:
    schema = parse_schema(spark, "t string, d double, at timestamp, i bigint", "long")
    plain = FlatJsonDecoder.of(schema.fields)
    assert plain is not None
    records = JSON | with_values('{"NAME":"VALUE"}') | with_values('{"NAME":VALUE}')

    def judged(length: int) -> None:
        texts = [f"{first}{part * (length // len(part))}{last}".encode() for first, part, last in records.values()]
        for text in texts:  # one by one, or together they are as long as Arrow can index
            plain.decoded(pa.array([text], pa.binary()))

    grows_as_its_length(judged, time.process_time)


@pytest.mark.parametrize(("first", "part"), [("[A] ", "\n"), ("[A] ", "\n "), ("", "["), ("", "[A"), ("[", "A")])
def test_no_error_text_holds_the_look_for_what_spark_said(first: str, part: str) -> None:
    grows_as_its_length(lambda length: _SPARK_ERROR.search(first + part * length), time.process_time)
