"""Spark, the run or both end during a wave: afterwards the target has each record once, on every engine.

The loss of a standing driver, and kills of one of several runs on it, are tested in ``test_warm.py``.
"""

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
from tests.integration.engines.engine_setup import (
    EngineSetup,
    Kind,
    await_rows,
    delivered,
    expected,
    hurry,
    slow_orders,
)
from tests.services.processes import below, kill
from tests.services.spark_connect import SparkConnectServer

ROWS = 1_200
EACH = pytest.mark.parametrize("engine_setup", [Kind.WARM, Kind.SUBMIT, Kind.CONNECT], indirect=True)
NOT_STANDING = pytest.mark.parametrize("engine_setup", [Kind.SUBMIT, Kind.CONNECT], indirect=True)


def kill_spark(engine_setup: EngineSetup, server: SparkConnectServer) -> None:
    """End the Java process that runs the lanes, and its Python workers; a server is started again."""
    if engine_setup.kind is Kind.CONNECT:
        server.kill()
        server.start()
    else:
        ours = [process for process in below(os.getpid()) if any("ckpt-run-" in part for part in process.command)]
        assert kill(ours)


def started(engine_setup: EngineSetup, document: Mapping[str, Any]) -> int:
    """Wait until some is delivered and most is not."""
    await_rows(engine_setup)
    count = delivered(engine_setup)[0]
    assert 0 < count < expected(engine_setup)[0] // 2
    return count


def settled(engine_setup: EngineSetup) -> int:
    """Wait until no lane delivers any more, and return what is delivered."""
    count, since = delivered(engine_setup)[0], time.monotonic()
    while time.monotonic() - since < 3:  # twice as long as a batch takes
        time.sleep(0.1)
        if (now := delivered(engine_setup)[0]) != count:
            count, since = now, time.monotonic()
    return count


@pytest.mark.parametrize(
    ("engine_setup", "delivery"),
    [
        (Kind.SUBMIT, "exactly_once"),
        (Kind.CONNECT, "at_most_once"),
    ],
    indirect=["engine_setup"],
)
def test_spark_is_killed_and_the_run_goes_on_with_another(
    engine_setup: EngineSetup, connect_server: SparkConnectServer, delivery: str
) -> None:
    document = slow_orders(engine_setup, ROWS, seconds=0.3) | {"delivery": delivery}

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine_setup.run, document)
        started(engine_setup, document)
        kill_spark(engine_setup, connect_server)
        summary = running.result(240)

    total, distinct = delivered(engine_setup)
    assert total == distinct
    assert summary.records.read == ROWS or delivery == "at_most_once"
    assert total == expected(engine_setup)[0] or delivery == "at_most_once"
    assert total >= expected(engine_setup)[0] - 200  # at most once: what two lanes had in hand
    assert (summary.route[-1], summary.errors["Processing"]) == ("done", 1)
    assert engine_setup.ledger.audit("orders")["ok"]


@EACH
def test_the_run_is_killed_and_the_next_one_completes_it(engine_setup: EngineSetup, tmp_path: Path) -> None:
    document = slow_orders(engine_setup, ROWS, seconds=0.3)

    with engine_setup.running(document, tmp_path) as process:
        started(engine_setup, document)
        process.send_signal(signal.SIGKILL)
        process.wait()
    hurry(engine_setup)
    summary = engine_setup.run_again(document)

    assert delivered(engine_setup) == expected(engine_setup)
    assert summary.route[-1] == "done"
    assert engine_setup.ledger.audit("orders")["ok"]


@NOT_STANDING
def test_an_engine_that_is_killed_stops_its_lanes_and_the_next_run_completes_it(engine_setup: EngineSetup) -> None:
    """Spark gives the Python of a task that was cancelled up to four seconds."""
    document = slow_orders(engine_setup, 1_500, seconds=1.4)
    engine = make_engine(engine_setup.pipeline(document))

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine_setup.run, document, engine=engine)
        started(engine_setup, document)
        began = time.monotonic()
        engine.kill()
        took = time.monotonic() - began
        with pytest.raises(EngineError, match="Spark was stopped"):
            running.result(30)
    stopped = settled(engine_setup)

    assert took < 10
    assert stopped < expected(engine_setup)[0] * 3 // 4
    hurry(engine_setup)
    assert engine_setup.run_again(document).route[-1] == "done"
    assert delivered(engine_setup) == expected(engine_setup)
    assert engine_setup.ledger.audit("orders")["ok"]
