"""Logs and events contain none of the record's values that PostgreSQL's error messages quote."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.postgres.client import without_values
from tests.integration.connectors.postgres.test_writer import Lane, delivered, error_of
from tests.services.tables import execute

SECRET = "4111-1111"
QUOTING: dict[str, tuple[str, Any, str, str]] = {
    "no uuid": ("uuid", SECRET, "22P02", "x"),
    "no JSON": ("jsonb", f'{{"card": "{SECRET}', "22P02", "x"),
    "no day": ("date", f"2024-02-30 {SECRET}", "22007", "x"),
    "no value of an enum": ("mood", SECRET, "22P02", "x"),
    "quotes and lines in the value": ("uuid", f'a"b"{SECRET}\n"{SECRET}', "22P02", "x"),
    "too long": ("varchar(3)", SECRET, "22001", "x"),
    "cut without a word": ("varchar(3)", f"{SECRET[:3]} ", "22000", "x"),
    "rounded without a word": ("numeric(4,1)", "411.123", "22000", "x"),
    "a key that is there": ("text UNIQUE", "", "23505", "target_x_key"),
    "a check": (f"text CHECK (x <> '{SECRET}')", SECRET, "23514", "target_x_check"),
}


@pytest.mark.parametrize(("column", "value", "state", "named"), QUOTING.values(), ids=QUOTING)
def test_without_dead_letters_the_error_names_the_column_and_not_the_value(
    postgres_database: str, column: str, value: str, state: str, named: str
) -> None:
    execute(postgres_database, "CREATE TYPE mood AS ENUM ('ok')", f"CREATE TABLE target (id int, x {column})")
    with Lane(postgres_database, dead_letter_queue={"enabled": False}) as lane:
        outcome = lane.send(id=["7"], x=[value]) if value else lane.send(id=["7", "8"], x=[SECRET, SECRET])

        error = error_of(outcome)
        assert not any(part in f"{error.message}{error.trace}" for part in (SECRET, "411.123", "411 "))
        assert f'"{named}"' in error.message or f"column {named}" in error.message
        assert "position" in error.message or "cannot be delivered" in error.message
        assert lane.rows() == []
    assert state


@pytest.mark.parametrize("dead_letters", [True, False])
def test_an_error_of_the_whole_batch_does_not_quote_a_value(postgres_database: str, *, dead_letters: bool) -> None:
    execute(
        postgres_database,
        "CREATE TABLE target (x text)",
        "CREATE FUNCTION parse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM NEW.x::uuid; RETURN NULL; END'",
        "CREATE CONSTRAINT TRIGGER t AFTER INSERT ON target DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION parse()",
    )
    with Lane(postgres_database, dead_letter_queue={"enabled": dead_letters}) as lane:
        outcome = lane.send(x=[SECRET])

        assert SECRET not in str(outcome.error)


def test_a_dead_letter_says_what_postgresql_said(postgres_database: str) -> None:
    execute(postgres_database, "CREATE TABLE target (x uuid)")
    with Lane(postgres_database) as lane:
        assert delivered(lane.send(x=pa.array([SECRET])))

        assert execute(lane.dsn, "SELECT error FROM ckpt_sink_dead_letter") == [
            (f'invalid input syntax for type uuid: "{SECRET}"',)
        ]


@pytest.mark.parametrize(
    ("message", "state", "shown"),
    [
        ('invalid input syntax for type integer: "abc"', "22P02", "invalid input syntax for type integer: …"),
        ('value "70000" is out of range for type smallint', "22003", "value … is out of range for type smallint"),
        ('malformed array literal: "a" and "b"', "22P02", "malformed array literal: …"),
        ('invalid input syntax for type uuid: "first line', "22P02", "invalid input syntax for type uuid: …"),
        ('invalid byte sequence for encoding "UTF8": 0xff 0xfe', "22021", "invalid byte sequence for encoding …: …"),
        ('relation "target" does not exist', "42P01", 'relation "target" does not exist'),
        ('violates check constraint "c"', "23514", 'violates check constraint "c"'),
    ],
)
def test_values_are_left_out_and_names_stay(message: str, state: str, shown: str) -> None:
    assert without_values(message, state) == shown
