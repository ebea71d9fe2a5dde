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
}


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
