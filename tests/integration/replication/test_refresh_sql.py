"""Refreshes of whole MariaDB and SQLite tables, each of which one query reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from airflow_provider_ckpt.connectors.sql import full_source
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.replication.run.halt import HaltError
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.run.summary import RunSummary
from tests.integration.connectors.sql.sql_support import Database, MariaDb, Sqlite
from tests.services.delta import read_delta
from tests.services.ledgers import make_ledger
from tests.services.mariadb import MariaDbServer
from tests.services.plain_engine import PlainEngine
from tests.services.postgres import PostgresServer
from tests.services.replication import DATABASE, Replication
from tests.services.tables import execute, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP = "shop"
POSTGRES = {"type": "postgres", "connection": DATABASE, "table": "copied"}


@pytest.fixture(params=["mariadb", "sqlite"])
def shop(request: pytest.FixtureRequest, mariadb_server: MariaDbServer, tmp_path: Path) -> Database:
    """A database with three countries, one of them twice: the table has no key."""
    found: Database = MariaDb(mariadb_server) if request.param == "mariadb" else Sqlite(tmp_path)
    found.execute(
        "CREATE TABLE countries (code varchar(2) NOT NULL, people bigint)",
        "INSERT INTO countries VALUES ('fr', 68), ('va', NULL), ('is', 0), ('is', 0)",
    )
    return found


@pytest.fixture
def countries(postgres_server: PostgresServer, postgres_database: str, shop: Database) -> Iterator[Replication]:
    """A pipeline that refreshes a table of PostgreSQL."""
    execute(postgres_database, "CREATE TABLE copied (code text NOT NULL, people bigint CHECK (people < 1000))")
    document = {
        "name": "countries",
        "source": {"type": "sql", "connection": SHOP, "table": "countries", "mode": "full"},
        "sink": {**POSTGRES, "mode": "replace"},
    }
    with make_ledger(postgres_server) as ledger:
        yield Replication(cast("SparkSession", None), ledger, postgres_database, document, {SHOP: shop.connection})


def refresh(countries: Replication) -> RunSummary:
    """One whole run without Spark."""
    return replicate(countries.setup(), PlainEngine())


def copied(countries: Replication) -> list[tuple[Any, ...]]:
    return execute(countries.dsn, "SELECT code, people FROM copied ORDER BY code")


def test_each_run_replaces_all_rows_by_those_of_the_table_or_view(countries: Replication, shop: Database) -> None:
    first = refresh(countries)
    before = copied(countries)
    shop.execute(
        "DELETE FROM countries WHERE code = 'is'",
        "UPDATE countries SET people = 69 WHERE code = 'fr'",
        "CREATE VIEW large AS SELECT code, people FROM countries WHERE people > 1",
    )
    second = refresh(countries)
    after = copied(countries)
    of_view = refresh(
        replace(countries, document={**countries.document, "name": "large"}).changed(
            source={**countries.document["source"], "table": "large"}
        )
    )

    assert (first.records, first.route) == (Counts(4, 4, 0, 0), ["done"])
    assert before == [("fr", 68), ("is", 0), ("is", 0), ("va", None)]
    assert (second.records, after) == (Counts(2, 2, 0, 0), [("fr", 69), ("va", None)])
    assert (of_view.records, copied(countries)) == (Counts(1, 1, 0, 0), [("fr", 69)])


def test_spark_transforms_what_is_read_into_a_lake(
    countries: Replication, shop: Database, spark: SparkSession, tmp_path: Path
) -> None:
    into_lake = replace(countries, spark=spark).changed(
        sink={"type": "delta", "path": str(tmp_path / "lake"), "connection": None, "table": None},
        transform={"where": "people is not null", "select": {"code": "upper(code)", "people": "people"}},
    )

    first = into_lake.run()
    shop.execute("UPDATE countries SET people = 69 WHERE code = 'fr'")
    into_lake.run()

    found = sorted((row["code"], row["people"]) for row in read_delta(tmp_path / "lake").to_pylist())
    assert first.records == Counts(4, 3, 1, 0)
    assert found == [("FR", 69), ("IS", 0), ("IS", 0)]


def test_a_row_that_the_target_refuses_is_a_dead_letter(countries: Replication, shop: Database) -> None:
    shop.execute("UPDATE countries SET people = 1400 WHERE code = 'va'")

    summary = refresh(countries)

    assert summary.records == Counts(4, 3, 0, 1)
    assert copied(countries) == [("fr", 68), ("is", 0), ("is", 0)]


def test_an_empty_table_is_held_and_replaces_nothing(countries: Replication, shop: Database) -> None:
    refresh(countries)
    shop.execute("DELETE FROM countries")

    summary = refresh(countries)

    assert summary.route == ["hold"]
    assert len(copied(countries)) == 4


def test_a_table_that_no_lane_could_hold_is_refused_before_anything_begins(
    countries: Replication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_source, "MAX_ROWS", 3)

    with pytest.raises(ConfigError, match="has more than 3 rows, and mode: full of a sql source reads all") as caught:
        refresh(countries)

    assert caught.value.pipeline == "countries"
    assert scalar(countries.dsn, "SELECT count(*) FROM pg_class WHERE relname LIKE 'ckpt_stage%'") == 0


def test_a_column_of_another_type_than_at_planning_is_refused(
    countries: Replication, shop: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AltersFirst(PlainEngine):
        def run(self, *arguments: Any, **named: Any) -> Any:
            if isinstance(shop, MariaDb):
                shop.execute("ALTER TABLE countries MODIFY people varchar(20)")
            else:
                shop.execute("DROP TABLE countries", "CREATE TABLE countries (code varchar(2), people text)")
            return super().run(*arguments, **named)

    with pytest.raises(HaltError, match=r"columns people of .*countries have other types than at planning"):
        replicate(countries.setup(), AltersFirst())

    assert copied(countries) == []
