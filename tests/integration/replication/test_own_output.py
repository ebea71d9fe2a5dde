"""A pipeline that would read its own output is refused, with the key at fault, before a run sends anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.observe.preview import find_problems
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.setup import PipelineContext
from tests.integration.connectors.kafka.kafka_support import connection_to as connection_to_kafka
from tests.services.iceberg import IcebergService
from tests.services.jdbc import drivers, to_postgres
from tests.services.kafka import KafkaBroker
from tests.services.ledgers import new_ledger_file
from tests.services.replication import connection_to
from tests.services.tables import execute, make_source, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAYS = "so every run would deliver its own output once more"
EVENTS: dict[str, Any] = {
    "name": "events",
    "source": {"type": "files", "path": "{here}/d/**/*.jsonl"},
    "transform": {"decode": "json", "schema": "id bigint"},
    "sink": {"type": "files", "path": "{here}/d/x", "format": "jsonl"},
}


class Setup:
    """A ledger, connections and a directory of a test's own."""

    def __init__(self, here: Path, ledger: Ledger) -> None:
        self.here = here
        self.ledger = ledger
        self.connections: dict[str, Connection] = {}

    def refused(self, document: Mapping[str, Any], spark: SparkSession | None = None, *, validated: bool = True) -> str:
        """Validate and run, and expect the refusal each time; the run's error.

        :param validated: whether what is there before a run shows it
        """
        pipeline = build(json.loads(json.dumps(document).replace("{here}", str(self.here))))
        found = find_problems(pipeline, self.connections.__getitem__)
        assert (len(found) == 1 and SAYS in found[0]) == validated, found
        setup = PipelineContext(pipeline, self.ledger, self.connections.__getitem__, "test")
        engine = SessionEngine(spark) if spark else None
        with pytest.raises(ConfigError, match=SAYS) as raised:
            replicate(setup, engine)  # type: ignore[arg-type]
        return str(raised.value)


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    url = new_ledger_file(tmp_path / "ledger.db")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.jsonl").write_text('{"id": 1}\n')
    with Ledger.open(url) as ledger:
        yield Setup(tmp_path, ledger)


FILES: dict[str, tuple[dict[str, Any], str]] = {
    "files sink under the pattern": ({}, "sink.path ({here}/d/x)"),
    "files sink through a link": ({"sink": {**EVENTS["sink"], "path": "{here}/link/x"}}, "sink.path ({here}/d/x)"),
    "delta table under the pattern": (
        {"source": {"type": "files", "path": "{here}/d/**"}, "sink": {"type": "delta", "path": "{here}/d/x"}},
        "sink.path ({here}/d/x)",
    ),
    "delta table, parquet": (
        {
            "source": {"type": "files", "path": "{here}/d/*/*.parquet", "format": "parquet"},
            "transform": {"schema": "id bigint"},
            "sink": {"type": "delta", "path": "{here}/d/x"},
        },
        "sink.path ({here}/d/x)",
    ),
    "dead letters beside the sink": (
        {"sink": {"type": "delta", "path": "{here}/d/x"}},
        "dead_letter_queue.sink: same ({here}/d/x.dead_letters/events)",
    ),
    "dead letters in a directory": (
        {
            "sink": {**EVENTS["sink"], "path": "{here}/out"},
            "dead_letter_queue": {"sink": "files", "path": "{here}/d/bad"},
        },
        "dead_letter_queue.path ({here}/d/bad/events)",
    ),
}


@pytest.mark.parametrize(("changes", "said"), FILES.values(), ids=FILES)
def test_a_directory_that_is_written_under_the_source_is_refused(
    setup: Setup, changes: dict[str, Any], said: str
) -> None:
    (setup.here / "link").symlink_to(setup.here / "d")
    before = sorted(setup.here.rglob("*"))

    line = setup.refused({**EVENTS, **changes})

    assert said.replace("{here}", str(setup.here)) in line
    assert "source.path: " in line
    assert sorted(setup.here.rglob("*")) == before


