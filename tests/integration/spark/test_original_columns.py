"""The columns of a rejected row survive the conversion to text and back, for every type and value."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_provider_ckpt.connectors.arrow_types import to_arrow
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.spark.sql import quote
from airflow_provider_ckpt.spark.transform import original_columns

VALUES: dict[str, list[Any]] = {
    "boolean": [True, False, None],
    "tinyint": [-128, 127, None],
    "smallint": [-32768, 32767, None],
    "int": [-(2**31), 2**31 - 1, None],
    "bigint": [-(2**63), 2**63 - 1, None],
    "float": [1.5, -0.0, float("inf"), 3.4028234663852886e38, 1.401298464324817e-45, None],
    "double": [0.1, -0.0, float("-inf"), 1.7976931348623157e308, 5e-324, None],
    "decimal(38,18)": [Decimal("12345678901234567890.123456789012345678"), Decimal("-1E-18"), Decimal(0), None],
    "decimal(9,0)": [Decimal(999999999), None],
    "string": ["", 'a"\\\n\0', "\u00e9\U0001f600", "null", None],
    "binary": [b"", b"\x00\xff\x80", None],
    "date": [date(1, 1, 1), date(1582, 10, 15), date(9999, 12, 31), None],
    "timestamp": [datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 3, 29, 2, 30, 0, 123456, UTC), None],
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_come_back_as_they_went_in(spark: SparkSession, kind: str) -> None:
    shape = RecordShape(False, [("n", "int"), ("the column", kind)])
    values = VALUES[kind]
    wanted = to_arrow(kind)
    table = pa.table({"n": pa.array(range(len(values)), pa.int32()), "the column": pa.array(values, wanted)})

    text = original_columns.packed_sql(shape, quote, included=False)
    rows = spark.createDataFrame(table).selectExpr(f"{text} AS packed", "n").orderBy("n").toArrow()
    found = original_columns.unpack(pa.concat_arrays(rows.column("packed").chunks), shape)

    assert list(map(repr, found.field(1).to_pylist())) == list(map(repr, pa.array(values, wanted).to_pylist()))
    assert [field.type for field in found.type] == [pa.int32(), wanted]


@pytest.mark.parametrize("kind", ["array<int>", "map<string,int>", "struct<a:int>", "timestamp_ntz"])
def test_a_type_without_a_form_leaves_a_struct(kind: str) -> None:
    shape = RecordShape(False, [("n", "int"), ("c", kind)])

    assert original_columns.packed_sql(shape, quote, included=False) == "struct(`n` AS `n`, `c` AS `c`)"


def test_what_is_kept_of_every_record_is_a_struct() -> None:
    shape = RecordShape(False, [("n", "int")])

    assert (
        original_columns.packed_sql(shape, quote, included=True),
        original_columns.placeholder_sql(shape, included=True),
    ) == (
        "struct(`n` AS `n`)",
        "NULL",
    )
