"""Values that PostgreSQL refuses: only the row with such a value is rejected, whatever the error's class."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.integration.connectors.postgres.test_writer import Lane, delivered, target
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
        assert lane.dead_letters() == [(1, state)]
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
        assert lane.dead_letters() == [(3, "22P02")]


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
        assert lane.dead_letters() == [(1, "22P05")]


def test_what_a_trigger_raises_for_one_row_costs_that_row_and_for_all_the_batch(postgres_database: str) -> None:
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
        assert delivered(lane.send(id=pa.array([1, 2, 3]), t=pa.array([None, "never", "c"])))
        assert (lane.rows("id"), lane.dead_letters()) == ([(3,)], [(0, "23502"), (1, "P0001")])

        outcome = lane.send(id=pa.array([1, 2]), t=pa.array([None, "never"]))

        assert outcome.error is not None
        assert outcome.error.sqlstate == "P0001"
        assert outcome.error.message.endswith(" to public.target: no thanks")


_ASSERTING = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.id = 7 THEN {raised}; END IF;
    RETURN NEW;
END $$
"""


@pytest.mark.parametrize(
    ("raised", "state"),
    [
        ("RAISE EXCEPTION 'no thanks'", "P0001"),
        ("ASSERT false, 'no thanks'", "P0004"),
        ("RAISE EXCEPTION 'no thanks' USING ERRCODE = 'ZX001'", "ZX001"),
        ("RAISE EXCEPTION 'no thanks' USING ERRCODE = '45000'", "45000"),
    ],
)
@pytest.mark.parametrize("timing", ["BEFORE INSERT", "AFTER INSERT"])
@pytest.mark.parametrize("sink", [{}, {"mode": "upsert", "key": ["id"]}], ids=["append", "upsert"])
def test_a_row_for_which_a_trigger_raises_costs_itself(
    postgres_database: str, raised: str, state: str, timing: str, sink: dict[str, Any]
) -> None:
    execute(
        postgres_database,
        "CREATE TABLE target (id int PRIMARY KEY)",
        _ASSERTING.format(raised=raised),
        f"CREATE TRIGGER refuse {timing} ON target FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    with Lane(postgres_database, sink=sink) as lane:
        assert delivered(lane.send(id=pa.array(range(200), pa.int32())))

        assert lane.dead_letters() == [(7, state)]
        assert lane.rows("count(*)") == [(199,)]


def test_a_row_that_a_deferred_trigger_refuses_costs_itself(postgres_database: str) -> None:
    execute(
        postgres_database,
        "CREATE TABLE target (id int)",
        _ASSERTING.format(raised="RAISE 'no thanks'"),
        "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON target DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    with Lane(postgres_database) as lane:
        assert delivered(lane.send(id=pa.array(range(20), pa.int32())))

        assert lane.dead_letters() == [(7, "P0001")]


def test_a_value_that_a_domain_s_function_refuses_costs_its_row(postgres_database: str) -> None:
    execute(
        postgres_database,
        "CREATE FUNCTION is_fit(v text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN"
        " IF v = 'bad' THEN RAISE 'not %', v; END IF; RETURN true; END $$",
        "CREATE DOMAIN fit AS text CHECK (is_fit(VALUE))",
        "CREATE TABLE target (id int, t fit)",
    )
    with Lane(postgres_database) as lane:
        assert delivered(lane.send(id=pa.array([1, 2, 3]), t=pa.array(["a", "bad", "c"])))

        assert (lane.rows("id"), lane.dead_letters()) == ([(1,), (3,)], [(1, "P0001")])


@pytest.mark.parametrize(
    ("column", "good", "bad", "state"),
    [
        ("hstore", "a=>1", "a=>", "XX000"),
        ("ltree", "a.b", "a..b", "42601"),
        ("tsquery", "a & b", "a & & b", "42601"),
        ("tsvector", "a b", "'a", "42601"),
        ("jsonpath", "$.a", "$.a[", "42601"),
        ("regclass", "pg_class", "nothing", "42P01"),
        ("regtype", "int4", "nothing", "42704"),
        ("regrole", "pg_monitor", "nothing", "42704"),
        ("regprocedure", "abs(int4)", "nothing(int4)", "42883"),
        ("regnamespace", "public", "nothing", "3F000"),
        ("regclass[]", "{pg_class}", "{nothing}", "42P01"),
    ],
)
@pytest.mark.parametrize("enabled", [True, False])
def test_a_text_that_its_type_cannot_read_costs_its_row(
    postgres_database: str, column: str, good: str, bad: str, state: str, enabled: bool
) -> None:
    execute(
        postgres_database,
        "CREATE EXTENSION hstore",
        "CREATE EXTENSION ltree",
        f"CREATE TABLE target (id int, x {column})",
    )
    with Lane(postgres_database, dead_letter_queue={"enabled": enabled}) as lane:
        outcome = lane.send(id=pa.array([*range(20)], pa.int32()), x=pa.array([*[good] * 12, bad, *[good] * 7]))
        if enabled:
            alone = lane.send(id=pa.array([99], pa.int32()), x=pa.array([bad]))
            assert (delivered(outcome), delivered(alone)) == (True, True)
            assert lane.dead_letters() == [(0, state), (12, state)]
            assert len(lane.rows("id")) == 19
        else:
            assert outcome.error is not None
            assert "column x" in outcome.error.message
            assert '"nothing' not in outcome.error.message


@pytest.mark.parametrize(
    ("broken", "state"),
    [
        ("PERFORM NEW.nothing", "42703"),
        ("PERFORM * FROM nothing", "42P01"),
        ("PERFORM nothing(1)", "42883"),
        ("EXECUTE 'SELEC'", "42601"),
        ("RAISE 'no' USING ERRCODE = '42501'", "42501"),
    ],
)
def test_a_trigger_that_is_broken_for_one_row_still_fails_the_batch(
    postgres_database: str, broken: str, state: str
) -> None:
    execute(
        postgres_database,
        "CREATE TABLE target (id int, kind regclass)",
        _ASSERTING.format(raised=broken),
        "CREATE TRIGGER refuse BEFORE INSERT ON target FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    with Lane(postgres_database) as lane:
        outcome = lane.send(id=pa.array(range(20), pa.int32()), kind=pa.array(["pg_class"] * 20))

        assert outcome.error is not None
        assert outcome.error.sqlstate == state
        assert (lane.rows(), lane.dead_letters()) == ([], [])
