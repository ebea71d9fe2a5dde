"""Tests of PostgreSQL targets that are refused before a run sends anything, and of rows that do not fit a target."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg2
import pytest

from airflow_provider_ckpt.connectors.postgres.schema_check import HAS_FILLING_TRIGGER, refuse_unsuitable_columns
from airflow_provider_ckpt.connectors.postgres.table import describe_table, psycopg_fetch
from airflow_provider_ckpt.core.errors import ConfigError

_TABLE = """
CREATE DOMAIN code AS text DEFAULT 'none';
CREATE TABLE target (
    id bigint NOT NULL, at timestamptz, amount numeric, tag uuid, name varchar(5),
    born timestamptz NOT NULL DEFAULT now(), n bigint GENERATED ALWAYS AS IDENTITY,
    twice bigint GENERATED ALWAYS AS (id * 2) STORED NOT NULL, kind code NOT NULL);
"""
_TRIGGER = """
CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.id := 7; RETURN NEW; END $$;
CREATE TRIGGER fill BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION fill();
"""


def _judge(dsn: str, columns: Sequence[tuple[str, str]], extra: str = "") -> None:
    connection = psycopg2.connect(dsn)
    try:
        with connection.cursor() as cursor:
            cursor.execute(_TABLE + extra)
        fetch = psycopg_fetch(connection)
        table = describe_table(fetch, "target")
        assert table is not None
        refuse_unsuitable_columns(
            table, columns, filled=bool(fetch(HAS_FILLING_TRIGGER, [table.oid])), pipeline="orders"
        )
    finally:
        connection.close()


def test_columns_that_are_demanded_are_enough(postgres_database: str) -> None:
    _judge(postgres_database, [("id", "bigint")])


def test_text_goes_into_what_spark_has_no_type_for(postgres_database: str) -> None:
    _judge(postgres_database, [("id", "int"), ("amount", "string"), ("tag", "string"), ("name", "string")])


def test_a_column_too_many_is_refused_with_those_there_are(postgres_database: str) -> None:
    with pytest.raises(ConfigError, match="no column nope; it has id, at, amount"):
        _judge(postgres_database, [("id", "bigint"), ("nope", "string")])


def test_a_column_that_the_target_demands_must_come(postgres_database: str) -> None:
    with pytest.raises(ConfigError, match=r"requires id \(NOT NULL, no default\); the rows have at"):
        _judge(postgres_database, [("at", "timestamp")])


def test_a_trigger_may_fill_what_the_rows_leave_out(postgres_database: str) -> None:
    _judge(postgres_database, [("at", "timestamp")], _TRIGGER)


def test_text_for_a_number_or_a_time_was_never_cast(postgres_database: str) -> None:
    with pytest.raises(ConfigError, match=r"text for id bigint, at timestamp with time zone.*Cast it"):
        _judge(postgres_database, [("id", "string"), ("at", "string")])
