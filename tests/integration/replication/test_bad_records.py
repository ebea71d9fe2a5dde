"""Rows that violate a constraint of the target, 50 of 100,000, become dead letters; all others are delivered."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.replication.run.summary import RunSummary
from tests.services.ledgers import make_ledger
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication, orders_pipeline
from tests.services.tables import execute, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 100_000
NOT_NULL, CHECK, UNIQUE, TOO_LONG, OVERFLOW = "23502", "23514", "23505", "22001", "22003"
BAD = {
    **dict.fromkeys(range(1, ROWS, ROWS // 10), NOT_NULL),
    **dict.fromkeys(range(2, ROWS, ROWS // 10), CHECK),
    **dict.fromkeys(range(3, ROWS, ROWS // 10), UNIQUE),
    **dict.fromkeys(range(4, ROWS, ROWS // 10), TOO_LONG),
    **dict.fromkeys(range(50_005, 50_015), OVERFLOW),
}
"""Ids of the bad rows with the SQLSTATE that PostgreSQL gives; ten of each kind, the last kind in a row."""

SPOILT = {
    NOT_NULL: "name = NULL",
    CHECK: "quantity = -id",
    UNIQUE: "code = 'taken'",
    TOO_LONG: "name = repeat('é', 21)",
    OVERFLOW: "price = 12345678.90",
}


@pytest.fixture(scope="module")
def delivery(spark: SparkSession, postgres_server: PostgresServer) -> Iterator[tuple[Replication, RunSummary]]:
    """The pipeline and the summary of its one run."""
    dsn = postgres_server.new_database()
    execute(
        dsn,
        """
        CREATE TABLE items (
            id bigint PRIMARY KEY, name text, quantity bigint, code text, price numeric, at timestamptz
        )
        """,
        f"""
        INSERT INTO items
        SELECT i, 'näme "' || i || E'"\\n', i % 100, 'c' || i, i / 4.0, timestamptz '2024-01-01Z' + i * interval '1 ms'
        FROM generate_series(1, {ROWS}) AS i
        """,
        *(
            f"UPDATE items SET {change} WHERE id IN ({', '.join(str(i) for i, kind in BAD.items() if kind == state)})"
            for state, change in SPOILT.items()
        ),
        """
        CREATE TABLE stock (
            id bigint PRIMARY KEY, name varchar(20) NOT NULL, quantity bigint CHECK (quantity >= 0),
            code text UNIQUE, price numeric(8, 2), at timestamptz
        )
        """,
        "INSERT INTO stock VALUES (0, 'first', 0, 'taken', 0, now())",
    )
    with make_ledger(postgres_server) as ledger:
        replication = Replication(spark, ledger, dsn, orders_pipeline(source="items", target="stock"))
        replication = replication.changed(commit_strategy={"commit_interval": 10_000})
        yield replication, replication.run()


def _letters(replication: Replication) -> dict[int, dict[str, Any]]:
    """The dead letters by position."""
    rows = execute(
        replication.dsn,
        "SELECT position, value, error_type, sqlstate, error FROM ckpt_sink_dead_letter ORDER BY position",
    )
    return {
        position: {"value": json.loads(bytes(value)), "type": kind, "sqlstate": state, "message": message}
        for position, value, kind, state, message in rows
    }


def test_all_rows_but_the_bad_ones_are_delivered(delivery: tuple[Replication, RunSummary]) -> None:
    replication, summary = delivery
    assert summary.records == Counts(ROWS, ROWS - 50, 0, 50)
    assert summary.route == ["dead_letters", "done"]
    delivered = "SELECT count(*) FROM stock JOIN items USING (id) WHERE stock.price = items.price"
    assert scalar(replication.dsn, delivered) == 99_950
    bad = list(BAD)
    assert scalar(replication.dsn, "SELECT count(*) FROM stock WHERE id = ANY(%s)", [bad]) == 0


def test_each_bad_row_has_one_dead_letter_with_its_position_and_sqlstate(
    delivery: tuple[Replication, RunSummary],
) -> None:
    dead_letters = _letters(delivery[0])
    assert {position: dead_letter["sqlstate"] for position, dead_letter in dead_letters.items()} == BAD
    assert {dead_letter["type"] for dead_letter in dead_letters.values()} == {ErrorType.SINK.value}
    assert delivery[1].errors == {ErrorType.SINK.value: 50}


def test_a_dead_letter_carries_its_row_unchanged(delivery: tuple[Replication, RunSummary]) -> None:
    replication, _ = delivery
    columns = "id, name, quantity, code, price::text, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"
    rows = execute(replication.dsn, f"SELECT {columns} FROM items WHERE id = ANY(%s)", parameters=[list(BAD)])
    originals = {row[0]: row for row in rows}

    dead_letters = _letters(replication)

    assert dead_letters.keys() == originals.keys()
    for position, dead_letter in dead_letters.items():
        value = dead_letter["value"]
        at = value["at"].replace("T", " ").removesuffix("+00:00")
        found = (value["id"], value["name"], value["quantity"], value["code"], value["price"])
        assert (*found, at.ljust(20, ".").ljust(26, "0") if len(at) < 26 else at) == originals[position]


def test_every_kind_of_constraint_was_broken_ten_times(delivery: tuple[Replication, RunSummary]) -> None:
    kinds = Counter(dead_letter["sqlstate"] for dead_letter in _letters(delivery[0]).values())
    assert kinds == dict.fromkeys((NOT_NULL, CHECK, UNIQUE, TOO_LONG, OVERFLOW), 10)


def test_a_second_run_sends_nothing_again(delivery: tuple[Replication, RunSummary]) -> None:
    replication, _ = delivery
    assert replication.run().records == Counts()
    assert scalar(replication.dsn, "SELECT count(*) FROM ckpt_sink_dead_letter") == 50
