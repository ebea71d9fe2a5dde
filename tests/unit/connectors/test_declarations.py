"""The declaration of every built-in connector passes the conformance suite."""

from __future__ import annotations

from airflow_provider_ckpt.config.installed_connectors import installed_connectors
from airflow_provider_ckpt.testing.declaration_conformance import DeclarationConformance

TABLE = {"connection": "shop", "table": "shop.orders"}


class TestDelta(DeclarationConformance):
    kind = "delta"
    sink = {"path": "/lake/orders"}


class TestFiles(DeclarationConformance):
    kind = "files"
    source = {"path": "/in"}
    sink = {"path": "/out", "format": "jsonl"}
    transform = {"decode": "json", "schema": "id bigint"}


class TestIceberg(DeclarationConformance):
    kind = "iceberg"
    sink = TABLE


class TestJdbc(DeclarationConformance):
    kind = "jdbc"
    source = {**TABLE, "cursor": "id", "jars": ["/opt/driver.jar"]}


class TestKafka(DeclarationConformance):
    kind = "kafka"
    source = {"connection": "stream", "topic": "orders"}
    sink = source


class TestPostgres(DeclarationConformance):
    kind = "postgres"
    source = {**TABLE, "cursor": "id"}
    sink = TABLE


class TestSql(DeclarationConformance):
    kind = "sql"
    source = {**TABLE, "cursor": "id"}
    sink = TABLE


def test_no_connector_is_left_out() -> None:
    tested = {suite.kind for suite in DeclarationConformance.__subclasses__() if suite.__module__ == __name__}

    assert tested == {kind for kind, _ in installed_connectors()}
