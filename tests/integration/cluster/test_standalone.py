"""The ``submit`` engine on a standalone cluster of two workers: the same runs, and what dies there is not missed."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.core.batch import Counts
from airflow_provider_ckpt.hooks.submit_engine import SubmitEngine
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.replicate import replicate
from airflow_provider_ckpt.replication.setup import Setup
from airflow_provider_ckpt.replication.summary import RunSummary
from tests.services.delta import read_delta
from tests.services.postgres import PostgresServer
from tests.services.replication import connection_to, make_ledger, orders_pipeline
from tests.services.spark_cluster import SparkCluster
from tests.services.tables import execute, make_source, scalar

ROWS, BATCHES = 2_000, 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """A master and two workers."""
    with SparkCluster() as cluster:
        yield cluster


@dataclass
class Runs:
    """Runs of pipelines on the cluster.

    :param conf: Spark properties
    """

    ledger: Ledger
    dsn: str
    conf: Mapping[str, str]

    def run(self, document: Mapping[str, Any]) -> RunSummary:
        pipeline = build({**document, "run": {"conf": self.conf}})
        setup = Setup(pipeline, self.ledger, lambda name: connection_to(self.dsn, name), "test")
        return replicate(setup, SubmitEngine(pipeline))


@pytest.fixture
def runs(cluster: SparkCluster, postgres_server: PostgresServer) -> Iterator[Runs]:
    """With a ledger and a database of the test's own."""
    conf = {
        "spark.master": cluster.master,
        "spark.pyspark.python": sys.executable,
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
    }
    with make_ledger(postgres_server.new_database()) as ledger:
        yield Runs(ledger, postgres_server.new_database(), conf)


def test_lanes_on_two_workers_one_of_which_loses_its_executor(runs: Runs, cluster: SparkCluster) -> None:
    slow = "BEGIN PERFORM pg_sleep(0.1); RETURN NULL; END"
    make_source(runs.dsn, "orders", ROWS)
    execute(
        runs.dsn,
        "CREATE TABLE target (id bigint, share bigint)",
        f"CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ {slow} $$",
        "CREATE TRIGGER slow AFTER INSERT ON target FOR EACH STATEMENT EXECUTE FUNCTION slow()",
    )
    document = orders_pipeline() | {
        "consumer": {"strategy": "round_robin", "lanes": 2},
        "commit_strategy": {"commit_interval": ROWS // BATCHES},
        "transform": {"where": "status <> 'returned'", "select": {"id": "id", "share": "1000 div (id - 8)"}},
    }
    killed: list[int] = []

    def kill() -> None:
        """End an executor once a batch is there."""
        deadline = time.monotonic() + 300
        while not killed and time.monotonic() < deadline:
            if scalar(runs.dsn, "SELECT count(*) FROM target"):
                killed.extend(pid for pids in cluster.executors() for pid in pids)
                os.kill(killed[0], signal.SIGKILL)
            time.sleep(0.02)

    killer = threading.Thread(target=kill)
    killer.start()
    first = runs.run(document)
    killer.join()
    again = runs.run(document)

    bad = "id = 8"  # by which select divides
    kept, returned = (
        scalar(runs.dsn, f"SELECT count(*) FROM orders WHERE status {equal} 'returned' AND NOT {bad}")
        for equal in ("<>", "=")
    )
    assert len(killed) == 2
    assert (first.records, first.route) == (Counts(ROWS, kept, returned, 1), ["dead_letters", "done"])
    assert (again.records, again.spark_started) == (Counts(0, 0, 0, 0), False)
    assert execute(runs.dsn, "SELECT count(*), count(DISTINCT id) FROM target") == [(kept, kept)]
    assert [len(names) for names in cluster.applications()] == [1, 1]
    assert runs.ledger.audit("orders")["ok"]


def test_files_into_a_delta_table(runs: Runs, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for file in range(4):
        (source / f"{file}.jsonl").write_text("".join(f'{{"id": {file * 100 + n}}}\n' for n in range(100)))
    document = {
        "name": "files",
        "source": {"type": "files", "path": str(source)},
        "sink": {"type": "delta", "path": str(tmp_path / "out")},
        "transform": {"decode": "json", "schema": "id bigint"},
    }
    summary = runs.run(document)

    assert summary.records == Counts(400, 400, 0, 0)
    assert sorted(read_delta(tmp_path / "out")["id"].to_pylist()) == list(range(400))
