"""Run the standing driver of the ``warm`` engine: a Spark application that serves each run in a thread of its own.

``spark-submit`` starts it with two arguments: the driver's own directory, and the seconds without runs after which it
ends. ``run_server.py`` serves the runs, ``standing_protocol.py`` defines the socket on which clients request them, and
``run_directory_protocol.py`` the files of a run.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    # In a script, this folder is first on the path, and its modules would hide others of the same names.
    del sys.path[0]

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.spark.driver import python_daemon, standing_protocol
from airflow_provider_ckpt.spark.driver.parent_death import die_with_parent
from airflow_provider_ckpt.spark.driver.preload import (
    prefer_installed_pyspark,
    preload_in_thread,
    start_worker_in_thread,
)
from airflow_provider_ckpt.spark.driver.run_directory_protocol import PROPERTIES
from airflow_provider_ckpt.spark.driver.run_server import RunServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PRELOADED_MODULES = ("pandas", "pyarrow", "airflow_provider_ckpt.config.pipeline")
_SLOTS_PER_CORE = 4


def _start_spark() -> SparkSession:
    """Start Spark and return its first session; a local master (``local[*]``) gets four task slots per core.

    A lane keeps its slot for a whole wave and waits for source and sink most of the time, so with more slots than cores
    a small run need not wait for the lanes of a large one. A single run still has at most as many lanes as there are
    cores.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from airflow_provider_ckpt.spark.sql import silence_client_logs

    silence_client_logs()
    builder = SparkSession.builder.appName("ckpt standing driver")
    SparkContext._ensure_initialized()  # connects to Java, which knows how many cores a container has
    if SparkConf().get("spark.master") == "local[*]":
        cores = SparkContext._jvm.java.lang.Runtime.getRuntime().availableProcessors()  # type: ignore[union-attr]
        builder = builder.master(f"local[{_SLOTS_PER_CORE * cores}]").config("spark.default.parallelism", cores)
    return builder.getOrCreate()


def main(home: str, idle: str) -> int:
    """Start Spark and serve runs, until no run has needed the driver for a while or the driver is stopped.

    :param home: the driver's own directory, which it removes at its end
    :param idle: seconds without runs after which the driver ends
    :return: exit status 0; the process exits with 1 instead if runs were still in progress
    """
    die_with_parent()
    directory = Path(home)
    (directory / PROPERTIES).unlink(missing_ok=True)
    lock = private_files.append(directory / standing_protocol.LOCK)
    fcntl.flock(lock, fcntl.LOCK_EX)  # waits while another process tests the lock
    prefer_installed_pyspark()
    preload_in_thread(_PRELOADED_MODULES)
    spark = _start_spark()
    if spark.conf.get(python_daemon.PROPERTY, None) == python_daemon.__name__:
        start_worker_in_thread(spark)
    orderly = RunServer(directory, spark, float(idle)).serve()
    if orderly:
        spark.stop()
    shutil.rmtree(directory, ignore_errors=True)
    if not orderly:
        os._exit(1)  # at once, so that runs see that Spark is lost instead of errors during its shutdown
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
