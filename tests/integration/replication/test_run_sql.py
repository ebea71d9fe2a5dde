"""Runs with databases through SQLAlchemy: PostgreSQL to MariaDB, MariaDB to MariaDB, SQLite to PostgreSQL."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.core.action import ActionKind
from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.core.replayable_dead_letters import Selection
from airflow_provider_ckpt.replication.actions.dead_letters import make_action
from airflow_provider_ckpt.replication.actions.fenced_actions import apply_fenced_or_store
from tests.integration.connectors.sql.sql_support import MariaDb, Sqlite
from tests.services.mariadb import MariaDbServer
from tests.services.replication import Replication
from tests.services.tables import add_rows, execute, scalar

COLUMNS = """id bigint NOT NULL, customer int NOT NULL, amount double NOT NULL, created_at timestamp(6) NOT NULL,
    status varchar(20) NOT NULL, note text NOT NULL"""
SHOP = "shop"


@pytest.fixture
def shop(mariadb_server: MariaDbServer) -> MariaDb:
    """A database with an empty ``target`` for orders, without a key, so that a duplicate would show."""
    database = MariaDb(mariadb_server)
    database.execute(f"CREATE TABLE target ({COLUMNS})")
    return database


@pytest.fixture
def sold(orders: Replication, shop: MariaDb) -> Replication:
    """The orders, replicated from PostgreSQL to MariaDB."""
    sink = {"type": "sql", "connection": SHOP, "table": "target"}
    return replace(orders.changed(sink=sink), others={SHOP: shop.connection})


def dead_letters(shop: MariaDb) -> dict[int, dict[str, Any]]:
    """The rows that dead letters hold, by id."""
    found = [json.loads(row[0]) for row in shop.execute("SELECT value FROM ckpt_sink_dead_letter")]
    return {row["id"]: row for row in found}


def same_rows(dsn: str, shop: MariaDb, table: str = "target") -> bool:
    """Return whether a table of MariaDB has the rows of ``orders``, value by value."""
    names = "id, customer, amount, {at}, status, note"
    at = "to_char(created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"
    wanted = execute(dsn, f"SELECT {names.format(at=at)} FROM orders ORDER BY id")
    shown = "CONVERT_TZ(created_at, @@session.time_zone, '+00:00')"
    found = shop.execute(f"SELECT {names.format(at=f'CAST({shown} AS CHAR)')} FROM {table} ORDER BY id")
    return wanted == found


def test_every_row_of_postgresql_once_then_what_is_new_and_nothing_without_spark(
    sold: Replication, shop: MariaDb
) -> None:
    first = sold.run()
    assert first.records == Counts(1000, 1000, 0, 0)
    assert (first.batches, first.route) == (10, ["done"])
    assert same_rows(sold.dsn, shop)

    idle = sold.run()
    assert (idle.records, idle.spark_started) == (Counts(), False)

    add_rows(sold.dsn, "orders", 1001, 1251)
    assert sold.run().records == Counts(250, 250, 0, 0)
    assert same_rows(sold.dsn, shop)
    assert scalar(sold.dsn, "SELECT count(*) FROM orders") == 1250


def test_what_transform_and_target_refuse_becomes_dead_letters_and_is_replayed(
    sold: Replication, shop: MariaDb
) -> None:
    shop.execute("CREATE TABLE ratios (id bigint CHECK (id % 100 <> 7), ratio double)")
    pipeline = sold.changed(
        sink={"table": "ratios"},
        transform={"where": "id > 100", "select": {"id": "id", "ratio": "1000 / (id % 50)"}},
    )

    summary = pipeline.run()

    assert summary.records == Counts(1000, 873, 100, 27)
    assert summary.errors == {ErrorType.TRANSFORM_EVALUATION.value: 18, ErrorType.SINK.value: 9}
    assert sorted(dead_letters(shop)) == sorted([*range(150, 1001, 50), *range(107, 1001, 100)])
    shop.execute("CREATE OR REPLACE TABLE mended AS SELECT * FROM ratios")
    shop.execute("DROP TABLE ratios", "RENAME TABLE mended TO ratios")
    setup = pipeline.setup()
    action = make_action(setup, ActionKind.REPLAY_DEAD_LETTERS, Selection(types=frozenset({ErrorType.SINK})))
    apply_fenced_or_store(setup, action, actor="ann", reason="mended")
    assert pipeline.run().records == Counts(9, 9, 0, 0)
    assert shop.execute("SELECT COUNT(*) FROM ratios WHERE id % 100 = 7") == [(9,)]


def test_rows_of_mariadb_are_copied_and_a_zero_date_costs_its_row_only(sold: Replication, shop: MariaDb) -> None:
    sold.run()
    shop.execute("ALTER TABLE target ADD PRIMARY KEY (id), MODIFY created_at datetime(6)")
    with_zero = shop.server.open(shop.name)
    with_zero.cursor().execute("SET sql_mode = ''")
    with_zero.cursor().execute("UPDATE target SET created_at = '0000-00-00' WHERE id = 500")
    with_zero.close()
    shop.execute("CREATE TABLE copy LIKE target")
    place = {"type": "sql", "connection": SHOP}
    copy = sold.changed(name="copy", source={**place, "table": "target"}, sink={"table": "copy"})

    summary = copy.run()

    assert summary.records == Counts(1000, 999, 0, 1)
    assert list(dead_letters(shop)) == [500]
    differing = "SELECT id FROM target AS t WHERE NOT EXISTS (SELECT 1 FROM copy AS c WHERE c.id = t.id AND {same})"
    names = ("customer", "amount", "created_at", "status", "note")
    assert shop.execute(differing.format(same=" AND ".join(f"c.{n} <=> t.{n}" for n in names))) == [(500,)]


def test_rows_of_a_file_of_sqlite_reach_postgresql(orders: Replication, tmp_path: Path) -> None:
    file = Sqlite(tmp_path)
    file.execute(
        "CREATE TABLE sales (id INTEGER PRIMARY KEY AUTOINCREMENT, price DECIMAL(9,2), at DATETIME, what TEXT)",
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500) INSERT INTO sales "
        "SELECT i, i / 4.0, datetime(1700000000 + i, 'unixepoch'), CASE WHEN i <> 77 THEN 'it''s ' || i END FROM n",
    )
    execute(
        orders.dsn,
        "CREATE TABLE sales (id bigint, price numeric(9, 2), at timestamp, what text NOT NULL)",
    )
    source = {"type": "sql", "connection": SHOP, "table": "sales", "cursor": "id"}
    pipeline = replace(orders.changed(source=source, sink={"table": "sales"}), others={SHOP: file.connection})

    assert pipeline.run().records == Counts(500, 499, 0, 1)
    query = "SELECT count(DISTINCT id), sum(price), max(at)::text, min(what) FROM sales"
    assert [tuple(map(str, row)) for row in execute(orders.dsn, query)] == [
        ("499", str(sum(i for i in range(1, 501) if i != 77) / 4), "2023-11-14 22:21:40", "it's 1"),
    ]
    file.execute("INSERT INTO sales (price, what) VALUES (1, 'new')")
    assert pipeline.run().records == Counts(1, 1, 0, 0)
