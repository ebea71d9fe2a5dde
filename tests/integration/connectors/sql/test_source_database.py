"""The look at a MariaDB server finds its tables, and those that have something to plan or to refuse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from airflow_provider_ckpt.connectors.database_protocol import TableProgress
from airflow_provider_ckpt.connectors.source_plan import PlanRequest, RangeToPlan
from airflow_provider_ckpt.connectors.sql.source import SqlSource
from airflow_provider_ckpt.connectors.sql.source_database import SqlSourceDatabase
from airflow_provider_ckpt.core.errors import ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import START
from tests.integration.connectors.sql.sql_support import MariaDb, Sqlite, pipeline

REPLACED = {"type": "postgres", "connection": "warehouse", "table": "copied", "mode": "replace"}


@pytest.fixture
def look(mariadb: MariaDb) -> Iterator[SqlSourceDatabase]:
    """The server as the source of many tables."""
    with closing(SqlSourceDatabase(mariadb.connection)) as opened:
        yield opened


def planned(mariadb: MariaDb, name: str, cursor: str = "id", **source: str) -> TableProgress:
    """Return the progress of a pipeline that has planned all of a table."""
    made = pipeline(name, source={"table": f"{mariadb.name}.{name}", "cursor": cursor, **source})
    with closing(SqlSource(made, mariadb.connection)) as opened:
        partition = opened.partitions()[0]
        first = opened.plan(PlanRequest([RangeToPlan(partition.id, START)], None, 10**6))
    end = max((batch.range.end for batch in first.batches), default=START)
    return TableProgress(made, end, first.states.get(partition.id), partition.identity)


def test_the_catalog_has_tables_with_columns_and_keys_and_nothing_else(
    mariadb: MariaDb, look: SqlSourceDatabase
) -> None:
    mariadb.execute(
        "CREATE TABLE `Odd.name` (b int, a int, PRIMARY KEY (a, b))",
        "CREATE TABLE plain (id int, note text)",
        "CREATE VIEW seen AS SELECT * FROM plain",
        "CREATE TABLE ckpt_sink_receipt (id int)",
        "CREATE TABLE ckpt_stage_7_0123456789abcdef_plain (id int)",
    )

    catalog = look.read_catalog()

    found = [table for table in catalog if table.schema == mariadb.name]
    assert [(table.name, table.reference, table.columns, table.key) for table in found] == [
        ("Odd.name", f'{mariadb.name}."Odd.name"', ("b", "a"), ("a", "b")),
        ("plain", f"{mariadb.name}.plain", ("id", "note"), ()),
    ]
    assert not {"mysql", "information_schema", "performance_schema", "sys"} & {table.schema for table in catalog}


def test_a_table_with_history_is_a_table(mariadb: MariaDb, look: SqlSourceDatabase) -> None:
    mariadb.execute(
        "CREATE TABLE source (id int PRIMARY KEY, v int)",
        "INSERT INTO source VALUES (1, 1)",
        "ALTER TABLE source ADD SYSTEM VERSIONING",
        "UPDATE source SET v = 2",
    )

    [found] = [table for table in look.read_catalog() if table.schema == mariadb.name]

    assert (found.name, found.columns, found.key) == ("source", ("id", "v"), ("id",))
    assert look.count_new_records([planned(mariadb, "source")]) == {}


def test_a_table_has_news_until_all_of_it_is_planned(mariadb: MariaDb, look: SqlSourceDatabase) -> None:
    mariadb.execute(
        "CREATE TABLE source (id int AUTO_INCREMENT PRIMARY KEY, v int)",
        "INSERT INTO source (v) SELECT seq FROM seq_1_to_30",
        "CREATE TABLE empty (id int PRIMARY KEY)",
    )
    done, empty = planned(mariadb, "source"), planned(mariadb, "empty")
    fresh = TableProgress(done.pipeline)

    assert look.count_new_records([fresh]) == {"source": 30}
    assert look.count_new_records([done, empty]) == {}
    mariadb.execute("INSERT INTO source (v) VALUES (1), (2)", "INSERT INTO empty VALUES (-7)")
    assert look.count_new_records([done, empty]) == {"source": 2, "empty": 1}


def test_what_the_next_planning_would_refuse_is_news(mariadb: MariaDb, look: SqlSourceDatabase) -> None:
    mariadb.execute(
        "CREATE TABLE back (id int AUTO_INCREMENT PRIMARY KEY)",
        "INSERT INTO back VALUES (1), (2), (3)",
        "CREATE TABLE unset (id int, KEY (id))",
        "INSERT INTO unset VALUES (1)",
        "CREATE TABLE dropped (id int PRIMARY KEY)",
        "INSERT INTO dropped VALUES (1)",
    )
    back, unset, dropped = (planned(mariadb, name) for name in ("back", "unset", "dropped"))
    late = planned(mariadb, "back", late_rows="recover")
    assert look.count_new_records([back, unset, dropped]) == {}

    mariadb.execute("TRUNCATE back", "INSERT INTO unset VALUES (NULL)", "DROP TABLE dropped")

    assert look.count_new_records([back, unset, dropped]) == {"back": 0, "unset": 0, "dropped": 0}
    assert look.count_new_records([late]) == {}, "its planning warns and refuses nothing"


def test_a_table_that_is_copied_as_a_whole_always_has_news(mariadb: MariaDb, look: SqlSourceDatabase) -> None:
    mariadb.execute(
        "CREATE TABLE source (code varchar(2))",
        "INSERT INTO source SELECT 'x' FROM seq_1_to_3",
        "CREATE TABLE empty (v int)",
    )
    full = [
        pipeline(name, source={"table": f"{mariadb.name}.{name}", "cursor": "", "mode": "full"}, sink=REPLACED)
        for name in ("source", "empty")
    ]

    assert look.count_new_records([TableProgress(made, 2) for made in full]) == {"source": 3, "empty": 0}


def test_a_table_of_another_server_has_news(mariadb: MariaDb, look: SqlSourceDatabase) -> None:
    mariadb.execute("CREATE TABLE source (id int PRIMARY KEY)", "INSERT INTO source VALUES (1)")
    done = planned(mariadb, "source")

    assert look.count_new_records([replace(done, identity=f"another/{mariadb.name}.source")]) == {"source": 0}


def test_a_database_whose_tables_cannot_be_listed_is_refused(sqlite: Sqlite) -> None:
    refused = pytest.raises(ConfigError, match="SQLite cannot be the source of many tables")
    with closing(SqlSourceDatabase(sqlite.connection)) as opened, refused:
        opened.read_catalog()


def test_a_server_that_does_not_answer_is_an_outage(mariadb: MariaDb) -> None:
    nowhere = replace(mariadb.connection, port=1)

    with closing(SqlSourceDatabase(nowhere)) as opened, pytest.raises(SourceError) as caught:
        opened.count_new_records([TableProgress(pipeline())])
    assert caught.value.is_outage
