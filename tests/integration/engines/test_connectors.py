"""Connectors other than tables on a Spark Connect server: Kafka's transactions, and commits of an Iceberg table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.core.receipt import Counts
from tests.integration.connectors.kafka.kafka_sink_support import stored
from tests.integration.connectors.kafka.kafka_support import CONNECTION as KAFKA
from tests.integration.connectors.kafka.kafka_support import connection_to as connection_to_kafka
from tests.integration.connectors.kafka.kafka_support import put
from tests.integration.engines.engine_setup import EngineSetup
from tests.services.iceberg import IcebergService
from tests.services.kafka import KafkaBroker

TRANSFORM = {"decode": "json", "schema": "id bigint, name string", "where": "id % 10 <> 3", "select": {"id": "id * 2"}}


def records(start: int, end: int, *bad: bytes) -> list[bytes]:
    """Messages of that many ids, and what is no JSON."""
    return [*(json.dumps({"id": i, "name": f"n{i}"}).encode() for i in range(start, end)), *bad]


def kept(end: int) -> list[int]:
    """Return the records of :func:`records` that are delivered."""
    return [2 * i for i in range(end) if i % 10 != 3]


def test_messages_between_topics(engine_setup: EngineSetup, kafka_broker: KafkaBroker) -> None:
    source, target = kafka_broker.new_topic(2), kafka_broker.new_topic(2)
    engine_setup.others[KAFKA] = connection_to_kafka(kafka_broker)
    document: dict[str, Any] = {
        "name": f"copy-{target}",
        "source": {"type": "kafka", "connection": KAFKA, "topic": source},
        "transform": TRANSFORM,
        "sink": {"type": "kafka", "connection": KAFKA, "topic": target},
        "dead_letter_queue": {"topic": f"letters-{target}"},
        "delivery": "exactly_once",
        "commit_strategy": {"commit_interval": 25},
    }
    put(kafka_broker, source, records(0, 100, b"no JSON"), 0)
    put(kafka_broker, source, records(100, 200), 1)

    first = engine_setup.run(document)
    put(kafka_broker, source, records(200, 300), 1)
    second = engine_setup.run(document)

    assert first.records == Counts(201, 180, 20, 1)
    assert second.records == Counts(100, 90, 10, 0)
    delivered = [json.loads(record.value or b"")["id"] for record in stored(kafka_broker, target)]
    assert sorted(delivered) == kept(300)
    assert [record.value for record in stored(kafka_broker, f"letters-{target}")] == [b"no JSON"]
    assert engine_setup.ledger.audit(document["name"])["ok"]


def test_files_into_an_iceberg_table(engine_setup: EngineSetup, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    lake = IcebergService(tmp_path / "lake", engine_setup.dsn)
    engine_setup.others["lake"] = lake.connection
    document = {
        "name": "lines",
        "source": {"type": "files", "path": str(source)},
        "transform": TRANSFORM,
        "sink": {"type": "iceberg", "connection": "lake", "table": "air.lines"},
        "delivery": "exactly_once",
        "commit_strategy": {"commit_interval": 30},
    }
    (source / "0.jsonl").write_bytes(b"\n".join(records(0, 100, b"no JSON")) + b"\n")

    first = engine_setup.run(document)
    (source / "1.jsonl").write_bytes(b"\n".join(records(100, 200)) + b"\n")
    second = engine_setup.run(document)

    assert first.records == Counts(101, 90, 10, 1)
    assert second.records == Counts(100, 90, 10, 0)
    assert sorted(lake.rows("air.lines")["id"].to_pylist()) == kept(200)
    assert engine_setup.ledger.audit("lines")["ok"]
