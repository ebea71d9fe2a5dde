"""Fixtures of these tests: each engine with a ledger and a database; servers and standing drivers are shared."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.integration.engines.engine_setup import CONNECTION, EngineSetup, Kind
from tests.services.ledgers import new_ledger_database
from tests.services.postgres import PostgresServer, sqlalchemy_url
from tests.services.spark_cluster import SparkCluster
from tests.services.spark_connect import SparkConnectServer
from tests.services.warm_spark import WarmSpark, living


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """A master and two workers."""
    with SparkCluster() as cluster:
        yield cluster


@pytest.fixture(scope="package")
def connect_server() -> Iterator[SparkConnectServer]:
    """A Spark Connect server of two cores; a test that kills it starts it again."""
    with SparkConnectServer() as server:
        yield server


@pytest.fixture(scope="package")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmSpark]:
    """Standing drivers of these tests; nothing is left of them in the end."""
    warm = WarmSpark(tmp_path_factory.mktemp("runtime"))
    yield warm
    before = warm.processes()
    warm.stop()
    assert living(before) == []
    assert [file.name for file in warm.directory.iterdir() if file.is_dir()] == []


@pytest.fixture
def engine_setup(
    request: pytest.FixtureRequest, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EngineSetup]:
    """A ledger, a database, and the engine that the test's parameter names."""
    kind = Kind(getattr(request, "param", Kind.CONNECT))
    part: dict[str, Any] = {"engine": "submit"}
    if kind is Kind.STANDALONE:
        part["conf"] = {
            "spark.master": request.getfixturevalue("cluster").master,
            "spark.pyspark.python": sys.executable,
            "spark.driver.host": "127.0.0.1",
            "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
        }
    if kind is Kind.CONNECT:
        server = request.getfixturevalue("connect_server")
        monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", server.connection)
        part = {"engine": "connect", "connection": CONNECTION}
    ledger_dsn = new_ledger_database(postgres_server)
    with ExitStack() as stack:
        if kind is Kind.WARM:
            part = {"engine": "warm"}
            stack.enter_context(request.getfixturevalue("warm").found())
        ledger = stack.enter_context(Ledger.open(sqlalchemy_url(ledger_dsn)))
        yield EngineSetup(
            kind,
            part,
            ledger,
            ledger_dsn,
            postgres_server.new_database(),
            session=lambda: request.getfixturevalue("spark"),
        )
