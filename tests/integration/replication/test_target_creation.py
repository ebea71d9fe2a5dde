"""``sink.create``: a run creates a missing target from the source's columns; without it, no target is created."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, cast

import psycopg2
import pytest

from airflow_provider_ckpt.connectors.postgres.connector import PostgresSinkSection
from airflow_provider_ckpt.connectors.postgres.sink import PostgresSink
from airflow_provider_ckpt.connectors.postgres.table import psycopg_fetch
from airflow_provider_ckpt.connectors.postgres.target_creation import TargetCreation
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.errors import ConfigError, SinkChangedError
from airflow_provider_ckpt.core.ranges import START
from airflow_provider_ckpt.core.schema_version import SourceColumn
from airflow_provider_ckpt.replication.actions import accept_sink
from airflow_provider_ckpt.replication.observe.preview import find_problems, preview
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.run.summary import RunSummary
from tests.services.ledgers import make_ledger
from tests.services.plain_engine import PlainEngine
from tests.services.postgres import PostgresServer
from tests.services.replication import DATABASE, Replication, connection_to
from tests.services.tables import execute, scalar

ROWS = 60
SOURCE = """
    CREATE TYPE mood AS ENUM ('sad', 'happy');
    CREATE DOMAIN percentage AS numeric(5, 2) CHECK (VALUE <= 100);
    CREATE TABLE items (id bigint PRIMARY KEY, "Two words" text NOT NULL DEFAULT 'x', size int, price numeric(10, 2),
        code varchar(20), tags int[], document jsonb, feeling mood, feelings mood[], part percentage,
        changed timestamptz, twice bigint GENERATED ALWAYS AS (size * 2) STORED)
"""
TYPES = {
    "id": "bigint", "Two words": "text", "size": "integer", "price": "numeric(10,2)", "code": "character varying(20)",
    "tags": "integer[]", "document": "jsonb", "feeling": "text", "feelings": "text", "part": "numeric(5,2)",
    "changed": "timestamp with time zone", "twice": "bigint",
}  # fmt: skip
TABLES = "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'warehouse'::regnamespace"


@pytest.fixture
def items(postgres_server: PostgresServer, postgres_database: str) -> Iterator[Replication]:
    """60 rows of many types, in batches of 10, and a pipeline whose target does not exist."""
    execute(postgres_database, SOURCE, "CREATE SCHEMA warehouse")
    insert(postgres_database, 1, ROWS)
    document = {
        "name": "items",
        "source": {"type": "postgres", "connection": DATABASE, "table": "items", "cursor": "id"},
        "sink": {"type": "postgres", "connection": DATABASE, "table": "warehouse.items", "create": True},
        "commit_strategy": {"commit_interval": 10},
    }
    with make_ledger(postgres_server) as ledger:
        yield Replication(cast("Any", None), ledger, postgres_database, document)


def insert(dsn: str, start: int, end: int) -> None:
    """Rows with ids from ``start`` to ``end``."""
    values = """i, 'n' || i, i, i / 8.0, 'c' || i, ARRAY[i, NULL], jsonb_build_object('i', i),
        CASE i % 2 WHEN 0 THEN 'sad' ELSE 'happy' END::mood, ARRAY['sad']::mood[], i, now()"""
    names = 'id, "Two words", size, price, code, tags, document, feeling, feelings, part, changed'
    execute(dsn, f"INSERT INTO items ({names}) SELECT {values} FROM generate_series({start}, {end}) AS i")


def run(items: Replication) -> RunSummary:
    """One whole run without Spark."""
    return replicate(items.setup(), PlainEngine())


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def differing(items: Replication) -> int:
    """Return the number of rows that only one of source and target has; values are compared as texts."""
    [source, target] = (f"SELECT t::text FROM {name} AS t" for name in ("items", "warehouse.items"))
    counts = f"SELECT (SELECT count(*) FROM ({source} EXCEPT ALL {target}) AS a)"
    return int(scalar(items.dsn, f"{counts} + (SELECT count(*) FROM ({target} EXCEPT ALL {source}) AS b)"))


def columns(items: Replication, table: str = "warehouse.items") -> dict[str, str]:
    """Return names and types of the target's columns."""
    found = execute(
        items.dsn,
        f"SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = '{table}'::regclass"
        " AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
    )
    return dict(found)


