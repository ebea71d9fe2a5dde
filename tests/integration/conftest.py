"""Fixtures of the integration tests: one local Spark for the session, and a trace of each test's ledger commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.crash_points.driver_process import PRELOADED
from tests.chaos.crash_points.servers import Servers
from tests.formal.traces import complaints, recording
from tests.services.jdbc import H2Server, drivers
from tests.services.postgres import PostgresServer
from tests.services.spark import local_session
from tests.services.spark_connect import SparkConnectServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A warm local session of two cores, set up as a pipeline's driver is; it has the JDBC drivers, too."""
    session = local_session({"spark.jars": ",".join(drivers()), **PRELOADED})
    yield session
    session.stop()


@pytest.fixture(scope="module")
def connect_server() -> Iterator[SparkConnectServer]:
    """A Spark Connect server of two cores; a test that kills it starts it again."""
    with SparkConnectServer() as server:
        yield server


@pytest.fixture(scope="session")
def h2() -> Iterator[H2Server]:
    """H2 databases for the whole session."""
    with H2Server() as server:
        yield server


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A PostgreSQL server and a Kafka broker behind proxies, to be killed and paused at will."""
    with Servers(tmp_path_factory.mktemp("servers")) as servers:
        yield servers


@pytest.fixture(scope="module", autouse=True)
def _databases_of_the_module(running_postgres: list[PostgresServer]) -> Iterator[None]:
    """Drop the databases that the module's tests have made: those of all modules together take gigabytes of memory."""
    yield
    for server in running_postgres:
        server.drop_databases()


@pytest.fixture(autouse=True)
def trace(tmp_path: Path) -> Iterator[None]:
    """Record the test's ledger commands, and compare them with the core's transitions afterwards."""
    file = tmp_path / "trace.jsonl"
    with recording(file):
        yield
    assert complaints(file) == []
