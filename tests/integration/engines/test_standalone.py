"""A cluster of two workers shares a run's lanes, and the loss of an executor loses no record."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_ckpt.core.receipt import Counts
from tests.integration.engines.engine_setup import EngineSetup, Kind, await_rows, delivered, expected, slow_orders
from tests.services.spark_cluster import SparkCluster
from tests.services.tables import scalar

ROWS = 2_000


@pytest.mark.parametrize("engine_setup", [Kind.STANDALONE], indirect=True)
def test_of_two_workers_one_loses_its_executor(engine_setup: EngineSetup, cluster: SparkCluster) -> None:
    document = slow_orders(engine_setup, ROWS)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine_setup.run, document)
        await_rows(engine_setup)
        executors = [pid for pids in cluster.executors() for pid in pids]
        os.kill(executors[0], signal.SIGKILL)
        summary = running.result(240)

    kept = expected(engine_setup)[0]
    returned = scalar(engine_setup.dsn, "SELECT count(*) FROM orders WHERE status = 'returned'")
    assert len(executors) == 2
    assert (summary.records, summary.route) == (Counts(ROWS, kept, returned, 1), ["dead_letters", "done"])
    assert delivered(engine_setup) == (kept, kept)
    assert [len(names) for names in cluster.applications()] == [1, 1]
    assert engine_setup.ledger.audit("orders")["ok"]
