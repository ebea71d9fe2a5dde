"""The jdbc source passes the conformance suite on two databases, with cursors of two types."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.jdbc import client
from airflow_provider_ckpt.connectors.jdbc.source import JdbcSource
from airflow_provider_ckpt.connectors.source_protocol import Reader, RecordShape, Source
from airflow_provider_ckpt.testing.source_conformance import ShrinkingSourceConformance
from airflow_provider_ckpt.testing.source_harness import ShrinkingSourceHarness
from tests.integration.connectors.jdbc.jdbc_support import SparkReader, pipeline
from tests.services.jdbc import H2Database, H2Server, to_postgres
from tests.services.postgres import PostgresServer
from tests.services.tables import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class JdbcTable(ShrinkingSourceHarness):
    """A table with a column ``number``."""

    def __init__(self, spark: SparkSession, connection: Connection, table: str, cursor: str) -> None:
        self._spark = spark
        self._connection = connection
        self._pipeline = pipeline(table, cursor)
        self._held = 0

    def open(self) -> Source:
        return JdbcSource(self._pipeline, self._connection)

    def reader(self, shape: RecordShape) -> Reader:
        return SparkReader(self._spark, self._pipeline, self._connection, shape)

    def numbers(self, records: pa.RecordBatch) -> list[int]:
        return [int(number) for number in records.column(records.schema.names[-1]).to_pylist()]

    def add(self, count: int) -> None:
        first, self._held = self._held, self._held + count
        self.insert(first, self._held)

    def insert(self, start: int, end: int) -> None:
        raise NotImplementedError


class PostgresTable(JdbcTable):
    """On PostgreSQL, by a number."""

    def __init__(self, spark: SparkSession, dsn: str) -> None:
        super().__init__(spark, to_postgres(dsn), "public.numbered", "id")
        self._dsn = dsn
        execute(dsn, "CREATE TABLE numbered (id bigint PRIMARY KEY, number int)")

    def remove(self, first: int, end: int) -> None:
        execute(self._dsn, f"DELETE FROM numbered WHERE number >= {first} AND number < {end}")

    def insert(self, start: int, end: int) -> None:
        execute(self._dsn, f"INSERT INTO numbered SELECT n * 3 + 1, n FROM generate_series({start}, {end - 1}) AS n")


class H2Table(JdbcTable):
    """On H2, by an instant."""

    def __init__(self, spark: SparkSession, database: H2Database) -> None:
        super().__init__(spark, database.connection, "PUBLIC.NUMBERED", "AT")
        self._database = database
        database.execute('CREATE TABLE numbered ("AT" timestamp(6) with time zone PRIMARY KEY, number int)')

    def remove(self, first: int, end: int) -> None:
        self._database.execute(f"DELETE FROM numbered WHERE number >= {first} AND number < {end}")

    def insert(self, start: int, end: int) -> None:
        self._database.execute(
            "INSERT INTO numbered SELECT "
            "DATEADD('MICROSECOND', x * 7, TIMESTAMP WITH TIME ZONE '2024-03-31 01:59:59+02:00'), x "
            f"FROM SYSTEM_RANGE({start}, {end - 1})"
        )


@pytest.fixture(autouse=True)
def one_java(monkeypatch: pytest.MonkeyPatch, h2: H2Server) -> None:
    """One Java process plans for all tests; ``test_jdbc_source.py`` has each source start its own."""
    monkeypatch.setattr(client, "Jvm", lambda _: h2.lend())


class TestPostgres(ShrinkingSourceConformance):
    @pytest.fixture
    def harness(self, spark: SparkSession, postgres_server: PostgresServer) -> ShrinkingSourceHarness:
        return PostgresTable(spark, postgres_server.new_database())


class TestH2(ShrinkingSourceConformance):
    @pytest.fixture
    def harness(self, spark: SparkSession, h2: H2Server) -> ShrinkingSourceHarness:
        return H2Table(spark, h2.new_database())