def test_an_iceberg_table_below_the_source_is_refused_though_it_is_new(setup: Setup, spark: SparkSession) -> None:
    lake = IcebergService(setup.here / "d")
    setup.connections["lake"] = lake.connection
    (setup.here / "d" / "warehouse").mkdir()
    pattern = "{here}/d/**/*.parquet"
    document = {
        "name": "events",
        "source": {"type": "files", "path": pattern, "format": "parquet"},
        "transform": {"schema": "id bigint"},
        "sink": {"type": "iceberg", "connection": "lake", "table": "air.flights"},
    }

    assert "sink.table (" in setup.refused(document, spark, validated=False)
    assert "sink.table (" in setup.refused(document)
    assert setup.ledger.status("events")["batches"] == {}


@pytest.fixture
def topic(setup: Setup, kafka_broker: KafkaBroker) -> str:
    """A topic that two connections lead to."""
    setup.connections["one"] = replace(connection_to_kafka(kafka_broker), id="one")
    setup.connections["other"] = replace(connection_to_kafka(kafka_broker), id="other")
    return kafka_broker.new_topic(1)


def test_a_topic_that_is_its_own_target_through_another_connection_is_refused(setup: Setup, topic: str) -> None:
    document = {
        "name": "events",
        "source": {"type": "kafka", "connection": "one", "topic": topic},
        "sink": {"type": "kafka", "connection": "other", "topic": topic},
    }

    assert f"sink.topic ({topic})" in setup.refused(document)


def test_a_topic_that_takes_its_own_dead_letters_is_refused(
    setup: Setup, topic: str, kafka_broker: KafkaBroker
) -> None:
    document = {
        "name": "events",
        "source": {"type": "kafka", "connection": "one", "topic": topic},
        "sink": {"type": "kafka", "connection": "other", "topic": kafka_broker.new_topic(1)},
        "dead_letter_queue": {"topic": topic},
    }

    assert f"dead_letter_queue.topic ({topic})" in setup.refused(document)


@pytest.fixture
def table(setup: Setup, postgres_database: str) -> str:
    """A database with orders, to which two connections lead."""
    setup.connections["one"] = connection_to(postgres_database, "one")
    setup.connections["other"] = connection_to(postgres_database, "other")
    make_source(postgres_database, "orders", 10)
    return postgres_database


def test_a_table_that_is_its_own_target_is_refused(setup: Setup, table: str) -> None:
    document = {
        "name": "orders",
        "source": {"type": "postgres", "connection": "one", "table": "orders", "cursor": "id"},
        "sink": {"type": "postgres", "connection": "other", "table": "public.orders"},
    }

    assert "source.table: orders reads what this pipeline writes to sink.table (public.orders)" in setup.refused(
        document
    )
    assert scalar(table, "SELECT count(*) FROM orders") == 10


def test_a_table_that_is_read_by_jdbc_and_its_own_target_is_refused(setup: Setup, table: str) -> None:
    setup.connections["jdbc"] = replace(to_postgres(table), id="jdbc")
    document = {
        "name": "orders",
        "source": {"type": "jdbc", "connection": "jdbc", "table": "public.orders", "cursor": "id", "jars": drivers()},
        "sink": {"type": "postgres", "connection": "other", "table": "orders"},
    }

    assert "sink.table (public.orders)" in setup.refused(document)


def test_a_target_that_is_a_partition_of_the_source_is_refused(setup: Setup, table: str) -> None:
    execute(
        table,
        "CREATE TABLE parted (id bigint PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (10)",
    )
    document = {
        "name": "orders",
        "source": {"type": "postgres", "connection": "one", "table": "parted", "cursor": "id"},
        "sink": {"type": "postgres", "connection": "other", "table": "low"},
    }

    assert "sink.table (public.low)" in setup.refused(document)
