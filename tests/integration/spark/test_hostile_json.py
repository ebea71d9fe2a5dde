"""Hostile JSON records: a record that a strict, independent parser refuses is rejected; others arrive whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.hostile import corpus
from tests.hostile.judge import row_of
from tests.integration.spark.judging import DELIVERED, Judged, Transform


@pytest.fixture(scope="module")
def strict(spark: SparkSession) -> Transform:
    """Decodes the corpus' schema."""
    return Transform(spark, {"decode": "json", "schema": corpus.SCHEMA})


def unfair(records: dict[str, bytes], judged: list[Judged]) -> dict[str, Any]:
    """Records of which the transform says something else than the judge."""
    expected = {name: row_of(record) for name, record in records.items()}
    found = {name: item.row if item.verdict is DELIVERED else None for name, item in zip(records, judged, strict=True)}
    return {name: found[name] for name in records if not same(found[name], expected[name])}


def same(row: Any, expected: Any) -> bool:
    """Return whether two rows are the same, including the sign of zero."""
    return repr(row) == repr(expected)


def test_what_is_hostile_is_rejected_with_its_bytes(strict: Transform) -> None:
    judged = strict.raw(*corpus.BAD.values())
    assert unfair(corpus.BAD, judged) == {}
    changed = [
        name for name, item in zip(corpus.BAD, judged, strict=True) if item.original != {"value": corpus.BAD[name]}
    ]
    assert changed == []


def test_what_is_only_odd_arrives_whole(strict: Transform) -> None:
    judged = strict.raw(*[record for record, _ in corpus.FINE.values()])
    found = {name: item.row for name, item in zip(corpus.FINE, judged, strict=True)}
    assert [name for name, (_, row) in corpus.FINE.items() if not same(found[name], row)] == []
    assert {item.verdict for item in judged} == {DELIVERED}


@pytest.mark.parametrize("name", corpus.large())
def test_a_record_of_ten_megabytes_is_one_record(strict: Transform, name: str) -> None:
    record = corpus.large()[name]
    (judged,) = strict.raw(record)
    assert unfair({name: record}, [judged]) == {}
    assert judged.verdict is DELIVERED or judged.original == {"value": record}


_SCRAPS = st.sampled_from(
    [
        *(bytes([byte]) for byte in b"{}[],:\"\\\x00\xff\r 1-/'"),
        *(b"\\u", b"d800", b"e9", b"null", b"NaN", b"1e999", b"\xc3\xa9", b"\xef\xbb\xbf", b"//"),
        *(b'"id"', b'"name"', b'"x":', b'"id":1'),
    ]
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """A record of the schema that something was done to."""
    document = draw(st.fixed_dictionaries({"id": st.integers(), "name": st.text(max_size=9), "x": st.floats()}))
    for name in draw(st.lists(st.sampled_from(["id", "x", "y", "ID"]), max_size=2)):
        document[name] = draw(_JSON)
    record = json.dumps(document, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    for _ in range(draw(st.integers(0, 2))):
        at, length = draw(st.integers(0, len(record))), draw(st.sampled_from([0, 0, 1, 3]))
        record = record[:at] + draw(_SCRAPS | st.binary(max_size=3)) + record[at + length :]
    return record


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(st.lists(records() | st.binary(max_size=30), min_size=150, max_size=150))
def test_the_transform_and_the_judge_agree_on_whatever_comes(strict: Transform, some: list[bytes]) -> None:
    known = [record for record in some if not _is_text_of_something(record)]
    named = {f"{at}: {record!r}": record for at, record in enumerate(known)}
    assert unfair(named, strict.raw(*known)) == {}


def _is_text_of_something(record: bytes) -> bool:
    """Return whether the name is JSON but not a string; Spark takes it as the text of that JSON."""
    try:
        return not isinstance(json.loads(record).get("name", ""), str | None)
    except (ValueError, AttributeError):
        return False


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (b"1.5", "1.5"),
        (b"12345678901234567890123", "12345678901234567890123"),
        (b"true", "true"),
        (b"[1]", "[1]"),
        (b'{"b": [1, 2.0], "c": "\\u00e9 \xc3\xa9"}', '{"b":[1,2.0],"c":"é é"}'),
        (b'"1.50"', "1.50"),
        (b'"1e400"', "1e400"),
        (b'"Infinity"', "Infinity"),
    ],
)
def test_what_is_no_text_arrives_as_the_text_of_it(strict: Transform, written: bytes, text: str) -> None:
    (judged,) = strict.raw(b'{"id":1,"name":' + written + b',"x":1}')
    assert (judged.verdict, judged.row.get("name")) == (DELIVERED, text)


@pytest.mark.parametrize(
    "written",
    [
        *(b"0.1234567890123456789", b"1.00000000000000000001", b"0.30000000000000001", b"1.50", b"1e400", b"-0"),
        *(b'{"b":[1e400]}', b"[0.1234567890123456789]", b'{"b":[1.50]}', b'{"1.5":1.50}'),
    ],
)
def test_a_number_that_would_lose_something_as_a_text_is_rejected(strict: Transform, written: bytes) -> None:
    assert strict.verdicts(b'{"id":1,"name":' + written + b',"x":1}') == ["MessageDeserialization"]


