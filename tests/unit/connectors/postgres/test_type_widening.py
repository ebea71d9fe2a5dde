"""PostgreSQL types that contain all values of another type, and types to which a column must not be changed."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.connectors.postgres.column_types import SPARK_TYPES, null_type, spark_type
from airflow_provider_ckpt.connectors.postgres.type_widening import can_store, is_wider


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("smallint", "integer"),
        ("smallint", "bigint"),
        ("integer", "bigint"),
        ("real", "double precision"),
        ("character varying(8)", "character varying(9)"),
        ("character varying(8)", "character varying"),
        ("character varying(8)", "text"),
        ("character varying", "text"),
        ("numeric(6,2)", "numeric(7,2)"),
        ("numeric(6,2)", "numeric(8,4)"),
        ("numeric(6,2)", "numeric"),
        ("date", "timestamp without time zone"),
        ("date", "timestamp(3) without time zone"),
    ],
)
def test_a_wider_type_has_all_values_and_the_way_back_is_none(before: str, after: str) -> None:
    assert is_wider(before, after)
    assert can_store(after, before)
    if (before, after) != ("character varying", "text"):  # these two have the same values
        assert not is_wider(after, before)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("integer", "smallint"),
        ("integer", "integer"),
        ("integer", "real"),
        ("bigint", "double precision"),
        ("numeric(6,2)", "numeric(7,3)x"),
        ("numeric(6,2)", "numeric(7,4)"),
        ("numeric(6,2)", "numeric(6,3)"),
        ("numeric", "numeric(38,10)"),
        ("text", "character varying(100)"),
        ("character varying(8)", "character varying(8)"),
        ("character(8)", "text"),
        ("date", "timestamp with time zone"),
        ("timestamp without time zone", "timestamp with time zone"),
        ("integer[]", "bigint[]"),
        ("mood", "text"),
    ],
)
def test_any_other_change_is_not_wider(before: str, after: str) -> None:
    assert not is_wider(before, after)


def test_text_stores_what_each_type_reads_as_and_nothing_narrower_does() -> None:
    assert can_store("text", "mood")
    assert can_store("bigint", "bigint")
    assert not can_store("integer", "bigint")
    assert not can_store("character varying(8)", "mood")


@pytest.mark.parametrize(
    ("type_sql", "spark"),
    [
        ("integer", "int"),
        ("character varying(20)", "string"),
        ("timestamp(3) with time zone", "timestamp"),
        ("timestamp without time zone", "timestamp_ntz"),
        ("numeric(6,2)", "string"),
        ("integer[]", "string"),
        ('"a type"', "string"),
    ],
)
def test_the_spark_type_follows_from_the_name_of_the_type(type_sql: str, spark: str) -> None:
    assert spark_type(type_sql) == spark


def test_a_null_of_each_spark_type_has_a_postgresql_type_that_is_read_as_it() -> None:
    assert {SPARK_TYPES[null_type(spark)] for spark in SPARK_TYPES.values()} == set(SPARK_TYPES.values())