def test_the_target_has_the_columns_of_the_source(items: Replication) -> None:
    first = run(items)
    insert(items.dsn, ROWS + 1, ROWS + 10)
    second = run(items)

    assert (first.records.delivered, second.records.delivered) == (ROWS, 10)
    assert columns(items) == TYPES
    assert list(columns(items)) == list(TYPES)
    assert differing(items) == 0
    assert items.ledger.audit("items")["ok"]
    not_null = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'warehouse.items'::regclass AND attnum > 0"
    assert scalar(items.dsn, f"{not_null} AND attnotnull") == 0


def test_the_key_of_an_upsert_is_the_primary_key(items: Replication) -> None:
    upsert = items.changed(sink={"mode": "upsert", "key": ["id", "code"]}, source={"columns": ["id", "code", "size"]})

    run(upsert)

    assert list(columns(items)) == ["id", "size", "code"]
    key = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'p'"
    assert scalar(items.dsn, f"{key} AND conrelid = 'warehouse.items'::regclass") == "PRIMARY KEY (id, code)"
    assert scalar(items.dsn, "SELECT count(*) FROM warehouse.items") == ROWS


def test_a_refresh_creates_its_target_and_a_name_without_schema_is_of_the_search_path(items: Replication) -> None:
    document = {
        **items.document,
        "source": {"type": "postgres", "connection": DATABASE, "table": "items", "mode": "full"},
    }
    document["sink"] = {**items.document["sink"], "table": "copied", "mode": "replace"}
    refreshed = Replication(items.spark, items.ledger, items.dsn, document)

    run(refreshed)
    execute(items.dsn, "DELETE FROM items WHERE id > 50")
    run(refreshed)

    assert columns(items, "public.copied") == TYPES
    assert scalar(items.dsn, "SELECT count(*) FROM public.copied") == 50


def test_new_columns_reach_the_created_target(items: Replication) -> None:
    followed = items.changed(schema={"new_column": "evolve"})
    run(followed)
    execute(items.dsn, "ALTER TABLE items ADD note text")
    insert(items.dsn, ROWS + 1, ROWS + 10)

    run(followed)

    assert list(columns(items))[-1] == "note"
    assert differing(items) == 0


def test_looking_creates_nothing(items: Replication) -> None:
    setup = items.setup()

    assert find_problems(setup.pipeline, setup.connections) == []
    assert preview(setup)["batches"] == ROWS // 10
    assert scalar(items.dsn, TABLES) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sink": {"mode": "upsert", "key": ["nowhere"]}}, r"source has no column nowhere, which sink\.key names"),
        ({"sink": {"table": "lake.items"}}, r"schema lake does not exist"),
        ({"sink": {"connection": "limited"}}, r"may not create the target table warehouse\.items"),
        ({"sink": {"create": False}}, r"target table warehouse\.items does not exist"),
    ],
)
def test_a_run_that_is_refused_creates_nothing(
    items: Replication, postgres_server: PostgresServer, changes: dict[str, Any], message: str
) -> None:
    database = items.dsn.rpartition("/")[2]
    execute(
        items.dsn,
        f"CREATE ROLE {database}_limited LOGIN PASSWORD 'limited'",
        f"GRANT USAGE ON SCHEMA warehouse TO {database}_limited",
    )
    limited = connection_to(postgres_server.database_dsn(database, f"{database}_limited", "limited"), "limited")
    refused = items.changed(**changes)
    refused = Replication(items.spark, items.ledger, items.dsn, refused.document, {"limited": limited})

    with pytest.raises(ConfigError, match=message):
        run(refused)

    setup = refused.setup()
    [problem] = find_problems(setup.pipeline, setup.connections)
    assert re.search(message, problem)
    assert scalar(items.dsn, TABLES) == 0


