"""The line that explains why Spark has ended never quotes a harmless line of the output."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.engines.exit_reason import explain

_HARMLESS = [
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties",
    "26/11/21 13:00:00 WARN NativeCodeLoader: Unable to load native-hadoop library: java.lang.UnsatisfiedLinkError: x",
    'Setting default log level to "WARN".',
    "To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).",
    'Setting Spark log level to "WARN".',
    "",
]


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (-9, "it was killed by SIGKILL, as the kernel does when memory runs out"),
        (137, "exit status 137, that is SIGKILL, as the kernel does when memory runs out"),
        (-15, "it was killed by SIGTERM"),
        (134, "exit status 134, that is SIGABRT"),
        (1, "exit status 1"),
        (0, "exit status 0"),
    ],
)
def test_harmless_lines_are_dropped_and_the_status_remains(status: int, says: str) -> None:
    assert explain(status, _HARMLESS) == says


def test_the_last_error_is_told_not_its_stack_trace() -> None:
    lines = [
        'Exception in thread "main" org.apache.spark.SparkException: something failed',
        "at org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3242)",
        "Caused by: java.net.BindException: Cannot assign requested address",
        "at java.base/sun.nio.ch.Net.bind0(Native Method)",
        "... 21 more",
        *_HARMLESS,
    ]
    assert explain(1, lines) == (
        "exit status 1; the last error it printed: Caused by: java.net.BindException: Cannot assign requested address"
    )


def test_a_python_traceback_is_told_by_its_last_line() -> None:
    lines = [
        "Traceback (most recent call last):",
        'File "/opt/driver.py", line 21, in <module>',
        "raise ImportError(name)",
        "^^^^^^^^^^^^^^^^^^^^^^^",
        "ModuleNotFoundError: No module named 'airflow_provider_ckpt'",
    ]
    assert explain(1, lines).endswith("ModuleNotFoundError: No module named 'airflow_provider_ckpt'")


def test_an_error_before_the_signal_is_told_too() -> None:
    lines = ["26/11/21 13:00:00 ERROR Executor: Exception in task 0.0: java.lang.OutOfMemoryError", *_HARMLESS]
    assert explain(-6, lines).startswith("it was killed by SIGABRT; the last error it printed: 26/11/21 13:00:00 ERROR")


def test_a_start_script_that_speaks_of_no_error_is_quoted_all_the_same() -> None:
    assert explain(1, ["JAVA_HOME is not set"]) == "exit status 1; the last line it printed: JAVA_HOME is not set"


def test_what_is_no_error_does_not_explain_a_signal() -> None:
    assert explain(-9, ["row 17"]) == "it was killed by SIGKILL, as the kernel does when memory runs out"


def test_a_program_that_is_not_there_is_named() -> None:
    missing = FileNotFoundError(2, "No such file or directory", "spark-submit")
    assert explain(None, [], missing) == (
        "spark-submit could not be started: [Errno 2] No such file or directory: 'spark-submit'"
    )


def test_an_endless_line_is_cut() -> None:
    assert len(explain(1, ["ValueError: " + "x" * 10_000])) < 500
