"""Tests of the ``connect`` engine: a server that is restarted by others, and sessions that the server closes."""

from __future__ import annotations

import json
import socket
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.session import SparkSession

import airflow_provider_ckpt.core
from airflow_provider_ckpt.core.errors import ConfigError, EngineError
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.engines import connect_server as addressed
from airflow_provider_ckpt.engines import connect_session
from airflow_provider_ckpt.engines.connect import ConnectEngine
from tests.integration.engines.engine_setup import CONNECTION, EngineSetup, await_rows, delivered, expected, slow_orders
from tests.services.replication import orders_pipeline
from tests.services.spark_connect import SparkConnectServer
from tests.services.tables import add_rows, execute, make_source, scalar


class Telling(ConnectEngine):
    """Tells which session it had."""

    session = ""

    def close(self) -> None:
        """Leave the session."""
        assert self._session is not None
        self.session = self._session.session_id
        super().close()


@pytest.fixture
def document(engine_setup: EngineSetup) -> dict[str, Any]:
    """Orders, none yet, into a table of ids."""
    make_source(engine_setup.dsn, "orders", 0)
    execute(engine_setup.dsn, "CREATE TABLE target (id bigint)")
    return orders_pipeline() | {"transform": {"select": {"id": "id"}}}


def deliver(engine_setup: EngineSetup, document: Mapping[str, Any]) -> str:
    """Deliver a hundred new orders.

    :returns: the session's id
    """
    start = scalar(engine_setup.dsn, "SELECT coalesce(max(id), 0) + 1 FROM orders")
    add_rows(engine_setup.dsn, "orders", start, start + 100)
    engine = Telling(engine_setup.pipeline(document))
    assert engine_setup.run(document, engine=engine).records == Counts(100, 100, 0, 0)
    return engine.session


def test_the_runs_of_a_pipeline_share_a_session_until_the_server_closes_it_and_no_one_else_has_it(
    engine_setup: EngineSetup, document: dict[str, Any], connect_server: SparkConnectServer
) -> None:
    first, second = deliver(engine_setup, document), deliver(engine_setup, document)
    other = deliver(
        engine_setup, document | {"run": {"conf": {"spark.sql.session.localRelationCacheThreshold": "1000"}}}
    )
    SparkSession(f"sc://127.0.0.1:{connect_server.port}/;session_id={first}").stop()
    replaced, again = deliver(engine_setup, document), deliver(engine_setup, document)

    assert first == second
    assert first != other
    assert replaced not in (first, other)
    assert again == replaced
    assert connect_server.log
    assert "ckpt-test" not in connect_server.log  # the database's password


def test_a_server_that_stays_away_ends_the_run_and_once_it_is_back_all_goes_on_as_before(
    engine_setup: EngineSetup, connect_server: SparkConnectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lanes run the code and the properties of the worker also after the server was restarted."""
    slow = slow_orders(engine_setup, 2_000) | {
        "transform": {
            "where": "status <> 'returned' AND id <> 8",
            "select": {"id": "id", "zone": "current_timezone()"},
            "python": "task",
            "returns": "id bigint, zone string, path string",
        },
        "run": {"conf": {"spark.sql.session.timeZone": "Asia/Tokyo"}},
    }
    execute(engine_setup.dsn, "ALTER TABLE target ADD zone text, ADD path text")

    def with_path(rows: pa.Table) -> pa.Table:
        return rows.append_column("path", pa.array([airflow_provider_ckpt.core.__file__] * rows.num_rows))

    monkeypatch.setattr(addressed, "_WAIT_SECONDS", 1.0)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine_setup.run, slow, function=with_path)
        await_rows(engine_setup)
        connect_server.kill()
        with pytest.raises(EngineError, match="no Spark Connect server answers"):
            running.result(120)
    before = delivered(engine_setup)[0]
    connect_server.start()
    engine_setup.run(slow, function=with_path)

    found = "SELECT DISTINCT zone, path LIKE '%/airflow_provider_ckpt.zip/%' FROM target"
    assert execute(engine_setup.dsn, found) == [("Asia/Tokyo", True)]
    assert 0 < before < delivered(engine_setup)[0]
    assert delivered(engine_setup) == expected(engine_setup)


def test_a_server_that_is_not_there_is_told_by_its_address(
    engine_setup: EngineSetup, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    add_rows(engine_setup.dsn, "orders", 1, 101)
    monkeypatch.setattr(addressed, "_WAIT_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    nowhere = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": port, "password": "hush"}
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", json.dumps(nowhere))

    with pytest.raises(EngineError, match=rf"no Spark Connect server answers at 127\.0\.0\.1:{port}: .*run.connection"):
        engine_setup.run(document)


@pytest.mark.parametrize(
    ("connection", "said"),
    [
        (
            {"conn_type": "spark", "host": "local[2]"},
            r"needs a connection of type spark_connect, and .* of type 'spark'",
        ),
        ({"conn_type": "spark_connect", "host": "sc://here/there"}, "names no Spark Connect server"),
        ({"conn_type": "spark_connect"}, "names no Spark Connect server"),
    ],
)
def test_a_connection_that_leads_to_no_server_is_refused(
    engine_setup: EngineSetup,
    document: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    connection: dict[str, str],
    said: str,
) -> None:
    add_rows(engine_setup.dsn, "orders", 1, 101)
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONNECTION.upper()}", json.dumps(connection))

    with pytest.raises(ConfigError, match=said):
        engine_setup.run(document)


def test_a_property_that_no_session_can_have_is_refused(engine_setup: EngineSetup, document: dict[str, Any]) -> None:
    add_rows(engine_setup.dsn, "orders", 1, 101)

    with pytest.raises(ConfigError, match=r"run\.conf: spark\.executor\.memory cannot be set: .*CANNOT_MODIFY_CONFIG"):
        engine_setup.run(document | {"run": {"conf": {"spark.executor.memory": "2g"}}})


def test_an_engine_that_begins_cancels_what_an_earlier_one_left_running(
    engine_setup: EngineSetup, tmp_path: Path
) -> None:
    started = tmp_path / "begun"
    make_source(engine_setup.dsn, "orders", 10)
    execute(engine_setup.dsn, "CREATE TABLE target (id bigint)")

    def hang(rows: pa.Table) -> pa.Table:
        if not started.exists():
            started.touch()
            time.sleep(90)
        return rows

    document = orders_pipeline() | {"transform": {"select": {"id": "id"}, "python": "task", "returns": "id bigint"}}
    earlier, later = (ConnectEngine(engine_setup.pipeline(document)) for _ in range(2))

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine_setup.run, document, engine=earlier, function=hang)
        deadline = time.monotonic() + 60
        while not started.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert earlier._job is not None
        later.start(earlier._job)
        later.ready(lambda: None)
        summary = running.result(30)  # it is told that its wave was lost, and sends another
    later.close()

    assert (summary.records, summary.errors) == (Counts(10, 10, 0, 0), {"Processing": 1})


def test_a_server_that_is_back_is_reached_however_long_this_process_has_tried() -> None:
    """gRPC's channels of a process share their pauses between attempts by default, which grow to minutes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"sc://127.0.0.1:{port}/"
    lost = DefaultChannelBuilder(url, connect_session.CHANNEL_OPTIONS).toChannel()
    with pytest.raises(grpc.FutureTimeoutError):
        grpc.channel_ready_future(lost).result(17)

    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        with pytest.raises(PySparkException, match="UNIMPLEMENTED"):  # it answers, and is no Spark
            connect_session.attach(url, str(uuid.uuid4()))
    finally:
        server.stop(None)
        lost.close()
