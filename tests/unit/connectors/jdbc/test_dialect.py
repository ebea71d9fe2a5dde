"""SQL of the jdbc source: names are quoted, positions are literals, and neither can inject SQL."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.connectors.jdbc.column_types import (
    MICROSECONDS_A_DAY,
    Column,
    CursorKind,
    DriverColumn,
)
from airflow_provider_ckpt.connectors.jdbc.dialect import Dialect, position_constant, split_name
from airflow_provider_ckpt.core.errors import ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import START, Range

POSTGRES, H2, MYSQL = Dialect("PostgreSQL", '"'), Dialect("H2", '"'), Dialect("MySQL", "`")
NOON = 12 * 3_600_000_000


@pytest.mark.parametrize(
    ("kind", "position", "sql"),
    [
        (CursorKind.NUMBER, -5, "-5"),
        (CursorKind.DATE, 0, "{d '1970-01-01'}"),
        (CursorKind.DATE, 1, "{d '1970-01-02'}"),
        (CursorKind.DATE, -MICROSECONDS_A_DAY, "{d '1969-12-31'}"),
        (CursorKind.TIMESTAMP, NOON + 1, "{ts '1970-01-01 12:00:00.000001'}"),
        (CursorKind.TIMESTAMP, -1, "{ts '1969-12-31 23:59:59.999999'}"),
        (CursorKind.TIMESTAMP, -62_135_596_800_000_000, "{ts '0001-01-01 00:00:00.000000'}"),
        (CursorKind.INSTANT, 0, "TIMESTAMP WITH TIME ZONE '1970-01-01 00:00:00.000000+00:00'"),
    ],
)
def test_a_position_as_a_constant(kind: CursorKind, position: int, sql: str) -> None:
    assert position_constant(kind, position) == sql


def test_a_position_that_no_time_has_is_refused() -> None:
    with pytest.raises(SourceError, match="outside the years 1 to 9999"):
        position_constant(CursorKind.TIMESTAMP, 2**62)


def test_a_range_is_half_open_and_has_no_lower_edge_where_it_begins_before_everything() -> None:
    assert H2.within(CursorKind.NUMBER, '"id"', Range(3, 7)) == '"id" >= 3 AND "id" < 7'
    assert H2.within(CursorKind.NUMBER, '"id"', Range(START, 7)) == '"id" < 7'


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("orders", ["orders"]),
        ("shop.orders", ["shop", "orders"]),
        ("db.shop.orders", ["db", "shop", "orders"]),
        ('"a.b"."c""d"', ["a.b", 'c"d']),
        ("we're {fine}?", ["we're {fine}?"]),
    ],
)
def test_a_table_s_name_has_up_to_three_parts(name: str, parts: list[str]) -> None:
    assert split_name(name) == parts


@pytest.mark.parametrize("name", ["", "a.b.c.d", "a..b", 'a"b', '"a', "a."])
def test_what_is_no_table_s_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not the name of a table"):
        split_name(name)


def test_names_are_quoted_as_the_driver_says() -> None:
    assert POSTGRES.table('a."b""c"') == '"a"."b""c"'
    assert MYSQL.quote("a`b") == "`a``b`"


def test_a_driver_that_cannot_quote_gets_plain_names_alone() -> None:
    none = Dialect("Flat", " ")

    assert none.quote("orders") == "orders"
    with pytest.raises(ConfigError, match="cannot quote"):
        none.quote("orders; DROP TABLE x")


def test_the_first_rows_are_asked_for_as_the_database_knows() -> None:
    assert POSTGRES.first(5) == "OFFSET 0 ROWS FETCH NEXT 5 ROWS ONLY"
    assert MYSQL.first(5) == "LIMIT 5"


def test_the_guard_s_quotes_cannot_be_closed_by_a_name() -> None:
    table = POSTGRES.table("it's $ckpt$; \\ x")

    guard = POSTGRES.guard(table, "1/2/77")

    assert guard is not None
    assert guard.count("$ckpt_$") == 2
    assert "E'\"it''s $ckpt$; \\\\\\\\ x\"'".replace("\\\\\\\\", "\\\\") in guard
    assert "77::oid" in guard
    assert H2.guard(table, "H2/x") is None


def told(code: int, kind: str = "", precision: int = 0, scale: int = 0, *, signed: bool = True) -> DriverColumn:
    return DriverColumn("c", code, kind, precision, scale, signed, True)


@pytest.mark.parametrize(
    ("of_driver", "spark", "foreign"),
    [
        (told(4, "INTEGER"), "int", False),
        (told(4, "INTEGER UNSIGNED", signed=False), "bigint", False),
        (told(-5, "BIGINT UNSIGNED", signed=False), "decimal(20,0)", False),
        (told(-6, "TINYINT"), "smallint", False),
        (told(2, "NUMERIC", 12, 2), "decimal(12,2)", False),
        (told(2, "NUMERIC", 0, 0), "string", False),
        (told(2, "NUMERIC", 5, -2), "string", False),
        (told(3, "DECIMAL", 39, 2), "string", False),
        (told(-7, "BIT", 1), "boolean", False),
        (told(-7, "BIT", 8), "string", True),
        (told(92, "TIME"), "string", True),
        (told(93, "TIMESTAMP"), "timestamp_ntz", False),
        (told(2014, "TIMESTAMP WITH TIME ZONE"), "timestamp", False),
        (told(-2, "UUID", 16), "string", True),
        (told(2003, "ARRAY"), "string", True),
    ],
)
def test_a_column_s_type(of_driver: DriverColumn, spark: str, foreign: bool) -> None:
    found = H2.column(of_driver)

    assert (found.spark, found.text_only) == (spark, foreign)


def test_types_of_postgres_that_its_driver_hides_behind_others_are_texts() -> None:
    assert POSTGRES.column(told(93, "timestamptz")).spark == "timestamp"
    assert POSTGRES.column(told(8, "money")).spark == "string"
    assert POSTGRES.column(told(-5, "oid")).spark == "string"
    assert POSTGRES.value(Column("a", "uuid", "string", True, True)) == 'CAST("a" AS text)'
    assert POSTGRES.value(Column("a", "text", "string", True, False)) == '"a"'


@pytest.mark.parametrize(
    ("of_driver", "kind"),
    [
        (told(5), CursorKind.NUMBER),
        (told(2, "", 18, 0), CursorKind.NUMBER),
        (told(2, "", 19, 0), None),
        (told(2, "", 18, 2), None),
        (told(91), CursorKind.DATE),
        (told(93), CursorKind.TIMESTAMP),
        (told(2014), CursorKind.INSTANT),
        (told(12), None),
        (told(8), None),
    ],
)
def test_what_can_be_a_cursor(of_driver: DriverColumn, kind: CursorKind | None) -> None:
    assert H2.column(of_driver).cursor is kind
