"""Spark, the run or both end in the middle of a wave: afterwards each record is in the target once, on every engine."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.core.errors import EngineError
from airflow_provider_ckpt.engines.factory import make_engine
from tests.integration.engines.ground import Ground, Kind, await_rows, delivered, expected, slow_orders
from tests.services.processes import below, kill
from tests.services.spark_connect import SparkConnectServer
from tests.services.warm_spark import WarmSpark

ROWS = 4_000
EACH = pytest.mark.parametrize("ground", [Kind.WARM, Kind.SUBMIT, Kind.CONNECT], indirect=True)


def kill_spark(ground: Ground, server: SparkConnectServer, warm: WarmSpark) -> None:
    """End the Java process that runs the lanes, and its Python workers; a server is started again."""
    if ground.kind is Kind.WARM:
        warm.kill()
    elif ground.kind is Kind.CONNECT:
        server.kill()
        server.start()
    else:
        ours = [process for process in below(os.getpid()) if any("ckpt-run-" in part for part in process.command)]
        assert kill(ours)


def started(ground: Ground, document: Mapping[str, Any]) -> int:
    """Wait until some is delivered and most is not."""
    await_rows(ground)
    count = delivered(ground)[0]
    assert 0 < count < expected(ground)[0] // 2
    return count


@pytest.mark.parametrize(
    ("ground", "delivery"),
    [
        (Kind.WARM, "exactly_once"),
        (Kind.SUBMIT, "exactly_once"),
        (Kind.CONNECT, "exactly_once"),
        (Kind.CONNECT, "at_most_once"),
    ],
    indirect=["ground"],
)
def test_spark_is_killed_and_the_run_goes_on_with_another(
    ground: Ground, connect_server: SparkConnectServer, warm: WarmSpark, delivery: str
) -> None:
    document = slow_orders(ground, ROWS) | {"delivery": delivery}

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ground.run, document)
        started(ground, document)
        kill_spark(ground, connect_server, warm)
        summary = running.result(240)

    total, distinct = delivered(ground)
    assert total == distinct
    assert summary.records.read == ROWS or delivery == "at_most_once"
    assert total == expected(ground)[0] or delivery == "at_most_once"
    assert total >= expected(ground)[0] - 200  # at most once: what two lanes had in hand
    assert (summary.route[-1], summary.errors["Processing"]) == ("done", 1)
    assert ground.ledger.audit("orders")["ok"]


@EACH
def test_the_run_is_killed_and_the_next_one_completes_it(ground: Ground, tmp_path: Path) -> None:
    document = slow_orders(ground, ROWS)

    with ground.running(document, tmp_path) as process:
        started(ground, document)
        process.send_signal(signal.SIGKILL)
        process.wait()
    summary = ground.run(document)

    assert delivered(ground) == expected(ground)
    assert summary.route[-1] == "done"
    assert ground.ledger.audit("orders")["ok"]


@EACH
def test_an_engine_that_is_killed_stops_its_lanes_and_the_next_run_completes_it(ground: Ground) -> None:
    """Spark gives the Python of a task that was cancelled up to four seconds."""
    document = slow_orders(ground, 3_000, seconds=0.7)
    engine = make_engine(ground.pipeline(document))

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(ground.run, document, engine=engine)
        started(ground, document)
        began = time.monotonic()
        engine.kill()
        took = time.monotonic() - began
        with pytest.raises(EngineError, match="Spark was stopped"):
            running.result(30)
    time.sleep(6)
    stopped = delivered(ground)[0]
    time.sleep(2)

    assert took < 10
    assert delivered(ground)[0] == stopped < expected(ground)[0] * 3 // 4
    assert ground.run(document).route[-1] == "done"
    assert delivered(ground) == expected(ground)
    assert ground.ledger.audit("orders")["ok"]
