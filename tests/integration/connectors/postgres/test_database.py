"""The look at a PostgreSQL database finds its tables, and those that have something to plan or to refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_ckpt.connectors.database_protocol import TableProgress
from airflow_provider_ckpt.connectors.postgres.database import PostgresDatabase
from airflow_provider_ckpt.connectors.postgres.source import PostgresSource
from airflow_provider_ckpt.connectors.postgres.table import psycopg_fetch
from airflow_provider_ckpt.connectors.source_plan import PlanRequest, RangeToPlan
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.core.ranges import START
from tests.integration.connectors.postgres.postgres_support import connection, pipeline
from tests.services.tables import execute


@pytest.fixture
def database(postgres_database: str) -> Iterator[PostgresDatabase]:
    """The test's database as the source of many tables."""
    with closing(PostgresDatabase(connection(postgres_database))) as opened:
        yield opened


def table(name: str, cursor: str = "id", **progress: Any) -> TableProgress:
    return TableProgress(pipeline(name, source={"table": name, "cursor": cursor}), **progress)


def planned(dsn: str, name: str, cursor: str = "id") -> TableProgress:
    """Return the progress of a pipeline that has planned all of a table."""
    made = pipeline(name, source={"table": name, "cursor": cursor})
    with closing(PostgresSource(made, connection(dsn))) as source:
        partition = source.partitions()[0].id
        first = source.plan(PlanRequest([RangeToPlan(partition, START)], None, 10**6))
        end = max((batch.range.end for batch in first.batches), default=START)
        request = PlanRequest([RangeToPlan(partition, end)], None, 10**6, states=first.states)
        return TableProgress(made, end, source.plan(request).states[partition])


def test_the_catalog_has_tables_with_columns_and_keys_and_nothing_else(
    postgres_database: str, database: PostgresDatabase
) -> None:
    execute(
        postgres_database,
        "CREATE SCHEMA sales",
        'CREATE TABLE sales."Odd.name" (b int, a int, PRIMARY KEY (a, b))',
        "CREATE TABLE plain (id int, note text, gone int)",
        "ALTER TABLE plain DROP gone",
        "CREATE TABLE parted (id int) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (1) TO (9)",
        "CREATE VIEW seen AS SELECT * FROM plain",
        "CREATE MATERIALIZED VIEW kept AS SELECT * FROM plain",
        "CREATE TABLE ckpt_sink_receipt (id int)",
        "CREATE TABLE ckpt_stage_7_plain (id int)",
        "INSERT INTO plain SELECT i, '' FROM generate_series(1, 7) AS i",
        "ANALYZE plain",
    )

    found = {item.label: item for item in database.read_catalog()}

    assert list(found) == ["public.parted", "public.plain", "sales.Odd.name"]
    assert (found["public.plain"].columns, found["public.plain"].rows) == (("id", "note"), 7)
    assert found["sales.Odd.name"].reference == 'sales."Odd.name"'
    assert found["sales.Odd.name"].key == ("a", "b")
    assert found["public.parted"].rows is None


def test_only_tables_with_new_rows_are_named_with_their_number(
    postgres_database: str, database: PostgresDatabase
) -> None:
    for name in ("quiet", "more", "fresh", "empty"):
        execute(postgres_database, f"CREATE TABLE {name} (id serial PRIMARY KEY, v int)")
    execute(postgres_database, *(f"INSERT INTO {name} (v) SELECT generate_series(1, 50)" for name in ("quiet", "more")))
    tables = [planned(postgres_database, name) for name in ("quiet", "more", "empty")]
    execute(
        postgres_database,
        "INSERT INTO more (v) SELECT generate_series(1, 3)",
        "INSERT INTO fresh (v) SELECT generate_series(1, 20)",
    )

    assert database.count_new_records([*tables, table("fresh")]) == {"more": 3, "fresh": 20}


@pytest.mark.parametrize(
    ("kind", "values", "following"),
    [
        ("timestamptz", "timestamptz '2024-01-01' + i * interval '1 s'", "timestamptz '2025-01-01'"),
        ("date", "date '2024-01-01' + i", "date '2025-01-01'"),
        ("bigint", "i * 1000", "99000"),
    ],
)
def test_any_cursor_is_looked_at(
    postgres_database: str, database: PostgresDatabase, kind: str, values: str, following: str
) -> None:
    execute(
        postgres_database,
        f"CREATE DOMAIN moment AS {kind}",
        "CREATE TABLE seen (at moment NOT NULL)",
        f"INSERT INTO seen SELECT {values} FROM generate_series(1, 20) AS i",
    )
    before = planned(postgres_database, "seen", "at")
    quiet = database.count_new_records([before])
    execute(postgres_database, f"INSERT INTO seen VALUES ({following})")

    assert quiet == {}
    assert database.count_new_records([before]) == {"seen": 1}


