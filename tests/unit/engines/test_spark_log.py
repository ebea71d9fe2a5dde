"""Lines of Spark's output arrive in the task's log at the level that Spark gave them."""

from __future__ import annotations

import logging
import time

import pytest

from airflow_provider_ckpt.engines.spark_log import SparkLog, level_of


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("26/11/23 04:00:00 WARN NativeCodeLoader: Unable to load native-hadoop library", logging.WARNING),
        ("26/11/23 04:00:00 ERROR Executor: Exception in task 0.0 in stage 1.0", logging.ERROR),
        ("26/11/23 04:00:00 INFO SparkContext: Running Spark version 4.0.1", logging.INFO),
        ("26/11/23 04:00:00 DEBUG Utils: x", logging.DEBUG),
        ("2026-11-23T04:00:00.123Z WARN [main] o.a.s.Thing: x", logging.WARNING),
        ("2026-11-23 04:00:00,123 [WARN] Thing - x", logging.WARNING),
        ("[2026-11-23 04:00:00] FATAL Thing - x", logging.ERROR),
        ("WARNING: An illegal reflective access operation has occurred", logging.WARNING),
        ("WARN: x", logging.WARNING),
        ("the query said WARN and ERROR: nothing of it", logging.INFO),
        ("WARNINGS are counted", logging.INFO),
        ("", logging.INFO),
    ],
)
def test_a_line_has_the_level_that_spark_gave_it(line: str, level: int) -> None:
    assert level_of(line) == level


def test_a_stack_trace_has_the_level_of_the_line_before_it(caplog: pytest.LogCaptureFixture) -> None:
    log = SparkLog(logging.getLogger("spark"))
    lines = [
        "26/11/23 04:00:00 ERROR Executor: no",
        "java.lang.IllegalStateException: no",
        "at org.apache.spark.Thing.run(Thing.scala:7)",
        "Caused by: java.io.IOException: full",
        "... 12 more",
        "a print of a user's function",
    ]
    with caplog.at_level(logging.DEBUG, "spark"):
        for line in lines:
            log.info(line)
        log.info("Identified %s", "driver-1")

    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        *((logging.ERROR, line) for line in lines[:5]),
        (logging.INFO, lines[5]),
        (logging.INFO, "Identified driver-1"),
    ]


def test_a_long_line_is_read_in_no_time() -> None:
    started = time.perf_counter()
    for line in ("1" * 1_000_000, "a" * 1_000_000, "1 " * 500_000, "[" * 1_000_000):
        level_of(line)
    assert time.perf_counter() - started < 10, "backtracking takes minutes"
