"""A CSV record (RFC 4180) must have exactly the schema's fields; any other record is dead-lettered unchanged."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.integration.spark.judging import DELIVERED, Transform

SCHEMA = "id bigint, name string, x double"
BAD = "MessageDeserialization"


@pytest.fixture(scope="module")
def csv(spark: SparkSession) -> Transform:
    """Decodes id, name and x."""
    return Transform(spark, {"decode": "csv", "schema": SCHEMA})


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (b"1,a,2", "a"),
        (b"1, a ,2", " a "),
        (b'"1","a,b","2"', "a,b"),
        (b'1,"a\nb",2', "a\nb"),
        (b'1,"a\r\nb",2', "a\r\nb"),
        (b'1,"say ""hi"", ok",2', 'say "hi", ok'),
        (b'1,"""",2', '"'),
        (b'1,"back\\slash\\",2', "back\\slash\\"),
        (b'1,six" nails,2', 'six" nails'),
        (b"1,null,2", "null"),
        ("1,é,2".encode(), "é"),
        (b"1,,2", None),
    ],
)
def test_a_field_arrives_as_it_was_meant(csv: Transform, record: bytes, name: str | None) -> None:
    (judged,) = csv.raw(record)
    assert (judged.verdict, judged.row) == (DELIVERED, {"id": 1, "name": name, "x": 2.0})


WRONG = {
    "too few fields": b"1,a",
    "too many fields": b"1,a,2,3",
    "a delimiter too many at the end": b"1,a,2,",
    "empty line": b"",
    "text for a number": b"one,a,2",
    "spaces around a number": b" 1 ,a,2",
    "fraction for a whole number": b"1.0,a,2",
    "more than 64 bits": b"99999999999999999999,a,2",
    "quotes not closed": b'1,"a,2',
    "not UTF-8": b"1,\xff,2",
    "another delimiter": b"1;a;2",
}


def test_what_does_not_fit_the_schema_is_rejected_with_its_bytes(csv: Transform) -> None:
    judged = csv.raw(*WRONG.values())
    assert {name: item.verdict for name, item in zip(WRONG, judged, strict=True)} == dict.fromkeys(WRONG, BAD)
    assert [item.original for item in judged] == [{"value": record} for record in WRONG.values()]


@pytest.mark.parametrize("delimiter", [";", "\t", "|", "'", "\\"])
def test_the_delimiter_is_the_declared_one(spark: SparkSession, delimiter: str) -> None:
    other = Transform(spark, {"decode": "csv", "schema": SCHEMA, "delimiter": delimiter})
    (judged,) = other.raw(f"1{delimiter}a,b{delimiter}2".encode())
    assert judged.row == {"id": 1, "name": "a,b", "x": 2.0}


def test_an_empty_line_of_a_single_column_is_a_null(spark: SparkSession) -> None:
    single = Transform(spark, {"decode": "csv", "schema": "n int"})
    judged = single.raw(b"", b"5", b"5,6")
    assert [item.verdict for item in judged] == [DELIVERED, DELIVERED, BAD]
    assert [item.row["n"] for item in judged] == [None, 5, None]


def test_null_fields_are_handled_as_declared(spark: SparkSession) -> None:
    careful = Transform(spark, {"decode": "csv", "schema": SCHEMA}, error_handling={"null_value_behavior": "error"})
    assert careful.verdicts(b"1,a,2", b"1,,2", b"1") == [DELIVERED, "Processing", BAD]
