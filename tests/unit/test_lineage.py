"""Tests of a task's OpenLineage events: datasets under OpenLineage's names, and row counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.serde import Serde

from airflow_provider_ckpt.config.connector_section import ConnectorSection
from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.config.typed_sections import section_model
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.lineage import dataset_name, lineage_of
from airflow_provider_ckpt.replication.metric_names import Metric

CONNECTIONS = {
    "shop": Connection("shop", "postgres", "db.example", 5433, "me", "s3cret", "shop"),
    "local": Connection("local", "postgres", None, None, "me", None, None),
    "stream": Connection("stream", "kafka", extra={"bootstrap.servers": "a:9092, b:9092", "sasl.password": "s3cret"}),
    "one": Connection("one", "kafka", "broker.example", None),
    "h2": Connection("h2", "jdbc", "jdbc:h2:tcp://me:s3cret@db.example/shop;password=s3cret", login="me"),
    "pg": Connection("pg", "jdbc", "jdbc:postgresql://db.example/shop?password=s3cret", login="me"),
    "ms": Connection("ms", "jdbc", "jdbc:sqlserver://db.example:1433;databaseName=shop;password=s3cret"),
    "ora": Connection("ora", "jdbc", "jdbc:oracle:thin:scott/s3cret@db.example:1521:xe"),
    "svc": Connection("svc", "jdbc", "jdbc:oracle:thin:scott/s3cret@//db.example:1521/shop"),
    "address": Connection("address", "jdbc", "jdbc:mysql://address=(host=db.example)(password=s3cret)/shop"),
    "db2": Connection("db2", "jdbc", "jdbc:db2://db.example:50000/shop:password=s3cret;user=me"),
    "teradata": Connection("teradata", "jdbc", "jdbc:teradata://db.example/PASSWORD=s3cret,USER=me"),
    "lake": Connection("lake", "iceberg", extra={"type": "rest", "uri": "https://me:s3cret@lake:8181/v1?token=s3cret"}),
}


def connections(name: str) -> Connection:
    """The connection of an id."""
    return CONNECTIONS[name]


def source(kind: str, **keys: Any) -> ConnectorSection:
    """A section ``source``."""
    return section_model("source", kind).model_validate({"type": kind, **keys})


def sink(kind: str, **keys: Any) -> ConnectorSection:
    """A section ``sink``."""
    return section_model("sink", kind).model_validate({"type": kind, **keys})


def jdbc(connection: str, table: str) -> ConnectorSection:
    """A source that a driver reads."""
    return source("jdbc", connection=connection, table=table, cursor="ID", jars=["/drivers/x.jar"])


@pytest.mark.parametrize(
    ("section", "name"),
    [
        (
            source("postgres", connection="shop", table="orders", cursor="id"),
            ("postgres://db.example:5433", "shop.public.orders"),
        ),
        (
            sink("postgres", connection="shop", table='"My.S".t'),
            ("postgres://db.example:5433", "shop.My.S.t"),
        ),
        (sink("postgres", connection="local", table="a.b"), ("postgres://localhost:5432", "me.a.b")),
        (source("kafka", connection="stream", topic="orders"), ("kafka://a:9092", "orders")),
        (sink("kafka", connection="one", topic="orders"), ("kafka://broker.example:9092", "orders")),
        (sink("delta", path="/lake/flights"), ("file", "/lake/flights")),
        (sink("delta", path="file:///lake/a%20b"), ("file", "/lake/a b")),
        (source("files", path="/in/*.jsonl"), ("file", "/in/*.jsonl")),
        (jdbc("h2", "SALES.ORDERS"), ("h2://db.example", "shop.SALES.ORDERS")),
        (jdbc("pg", "orders"), ("postgres://db.example:5432", "shop.public.orders")),
        (jdbc("ms", "shop.dbo.orders"), ("sqlserver://db.example:1433", "shop.dbo.orders")),
        (jdbc("address", "orders"), ("mysql://", "orders")),
        (jdbc("db2", "SALES.ORDERS"), ("db2://db.example:50000", "shop.SALES.ORDERS")),
        (jdbc("teradata", "orders"), ("teradata://db.example", "orders")),
        (jdbc("ora", "SALES.ORDERS"), ("oracle://db.example:1521:xe", "SALES.ORDERS")),
        (jdbc("svc", "SALES.ORDERS"), ("oracle://db.example:1521", "shop.SALES.ORDERS")),
        (sink("iceberg", connection="lake", table="shop.orders"), ("https://lake:8181/v1", "shop.orders")),
    ],
    ids=str,
)
def test_datasets_have_openlineages_names_and_no_secret(section: ConnectorSection, name: tuple[str, str]) -> None:
    found = dataset_name(section, connections)

    assert found == name
    assert "s3cret" not in "".join(found)


def pipeline(tmp_path: Path) -> Any:
    """From files to PostgreSQL."""
    return build(
        {
            "name": "orders",
            "source": {"type": "files", "path": f"{tmp_path}/*.jsonl"},
            "transform": {"decode": "json", "schema": "id bigint"},
            "sink": {"type": "postgres", "connection": "shop", "table": "orders"},
        }
    )


def test_rows_are_counted_on_both_sides(tmp_path: Path) -> None:
    totals = Counter(
        {Metric.COMMITTED: 2, Metric.READ: 100, Metric.DELIVERED: 90, Metric.FILTERED: 7, Metric.DEAD_LETTERED: 3}
    )

    found = lineage_of(pipeline(tmp_path), totals, connections)

    assert found is not None
    [source], [sink] = found.inputs, found.outputs
    assert (source.namespace, source.name) == ("file", f"{tmp_path}/*.jsonl")
    assert (sink.namespace, sink.name) == ("postgres://db.example:5433", "shop.public.orders")
    assert Serde.to_dict(source.inputFacets["inputStatistics"])["rowCount"] == 100
    assert Serde.to_dict(sink.outputFacets["outputStatistics"])["rowCount"] == 90
    facet = Serde.to_dict(found.run_facets["ckpt"])
    assert (facet["pipeline"], facet["filtered"], facet["deadLettered"]) == ("orders", 7, 3)


def test_a_task_that_settled_nothing_names_no_datasets(tmp_path: Path) -> None:
    assert lineage_of(pipeline(tmp_path), Counter(), connections) is None
