"""A JSON record must be one strict JSON object that fits the schema; any other record is dead-lettered unchanged."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.integration.spark.judging import DELIVERED, Transform

SCHEMA = "id bigint, name string, x double"
GOOD = b'{"id":1,"name":"a","x":1.5}'
BAD = "MessageDeserialization"


@pytest.fixture(scope="module")
def strict(spark: SparkSession) -> Transform:
    """Decodes id, name and x."""
    return Transform(spark, {"decode": "json", "schema": SCHEMA})


def test_a_record_that_fits_is_delivered_with_its_values(strict: Transform) -> None:
    spaced, extra = b"  " + GOOD + b"\t", b'{"x":1e2,"more":[1,{"y":null}],"name":"\\u00e9","id":-7}'
    judged = strict.raw(GOOD, spaced, extra)
    assert [item.verdict for item in judged] == [DELIVERED] * 3
    assert [item.row for item in judged[1:]] == [{"id": 1, "name": "a", "x": 1.5}, {"id": -7, "name": "é", "x": 100.0}]


NOT_ONE_OBJECT = {
    "trailing text": GOOD + b" x",
    "two objects": GOOD + GOOD,
    "two with a comma": GOOD + b"," + GOOD,
    "closes the array it is checked in": b"1],[2",
    "trailing zero byte": GOOD + b"\x00",
    "empty": b"",
    "blank": b"  ",
    "cut": GOOD[:-4],
    "byte order mark": b"\xef\xbb\xbf" + GOOD,
    "duplicate key": b'{"id":1,"id":2,"name":"a","x":1}',
    "lone surrogate": b'{"id":1,"name":"\\ud800","x":1}',
    "NaN": b'{"id":1,"name":"a","x":NaN}',
    "Infinity": b'{"id":1,"name":"a","x":-Infinity}',
    "single quotes": b"{'id':1,'name':'a','x':1}",
    "trailing comma": b'{"id":1,"name":"a","x":1,}',
    "leading zero": b'{"id":01,"name":"a","x":1}',
    "comment": b"/*c*/" + GOOD,
    "raw newline in a string": b'{"id":1,"name":"a\nb","x":1}',
    "array": b"[1]",
    "array of one object": b"[" + GOOD + b"]",
    "null": b"null",
    "number": b"5",
    "string": b'"s"',
}
WRONG_TYPE = {
    "text for a number": b'{"id":"abc","name":"a","x":1}',
    "digits in quotes for a number": b'{"id":"1","name":"a","x":1}',
    "empty text for a number": b'{"id":"","name":"a","x":1}',
    "fraction for a whole number": b'{"id":1.5,"name":"a","x":1}',
    "true for a number": b'{"id":true,"name":"a","x":1}',
    "more than 64 bits": b'{"id":99999999999999999999,"name":"a","x":1}',
    "text for a double": b'{"id":1,"name":"a","x":"1.5"}',
}


def test_what_is_not_one_strict_object_is_rejected(strict: Transform) -> None:
    judged = strict.raw(*NOT_ONE_OBJECT.values())
    assert {name: item.verdict for name, item in zip(NOT_ONE_OBJECT, judged, strict=True)} == dict.fromkeys(
        NOT_ONE_OBJECT, BAD
    )


def test_a_value_of_another_type_is_rejected(strict: Transform) -> None:
    judged = strict.raw(*WRONG_TYPE.values())
    assert {name: item.verdict for name, item in zip(WRONG_TYPE, judged, strict=True)} == dict.fromkeys(WRONG_TYPE, BAD)


def test_a_rejected_record_keeps_its_bytes_and_says_why(strict: Transform) -> None:
    cut, latin = b'{"id":1,"na', b'{"id":1,"name":"caf\xe9","x":1}'
    judged = strict.raw(cut, latin, GOOD)
    assert [item.original for item in judged] == [{"value": cut}, {"value": latin}, None]
    assert [item.message for item in judged] == ["not one JSON object that fits the schema", "not valid UTF-8", None]
    assert judged[0].row == {"id": None, "name": None, "x": None}


@pytest.mark.parametrize("bad", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
def test_bytes_that_are_not_utf_8_are_rejected(strict: Transform, bad: bytes) -> None:
    assert strict.verdicts(b'{"id":1,"name":"' + bad + b'","x":1}') == [BAD]


def test_a_missing_field_is_told_from_a_null_one(strict: Transform) -> None:
    missing, null, other_case = b'{"id":1,"name":"a"}', b'{"id":1,"name":null,"x":null}', b'{"ID":1,"name":"a","x":1}'
    assert strict.verdicts(missing, null, other_case) == ["JsonPathNotFound", DELIVERED, "JsonPathNotFound"]


@pytest.mark.parametrize(
    ("missing_field", "null_value", "expected"),
    [
        ("error", "passthrough", ["JsonPathNotFound", DELIVERED]),
        ("error", "error", ["JsonPathNotFound", "Processing"]),
        ("error", "skip", ["JsonPathNotFound", "filtered"]),
        ("null", "passthrough", [DELIVERED, DELIVERED]),
        ("null", "error", ["Processing", "Processing"]),
        ("null", "skip", ["filtered", "filtered"]),
        ("skip", "passthrough", ["filtered", DELIVERED]),
        ("skip", "error", ["filtered", "Processing"]),
        ("skip", "skip", ["filtered", "filtered"]),
    ],
)
def test_missing_and_null_fields_are_handled_as_declared(
    spark: SparkSession, missing_field: str, null_value: str, expected: list[str | None]
) -> None:
    handling = {"missing_field_behavior": missing_field, "null_value_behavior": null_value}
    lenient = Transform(spark, {"decode": "json", "schema": "id bigint, name string"}, error_handling=handling)
    missing, null, whole = b'{"id":1}', b'{"id":1,"name":null}', b'{"id":1,"name":""}'
    assert lenient.verdicts(missing, null, whole) == [*expected, DELIVERED]


NESTED: dict[str, Any] = {
    "at": "2024-01-02T03:04:05+02:00",
    "day": "2024-02-29",
    "paid": True,
    "price": 1.25,
    "tags": ["a", None],
    "actor": {"id": 7, "roles": [{"name": "x"}]},
}


@pytest.fixture(scope="module")
def nested(spark: SparkSession) -> Transform:
    """Decodes dates, decimals, arrays and structs."""
    schema = (
        "at timestamp, day date, paid boolean, price decimal(5,2), tags array<string>, "
        "actor struct<id: int, roles: array<struct<name: string>>>"
    )
    return Transform(spark, {"decode": "json", "schema": schema})


def test_nested_values_arrive_whole(nested: Transform) -> None:
    (judged,) = nested.raw(json.dumps(NESTED).encode())
    assert judged.row == {
        "at": dt.datetime(2024, 1, 2, 1, 4, 5),
        "day": dt.date(2024, 2, 29),
        "paid": True,
        "price": Decimal("1.25"),
        "tags": ["a", None],
        "actor": {"id": 7, "roles": [{"name": "x"}]},
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"at": "2024-13-01T00:00:00Z"},
        {"day": "2023-02-29"},
        {"paid": "true"},
        {"price": 99999},
        {"tags": "a"},
        {"actor": {"id": "x", "roles": []}},
        {"actor": [1]},
        {"actor": {"id": 1, "roles": [{"name": "x"}, 5]}},
    ],
    ids=str,
)
def test_a_wrong_value_anywhere_inside_rejects_the_record(nested: Transform, wrong: dict[str, Any]) -> None:
    assert nested.verdicts(json.dumps({**NESTED, **wrong}).encode()) == [BAD]


def test_a_record_of_ten_megabytes_is_delivered(strict: Transform) -> None:
    (judged,) = strict.raw(b'{"id":1,"name":"' + b"a" * (10 << 20) + b'","x":1}')
    assert (judged.verdict, len(judged.row["name"])) == (DELIVERED, 10 << 20)


def test_nesting_too_deep_for_the_parser_costs_only_the_record(strict: Transform) -> None:
    records = [b'{"id":1,"name":"a","x":1,"deep":' + b"[" * depth + b"]" * depth + b"}" for depth in (500, 5000)]
    assert strict.verdicts(*records, GOOD) == [DELIVERED, BAD, DELIVERED]


def test_a_column_may_be_called_as_the_source_calls_its_own(spark: SparkSession) -> None:
    same = Transform(spark, {"decode": "json", "schema": "key string, value string", "where": "value <> 'x'"})
    judged = same.raw(b'{"key":"k","value":"v"}', b'{"key":"k","value":"x"}', b"{")
    assert [item.verdict for item in judged] == [DELIVERED, "filtered", BAD]
    assert judged[0].row == {"key": "k", "value": "v"}
    assert judged[2].original == {"value": b"{"}