SIGNS: dict[str, list[str]] = {
    "its newest row was removed": ["DELETE FROM seen WHERE id = 50"],
    "all rows were rewritten": ["VACUUM FULL seen"],
    "it was emptied": ["TRUNCATE seen"],
    "it was made again": [
        "DROP TABLE seen",
        "CREATE TABLE seen (id serial PRIMARY KEY, v int)",
        "INSERT INTO seen (v) SELECT generate_series(1, 50)",
    ],
    "its sequence went back and a row is late": ["SELECT setval('seen_id_seq', 10)", "DELETE FROM seen WHERE id = 11",
                                                 "INSERT INTO seen (v) VALUES (1)"],
    "a child was added to it": ["CREATE TABLE child () INHERITS (seen)"],
}  # fmt: skip


@pytest.mark.parametrize("statements", SIGNS.values(), ids=SIGNS)
def test_whatever_planning_might_refuse_counts_as_news(
    postgres_database: str, database: PostgresDatabase, statements: list[str]
) -> None:
    execute(
        postgres_database,
        "CREATE TABLE seen (id serial PRIMARY KEY, v int)",
        "INSERT INTO seen (v) SELECT generate_series(1, 50)",
    )
    before = planned(postgres_database, "seen")
    assert database.count_new_records([before]) == {}
    execute(postgres_database, *statements)

    assert set(database.count_new_records([before])) == {"seen"}


def test_a_plan_that_ends_elsewhere_than_the_snapshot_is_compared_with_nothing(
    postgres_database: str, database: PostgresDatabase
) -> None:
    execute(postgres_database, "CREATE TABLE seen (id serial)", "INSERT INTO seen SELECT generate_series(1, 5)")
    before = planned(postgres_database, "seen")

    assert database.count_new_records([replace(before, planned_end=3)]) == {"seen": 3}
    full = pipeline("seen", source={"table": "seen", "cursor": "id", "mode": "full"}, sink={"mode": "replace"})
    assert set(database.count_new_records([replace(before, pipeline=full)])) == {"seen"}, "each run refreshes it"


def test_a_server_that_went_back_in_time_is_news(postgres_database: str, database: PostgresDatabase) -> None:
    execute(postgres_database, "CREATE TABLE seen (id serial)", "INSERT INTO seen SELECT generate_series(1, 5)")
    before = planned(postgres_database, "seen")
    assert before.state is not None
    before.state["snapshot"]["xid"] += 10**6

    assert set(database.count_new_records([before])) == {"seen"}


def test_a_table_that_cannot_be_looked_at_has_work_and_hides_no_other(
    postgres_database: str, database: PostgresDatabase
) -> None:
    for name in ("a", "endless", "b", "untyped"):
        execute(postgres_database, f"CREATE TABLE {name} (id {'text' if name == 'untyped' else 'timestamp'} NOT NULL)")
    execute(
        postgres_database,
        *(f"INSERT INTO {name} VALUES ('2024-01-01')" for name in ("a", "b")),
        "INSERT INTO endless VALUES ('2024-01-01')",
    )
    tables = [planned(postgres_database, name) for name in ("a", "endless", "b")]
    execute(postgres_database, "INSERT INTO endless VALUES ('infinity')", "INSERT INTO b VALUES ('2024-02-01')")

    found = database.count_new_records([*tables, table("gone"), table("untyped")])

    assert found == {"endless": 0, "b": 1, "gone": 0, "untyped": 0}


def test_the_number_of_statements_does_not_depend_on_that_of_the_tables(
    postgres_database: str, database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{number}" for number in range(60)]
    execute(
        postgres_database,
        *(f"CREATE TABLE {name} (id serial PRIMARY KEY)" for name in names),
        *(f"INSERT INTO {name} DEFAULT VALUES" for name in names),
    )
    tables = [planned(postgres_database, name) for name in names]
    statements = _counted(monkeypatch)

    assert database.count_new_records(tables) == {}
    assert statements() <= 10


def _counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that returns how many statements the database has run since."""
    counts: list[str] = []

    def counting(client: Any) -> Any:
        fetch = psycopg_fetch(client)

        def run(statement: str, values: Any) -> Any:
            counts.append(statement)
            return fetch(statement, values)

        return run

    monkeypatch.setattr("airflow_provider_ckpt.connectors.postgres.database.psycopg_fetch", counting)
    return lambda: len(counts)


def test_a_server_that_is_away_is_an_error_of_the_whole(postgres_database: str) -> None:
    away = PostgresDatabase(connection(postgres_database, port=1))

    with pytest.raises(SourceError, match="cannot connect"):
        away.read_catalog()