ALTERED = {
    "a byte that is too large": ("v tinyint", b"128", b"-128"),
    "a byte that wraps around to what stands elsewhere": (
        "v tinyint, d date",
        b'255,"d":"2024-01-10"',
        b'127,"d":null',
    ),
    "a byte in a map": ("v map<string,tinyint>", b'{"a-1":255}', b'{"a-1":-1}'),
    "two bytes that are too large": ("v smallint", b"40000", b"32767"),
    "a decimal with a comma": ("v decimal(10,2)", b'"1,5"', b"1.5"),
    "a decimal with commas and a point": ("v decimal(10,2)", b'"1.234,50"', b"1234.50"),
    "text for a decimal": ("v decimal(10,2)", b'"1.5"', b"1e2"),
    "a decimal in an array": ("v array<decimal(10,2)>", b'[1,null,"1,5"]', b"[1,null,1.5]"),
    "a decimal in a map of arrays": ("v map<string,array<decimal(5,1)>>", b'{"a":["1,5"]}', b'{"a":[1.5], "b":null}'),
    "a decimal in a struct in an array": ("v array<struct<w: decimal(5,1)>>", b'[{"w":"1,5"}]', b'[{"w":1.5},null]'),
    "a number of days": ("v date", b'"42"', b'"2024-1-5"'),
    "a time that is none behind a day": ("v date", b'"2024-01-15 99:99"', b'"2024-01-15 23:59"'),
    "junk behind a short day": ("v date", b'"2024-1-5 xx"', b'"2024-01-15T10:00:00Z"'),
    "junk behind a day that stands alone elsewhere": (
        "v date, e string",
        b'"2024-01-15 xx","e":"2024-01-15"',
        b'"2024-01-15","e":"2024-01-15 xx"',
    ),
    "a number of seconds that wraps around to what stands elsewhere": ("v timestamp", b"-18446744073709", b"-1"),
    "an infinity in a variant": ("v variant", b'{"a":[1e400]}', b'{"a":[1e300,"1e400",null]}'),
    "a number of 400 digits in a variant": ("v variant", b"9" * 400, b"9" * 39),
    "a float that is too large": ("v float", b"1e39", b"1e38"),
    "a number of seconds that wraps around": ("v timestamp", b"9223372036854775807", b"1700000000"),
    "a time without a day": ("v timestamp", b'"12:00"', b'"2024-01-01 12:00"'),
    "junk behind a day": ("v date", b'"2024-01-01 junk"', b'"2024-01-01"'),
    "inside an array": ("v array<double>", b"[1,1e400]", b"[1,1e300]"),
    "inside a map": ("v map<string,float>", b'{"a":1e39}', b'{"a":1e38}'),
    "inside a struct": ("v struct<w: array<struct<x: tinyint>>>", b'{"w":[{"x":200}]}', b'{"w":[{"x":100}]}'),
    "a year at the end of it, elsewhere": ("v timestamp", b'"01:00"', b'"2023-12-31T23:00:00-05:00"'),
}


@pytest.mark.parametrize(("schema", "bad", "good"), ALTERED.values(), ids=ALTERED)
def test_a_value_that_the_parser_would_alter_is_rejected(
    spark: SparkSession, schema: str, bad: bytes, good: bytes
) -> None:
    decoding = Transform(spark, {"decode": "json", "schema": schema})
    assert decoding.verdicts(b'{"v":' + bad + b"}", b'{"v":' + good + b"}") == ["MessageDeserialization", DELIVERED]


def test_a_name_in_escapes_hides_nothing(spark: SparkSession) -> None:
    decoding = Transform(spark, {"decode": "json", "schema": "v decimal(5,1), `a/b` decimal(5,1)"})
    bad = [b'{"\\u0076":"1,5","a/b":1}', b'{"v":1,"a\\/b":"1,5"}']
    assert decoding.verdicts(*bad, bad[0].replace(b'"1,5"', b"1.5")) == [*["MessageDeserialization"] * 2, DELIVERED]


def test_a_field_among_many_is_held_against_its_text_too(spark: SparkSession) -> None:
    names = [f"c{at}" for at in range(40)]
    decoding = Transform(spark, {"decode": "json", "schema": ", ".join(f"{name} decimal(5,1)" for name in names)})
    good = json.dumps(dict.fromkeys(names, 1.5)).encode()
    assert decoding.verdicts(good, good.replace(b'"c39": 1.5', b'"c39": "1,5"')) == [
        DELIVERED,
        "MessageDeserialization",
    ]


def test_a_null_is_a_value_like_any_other(spark: SparkSession) -> None:
    kinds = ["tinyint", "decimal(5,1)", "date", "timestamp", "variant", "array<string>", "struct<x: float>"]
    decoding = Transform(
        spark, {"decode": "json", "schema": ", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds))}
    )
    nulls = ",".join(f'"c{at}":null' for at in range(len(kinds)))
    assert decoding.verdicts(f"{{{nulls}}}".encode(), f'{{"\\u0020":1e999,{nulls}}}'.encode()) == [DELIVERED] * 2


def test_records_that_look_plain_fare_as_if_they_did_not(spark: SparkSession, strict: Transform) -> None:
    """Over the whole corpus: what is told at a glance is what all the checks say."""
    told = Transform(spark, {"decode": "json", "schema": corpus.SCHEMA}, told=True)
    records = [*corpus.BAD.values(), *(record for record, _ in corpus.FINE.values()), corpus.GOOD]

    assert [(item.verdict, item.row) for item in told.raw(*records)] == [
        (item.verdict, item.row) for item in strict.raw(*records)
    ]
