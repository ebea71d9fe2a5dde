"""A source table with row security policies: a run never takes the visible rows for all rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from airflow_provider_ckpt.connectors.database_protocol import TableProgress
from airflow_provider_ckpt.connectors.postgres.database import PostgresDatabase
from airflow_provider_ckpt.connectors.postgres.full_source import PostgresFullSource
from airflow_provider_ckpt.core.errors import CkptError, ConfigError
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.replicate import replicate
from tests.services.ledgers import make_ledger
from tests.services.plain_engine import PlainEngine
from tests.services.postgres import PostgresServer
from tests.services.replication import DATABASE, Replication, connection_to
from tests.services.tables import execute, make_source, make_target, scalar

ROWS = 100
POLICY = ("CREATE POLICY half ON source USING (id <= 50)", "ALTER TABLE source ENABLE ROW LEVEL SECURITY")


@pytest.fixture
def copied(postgres_server: PostgresServer, postgres_database: str) -> Iterator[Replication]:
    """100 rows that a role with no further rights reads, in batches of 10."""
    make_source(postgres_database, "source", ROWS)
    make_target(postgres_database, "target")
    role = f"{postgres_database.rpartition('/')[2]}_limited"
    execute(
        postgres_database,
        f"CREATE ROLE {role} LOGIN PASSWORD 'limited'",
        f"GRANT SELECT ON source TO {role}",
    )
    limited = postgres_server.database_dsn(postgres_database.rpartition("/")[2], role, "limited")
    document = {
        "name": "copied",
        "source": {"type": "postgres", "connection": "limited", "table": "source", "cursor": "id"},
        "sink": {"type": "postgres", "connection": DATABASE, "table": "target"},
        "commit_strategy": {"commit_interval": 10},
    }
    with make_ledger(postgres_server) as ledger:
        others = {"limited": connection_to(limited, "limited")}
        yield Replication(None, ledger, postgres_database, document, others)  # type: ignore[arg-type]


def rows(copied: Replication) -> int:
    """Return the number of rows in the target."""
    return int(scalar(copied.dsn, "SELECT count(*) FROM target"))


def test_a_table_of_which_a_policy_hides_rows_is_refused(copied: Replication) -> None:
    execute(copied.dsn, *POLICY)

    with pytest.raises(ConfigError, match=r"policies of public\.source apply .* 'limited'.* may be hidden"):
        replicate(copied.setup(), PlainEngine())

    assert rows(copied) == 0


def test_a_policy_that_comes_after_the_planning_hides_nothing(copied: Replication) -> None:
    with acquire(copied.setup()) as run:
        assert run.plan() == ROWS // 10
        execute(copied.dsn, *POLICY)
        with pytest.raises(CkptError, match="row-level security"):
            run.execute(PlainEngine(), rounds=False)
        run.finish()

    execute(copied.dsn, "ALTER TABLE source DISABLE ROW LEVEL SECURITY")
    replicate(copied.setup(), PlainEngine())
    assert rows(copied) == ROWS


def test_rows_that_policies_show_are_read_if_the_pipeline_asks_for_them(copied: Replication) -> None:
    execute(copied.dsn, *POLICY)

    replicate(copied.changed(source={"row_security": "apply"}).setup(), PlainEngine())

    assert rows(copied) == ROWS // 2


def test_a_refresh_is_refused_too(copied: Replication) -> None:
    execute(copied.dsn, *POLICY)
    full = copied.changed(source={"mode": "full"}, sink={"mode": "replace"})

    source = PostgresFullSource(full.pipeline, full.setup().connection("limited"))
    with closing(source), pytest.raises(ConfigError, match="may be hidden"):
        source.check()


def test_in_a_look_at_many_tables_such_a_table_has_news(copied: Replication) -> None:
    replicate(copied.setup(), PlainEngine())
    [record] = copied.ledger.partitions("copied").values()
    progress = TableProgress(copied.pipeline, record.partition.planned_end, record.state)
    with closing(PostgresDatabase(copied.setup().connection("limited"))) as database:
        quiet = database.count_new_records([progress])
        execute(copied.dsn, *POLICY)

        assert (quiet, database.count_new_records([progress])) == ({}, {"copied": 0})
