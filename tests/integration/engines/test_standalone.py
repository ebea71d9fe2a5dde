"""A cluster of two workers shares a run's lanes, and an executor that dies there is not missed."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_ckpt.core.receipt import Counts
from tests.integration.engines.ground import Ground, Kind, await_rows, delivered, expected, slow_orders
from tests.services.spark_cluster import SparkCluster
from tests.services.tables import scalar

ROWS = 2_000


@pytest.mark.parametrize("ground", [Kind.STANDALONE], indirect=True)
def test_of_two_workers_one_loses_its_executor(ground: Ground, cluster: SparkCluster) -> None:
    document = slow_orders(ground, ROWS)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ground.run, document)
        await_rows(ground)
        executors = [pid for pids in cluster.executors() for pid in pids]
        os.kill(executors[0], signal.SIGKILL)
        summary = running.result(240)

    kept = expected(ground)[0]
    returned = scalar(ground.dsn, "SELECT count(*) FROM orders WHERE status = 'returned'")
    assert len(executors) == 2
    assert (summary.records, summary.route) == (Counts(ROWS, kept, returned, 1), ["dead_letters", "done"])
    assert delivered(ground) == (kept, kept)
    assert [len(names) for names in cluster.applications()] == [1, 1]
    assert ground.ledger.audit("orders")["ok"]
