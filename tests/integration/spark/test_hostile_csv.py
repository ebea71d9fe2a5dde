"""Hostile CSV records: a record that Python's csv module refuses is rejected with its bytes; others arrive whole."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.integration.spark.judging import DELIVERED, Transform

SCHEMA = "id bigint, name string, x double"

BAD = {
    "text behind a closing quote": b'1,"a"b,2',
    "text behind an empty quoted field": b'1,""a,2',
    "a space behind a closing quote": b'1,"a" ,2',
    "a carriage return behind a closing quote": b'1,"a"\r,2',
    "a space behind the last closing quote": b'1,a,"2" ',
    "quotes never closed, at the end": b'1,a,"2',
    "quotes never closed, at the beginning": b'"1,a,2',
    "quotes never closed, in the middle": b'1,"a,2',
    "nothing but quotes": b'"' * 30_001,
    "two records": b"1,a,2\n3,b,4",
    "more fields than the parser bears": b"," * 30_000,
    "a record and more fields than the parser bears": b"1,a,2" + b"," * 30_000,
    "U+FFFF, where the parser would stop": "1,a,2\uffff3,b,4".encode(),
    "U+FFFF in a field": "1,a\uffffb,2".encode(),
    "a byte order mark": b"\xef\xbb\xbf1,a,2",
    "1e400": b"1,a,1e400",
    "-1e400": b"1,a,-1e400",
    "a double with Java's letter": b"1,a,1d",
    "a float with Java's letter": b"1,a,1f",
    "a hexadecimal number": b"1,a,0x1p4",
    "spaces around a double": b"1,a, 1.5 ",
    "NUL alone": b"\x00",
    "NUL for a number": b"\x00,a,2",
    "UTF-16": "1,a,2".encode("utf-16"),
    "0xff": b"\xff" * 100,
    "ten megabytes of nothing": b"\x00" * (10 << 20),
    "ten megabytes of a quoted field that is not closed": b'1,"' + b"a" * (10 << 20),
}

FINE = {
    "NUL in a text": (b"1,a\x00b,2", (1, "a\x00b", 2.0)),
    "a bare quote in a field": (b'1,six" nails,2', (1, 'six" nails', 2.0)),
    "doubled quotes beside delimiters": (b'1,"a,""b""",2', (1, 'a,"b"', 2.0)),
    "a newline in quotes": (b'1,"a\nb",2', (1, "a\nb", 2.0)),
    "a carriage return": (b"1,a\rb,2", (1, "a\rb", 2.0)),
    "nothing at all, three times": (b",,", (None, None, None)),
    "not a number": (b"1,a,Infinity", (1, "a", float("inf"))),
    "minus infinity": (b"1,a,-Inf", (1, "a", float("-inf"))),
    "a quoted number": (b'1,a,"1.5e3"', (1, "a", 1500.0)),
    "a number without a whole part": (b"1,a,-.5", (1, "a", -0.5)),
    "nothing in quotes, which is null": (b'1,"",2', (1, None, 2.0)),
    "a long field": (b"1," + b"a" * 100_000 + b",2", (1, "a" * 100_000, 2.0)),
    "many delimiters in quotes": (b'1,"' + b"a," * 50_000 + b'",2', (1, "a," * 50_000, 2.0)),
    "ten megabytes": (b"1," + b"a" * (10 << 20) + b",2", (1, "a" * (10 << 20), 2.0)),
}


@pytest.fixture(scope="module")
def csv(spark: SparkSession) -> Transform:
    """Decodes id, name and x."""
    return Transform(spark, {"decode": "csv", "schema": SCHEMA})


def test_what_is_hostile_is_rejected_with_its_bytes(csv: Transform) -> None:
    judged = csv.raw(*BAD.values())
    assert [name for name, item in zip(BAD, judged, strict=True) if item.verdict is DELIVERED] == []
    assert [name for name, item in zip(BAD, judged, strict=True) if item.original != {"value": BAD[name]}] == []


def test_what_is_only_odd_arrives_whole(csv: Transform) -> None:
    judged = csv.raw(*[record for record, _ in FINE.values()])
    wrong = [
        name
        for (name, (_, row)), item in zip(FINE.items(), judged, strict=True)
        if (item.verdict, tuple(item.row.values())) != (DELIVERED, row)
    ]
    assert wrong == []


ALTERED = {
    "a decimal with a comma": ("v decimal(10,2)", b"1,5", b"1.5"),
    "a decimal with a comma in quotes": ("v decimal(10,2)", b'"1.234,50"', b'"1234.50"'),
    "a float that is too large": ("v float", b"1e39", b"1e38"),
    "a number of days": ("v date", b"42", b"2024-1-5"),
    "junk behind a day": ("v date, e string", b"2024-01-15 xx;2024-01-15", b"2024-01-15;2024-01-15 xx"),
    "a time that is none behind a day": ("v date", b"2024-01-15 99:99", b"2024-01-15 23:59"),
    "a time without a day": ("v timestamp", b"12:00", b"2024-01-15 12:00"),
    "a time without a day or a zone": ("v timestamp_ntz", b"12:00", b"2024-01-15"),
}


@pytest.mark.parametrize(("schema", "bad", "good"), ALTERED.values(), ids=ALTERED)
def test_a_value_that_the_parser_would_alter_is_rejected(
    spark: SparkSession, schema: str, bad: bytes, good: bytes
) -> None:
    decoding = Transform(spark, {"decode": "csv", "schema": schema, "delimiter": ";"})
    assert decoding.verdicts(bad, good) == ["MessageDeserialization", DELIVERED]
