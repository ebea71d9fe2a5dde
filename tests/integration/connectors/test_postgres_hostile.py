"""Values that PostgreSQL refuses for what they are: each costs its row, whichever class its error has."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.integration.connectors.test_postgres_writer import Lane, delivered, target
from tests.services.postgres import PostgresServer
from tests.services.tables import execute, scalar

DEEP = "[" * 100_000 + "]" * 100_000
REFUSED = {
    "NUL in a text": ("t text", pa.array(["a", "a\x00b", "c"]), "22021"),
    "NUL in JSON": ("t jsonb", pa.array(['"a"', '"\\u0000"', '"c"']), "22P05"),
    "half a surrogate pair in JSON": ("t jsonb", pa.array(['"a"', '"\\ud800"', '"c"']), "22P02"),
    "JSON that is nested too deep": ("t jsonb", pa.array(["1", DEEP, "3"]), "54001"),
    "JSON as text that is nested too deep": ("t json", pa.array(["1", DEEP, "3"]), "54001"),
    "a text too large for its index": ("t text UNIQUE", pa.array(["a", None, "c"]), "54000"),
    "a number out of range": ("t numeric(4, 2)", pa.array([1.0, 1e300, 3.0]), "22003"),
    "infinity for a numeric": ("t numeric(4, 2)", pa.array([1.0, float("inf"), 3.0]), "22003"),
    "a day after the last": ("t date", pa.array([0, 2**31 - 1, 1], pa.date32()), "22008"),
    "a day before the first": ("t date", pa.array([0, -(2**31), 1], pa.date32()), "22008"),
    "a time before the first": ("t timestamp", pa.array([0, -(10**18), 1], pa.timestamp("us")), "22008"),
    "a time that would wrap around": ("t timestamptz", pa.array([0, -(2**63), 1], pa.timestamp("us", "UTC")), "22008"),
}
ENDLESS_DAYS = [0, -(2**31) + 10_956, -(2**31) + 10_957, 1]
ENDLESS_TIMES = [-1, -(2**63) + 946_684_799_999_999, -(2**63) + 946_684_800_000_000, 1]


@pytest.mark.parametrize(("column", "values", "state"), REFUSED.values(), ids=REFUSED)
def test_a_value_that_postgres_refuses_costs_its_row(
    postgres_database: str, column: str, values: pa.Array, state: str
) -> None:
    if values.null_count:
        large = scalar(postgres_database, "SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1000) AS i")
        values = pa.array([large if value is None else value for value in values.to_pylist()])
    with Lane(target(postgres_database, f"id int, {column}")) as lane:
        assert delivered(lane.send(id=pa.array([1, 2, 3]), t=values))
        assert lane.rows("id") == [(1,), (3,)]
        assert lane.letters() == [(1, state)]
        assert lane.receipts[0].counts.dead_lettered == 1


def test_days_and_times_beside_a_bad_value_arrive_as_they_are_and_infinity_too(postgres_database: str) -> None:
    """As the driver reads infinity, and minus infinity, from another PostgreSQL."""
    columns = "id int, day date, at timestamp, zoned timestamptz, bad jsonb"
    with Lane(target(postgres_database, columns)) as lane:
        outcome = lane.send(
            id=pa.array([1, 2, 3, 4]),
            day=pa.array(ENDLESS_DAYS, pa.date32()),
            at=pa.array(ENDLESS_TIMES, pa.timestamp("us")),
            zoned=pa.array(ENDLESS_TIMES, pa.timestamp("us", "UTC")),
            bad=pa.array(["1", "2", "3", "no JSON"]),
        )
        assert delivered(outcome)
        assert execute(
            postgres_database, "SET timezone = 'UTC'; SELECT day::text, at::text, zoned::text FROM target"
        ) == [
            ("1970-01-01", "1969-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999+00"),
            ("infinity", "infinity", "infinity"),
            ("-infinity", "-infinity", "-infinity"),
        ]
        assert lane.letters() == [(3, "22P02")]


def test_a_text_that_the_target_s_encoding_does_not_have_costs_its_row(postgres_server: PostgresServer) -> None:
    template = postgres_server.new_database()
    execute(template, "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    dsn = template.rpartition("/")[0] + "/latin"
    with Lane(target(dsn, "id int, t text")) as lane:
        assert delivered(lane.send(id=pa.array([1, 2, 3]), t=pa.array(["é", "€ ✓", "c"])))
        assert execute(dsn, "SELECT id, encode(convert_to(t, 'UTF8'), 'hex') FROM target ORDER BY id") == [
            (1, "c3a9"),
            (3, "63"),
        ]
        assert lane.letters() == [(1, "22P05")]


def test_what_a_trigger_raises_is_told_though_another_row_is_bad(postgres_database: str) -> None:
    execute(
        postgres_database,
        "CREATE TABLE target (id int, t text NOT NULL)",
        """
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF NEW.t = 'never' THEN RAISE EXCEPTION 'no thanks'; END IF;
            RETURN NEW;
        END $$
        """,
        "CREATE TRIGGER refuse BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    with Lane(postgres_database) as lane:
        outcome = lane.send(id=pa.array([1, 2, 3]), t=pa.array([None, "never", "c"]))

        assert outcome.error is not None
        assert outcome.error.sqlstate == "P0001"
        assert outcome.error.message.endswith(" to public.target: no thanks")
