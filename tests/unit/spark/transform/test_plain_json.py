"""Only records that every parser reads alike are recognised as flat JSON."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from airflow_provider_ckpt.spark.transform.plain_json import FlatJsonDecoder
from tests.hostile import corpus
from tests.hostile.judge import row_of

_OF_CORPUS = (("id", t.LongType()), ("name", t.StringType()), ("x", t.DoubleType()))


def looked_at(records: list[bytes], *fields: tuple[str, t.DataType]) -> list[bool]:
    return [row is not None for row in decoded(records, *fields)]


def decoded(records: list[bytes], *fields: tuple[str, t.DataType]) -> list[dict[str, object] | None]:
    plain = FlatJsonDecoder.of([t.StructField(*field) for field in fields or _OF_CORPUS])
    assert plain is not None
    found: list[dict[str, object] | None] = plain.decoded(pa.array(records, pa.binary())).to_pylist()
    return found


@pytest.mark.parametrize(
    "record",
    [
        b'{"id":1,"name":"a","x":1.5}',
        b'{"id": -1, "name": "a, b: {c} [d] caf\xc3\xa9", "x": -0.25}',
        b'{ "id" : null ,\t"name":null,"x":null }\r',
        b'{"id":123456789012345678,"name":"","x":0}',
    ],
)
def test_what_programs_write_is_plain(record: bytes) -> None:
    assert looked_at([record]) == [True]


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"{}",
        b'{"id":1,"name":"a"}',
        b'{"name":"a","id":1,"x":1.5}',
        b'{"id":1,"name":"a","x":1.5,"y":1}',
        b'{"id":1,"id":1,"name":"a","x":1.5}',
        b'{"ID":1,"name":"a","x":1.5}',
        b'{"id":1,"name":"\\u0041","x":1.5}',
        b'{"id":1,"name":"a\tb","x":1.5}',
        b'{"id":1,"name":12.50,"x":1.5}',
        b'{"id":01,"name":"a","x":1.5}',
        b'{"id":1.0,"name":"a","x":1.5}',
        b'{"id":1,"name":"a","x":1e400}',
        b'{"id":1,"name":"a","x":NaN}',
        b'{"id":1,"name":"a","x":1.5} {}',
        b'{"id":1,"name":"a","x":1.5}\n{"id":1,"name":"a","x":1.5}',
        b' {"id":1,"name":"a","x":1.5}',
        b'{"id":1234567890123456789,"name":"a","x":1.5}',
    ],
)
def test_whatever_might_be_wrong_is_not(record: bytes) -> None:
    assert looked_at([record]) == [False]


def _utf8(record: bytes) -> bool:
    try:
        record.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


_NUMBERS = st.integers(-(10**20), 10**20) | st.floats(allow_nan=True)
_VALUES = st.none() | st.booleans() | _NUMBERS | st.text(max_size=5) | st.lists(st.integers(), max_size=2)


@given(
    st.lists(st.sampled_from(["id", "name", "x", "ID"]), min_size=2, max_size=4),
    st.lists(_VALUES, min_size=4, max_size=4),
    st.binary(max_size=2),
    st.integers(0, 60),
)
def test_a_plain_record_is_what_a_strict_parser_says(
    names: list[str], values: list[object], scrap: bytes, at: int
) -> None:
    members = (f"{json.dumps(name)}:{json.dumps(value)}" for name, value in zip(names, values, strict=False))
    record = ("{" + ",".join(members) + "}").encode()
    for candidate in (record, record[:at] + scrap + record[at:]):
        if looked_at([candidate]) == [True] and _utf8(candidate):
            row = row_of(candidate)
            assert row is not None
            assert row == json.loads(candidate)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (t.IntegerType(), b"999999999", True),
        (t.IntegerType(), b"2147483648", False),
        (t.ShortType(), b"9999", True),
        (t.ShortType(), b"32768", False),
        (t.BooleanType(), b"true", True),
        (t.BooleanType(), b'"true"', False),
        (t.DateType(), b'"2026-02-28"', True),
        (t.DateType(), b'"2026-02-30"', False),
        (t.DateType(), b'"2026-02-28junk"', False),
        (t.TimestampType(), b'"2026-02-28T23:59:59.123456Z"', True),
        (t.TimestampType(), b'"2026-02-28T23:59:59+05:30"', True),
        (t.TimestampType(), b'"2026-02-28T23:59:59"', False),
        (t.TimestampType(), b'"23:59"', False),
    ],
)
def test_values_of_a_type_that_can_hold_them(kind: t.DataType, value: bytes, expected: bool) -> None:
    assert looked_at([b'{"v":' + value + b"}"], ("v", kind)) == [expected]


@pytest.mark.parametrize(
    "field",
    [
        ("v", t.DecimalType(10, 2)),
        ("v", t.ArrayType(t.IntegerType())),
        ("v", t.BinaryType()),
        ("v", t.ByteType()),
        ("ä", t.IntegerType()),
        ('"', t.IntegerType()),
    ],
    ids=str,
)
def test_a_schema_with_other_types_or_names_has_no_plain_records(field: tuple[str, t.DataType]) -> None:
    assert FlatJsonDecoder.of([t.StructField(*field)]) is None


@pytest.mark.parametrize(("fields", "has"), [(19, True), (40, True), (100, False)])
def test_a_schema_too_wide_for_one_expression_has_no_plain_records(fields: int, has: bool) -> None:
    schema = [t.StructField(f"field_{number}", t.StringType()) for number in range(fields)]
    assert (FlatJsonDecoder.of(schema) is not None) == has


def test_only_hostile_records_that_are_not_utf8_can_look_plain() -> None:
    bad = list(corpus.BAD.values())
    assert [record for record, found in zip(bad, looked_at(bad), strict=True) if found and _utf8(record)] == []