def test_a_target_that_is_gone_is_a_loss_and_is_created_when_a_user_accepts_that(items: Replication) -> None:
    run(items)
    execute(items.dsn, "DROP TABLE warehouse.items")
    insert(items.dsn, ROWS + 1, ROWS + 10)

    with pytest.raises(SinkChangedError, match=r"warehouse\.items does not exist any more"):
        run(items)
    assert scalar(items.dsn, "SELECT to_regclass('warehouse.items')::text") is None

    action = accept_sink.make_acceptance(items.setup(), resend=True, start={"public.items": START})
    accept_sink.apply_sink_change(items.setup(), action, actor="ann", reason="dropped on purpose")
    run(items)

    assert differing(items) == 0


@pytest.mark.parametrize("known", ["ledger", "sink"])
def test_a_lost_target_is_created_with_the_columns_of_the_newest_schema_version(
    items: Replication, monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    versioned = items.changed(schema={"dropped_column": "keep", "new_column": "discard", "other_type": "dead_letter"})
    run(versioned)
    execute(
        items.dsn,
        "ALTER TABLE items DROP price, ADD note text, ALTER code TYPE int USING NULL, ALTER feeling TYPE int USING 1",
    )
    if known == "ledger":
        run(versioned)
    else:
        with monkeypatch.context() as crashing:
            crashing.setattr(type(items.ledger), "record_schema_version", _interrupt)
            with pytest.raises(KeyboardInterrupt):
                run(versioned)
    execute(items.dsn, "DROP TABLE warehouse.items")

    action = accept_sink.make_acceptance(versioned.setup(), resend=True, start={"public.items": START})
    accept_sink.apply_sink_change(versioned.setup(), action, actor="ann", reason="dropped on purpose")
    run(versioned)

    assert columns(items) == TYPES
    assert list(columns(items)) == list(TYPES)


def test_a_target_that_is_gone_after_a_crash_is_a_loss_too(items: Replication) -> None:
    with acquire(items.setup()) as crashed:
        crashed.plan()
        crashed.execute(PlainEngine(), rounds=False)
        items.ledger.release(crashed.lease)  # and no check at the end of the run
    execute(items.dsn, "DROP TABLE warehouse.items")

    with pytest.raises(SinkChangedError, match=r"warehouse\.items does not exist any more"):
        run(items)


def test_a_session_that_is_lost_does_not_hide_why_a_target_is_unsuitable(items: Replication) -> None:
    section = items.pipeline.sink
    assert isinstance(section, PostgresSinkSection)
    creation = TargetCreation(items.pipeline, section)
    creation.columns = lambda: [SourceColumn("id", 1, "bigint")]
    with closing(psycopg2.connect(items.dsn)) as session:
        session.autocommit = True
        fetch = psycopg_fetch(session)
        rehearsal = creation.rehearsed(fetch)
        rehearsal.__enter__()
        execute(items.dsn, f"SELECT pg_terminate_backend({session.info.backend_pid})")
        found = ConfigError("unsuitable")
        assert not rehearsal.__exit__(ConfigError, found, None)


def test_runs_that_create_one_target_at_once_create_it_once(items: Replication) -> None:
    def create(number: int) -> None:
        sink = PostgresSink(items.pipeline, connection_to(items.dsn), SinkContext("ledger", f"pipeline-{number}"))
        with closing(sink):
            sink.create_target_from(lambda: [SourceColumn("id", 1, "bigint")])
            sink.check()
            sink.create_bookkeeping()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, range(8)))

    assert columns(items) == {"id": "bigint"}
