"""Conversion between Spark's types and Arrow's, and the types that have no counterpart."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.arrow_types import to_arrow, to_spark


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("BIGINT", "bigint"),
        ("integer", "int"),
        ("varchar(10)", "string"),
        ("decimal", "decimal(10,0)"),
        ("numeric(5)", "decimal(5,0)"),
        ("dec(9, 2)", "decimal(9,2)"),
        ("timestamp_ltz", "timestamp"),
        ("array< map<string, double> >", "array<map<string,double>>"),
        ("STRUCT<a: int, `b``c d` timestamp_ntz NOT NULL>", "struct<a:int,`b``c d`:timestamp_ntz>"),
    ],
)
def test_a_type_goes_to_arrow_and_comes_back_in_its_short_form(written: str, canonical: str) -> None:
    assert to_spark(to_arrow(written)) == canonical


@pytest.mark.parametrize("text", ["", "bigit", "int int", "array<int", "array<>", "map<int>", "struct<>", "struct<a>"])
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Spark SQL type"):
        to_arrow(text)


def test_an_unsigned_number_gets_a_type_that_holds_all_of_it() -> None:
    kinds = (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())

    assert [to_spark(kind) for kind in kinds] == ["smallint", "int", "bigint", "decimal(20,0)"]


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.duration("s"), pa.null(), pa.struct([]), pa.decimal256(60, 2)])
def test_what_spark_cannot_hold_is_named(kind: pa.DataType) -> None:
    with pytest.raises(ValueError, match="Spark SQL has no type for"):
        to_spark(pa.list_(kind))
