"""Spark application that runs the waves of a run directory and writes their outcomes back.

``spark-submit`` starts it with the run directory as its only argument. It makes no decisions and does not know the
ledger: the process that holds the lease does both. See ``run_directory_protocol.py`` for the files.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    # In a script, this folder is first on the path, and its modules would hide others of the same names.
    del sys.path[0]

from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo, ErrorType
from airflow_provider_ckpt.spark.driver import python_daemon
from airflow_provider_ckpt.spark.driver.parent_death import die_with_parent
from airflow_provider_ckpt.spark.driver.preload import (
    prefer_installed_pyspark,
    preload_in_thread,
    start_worker_in_thread,
)
from airflow_provider_ckpt.spark.driver.run_directory_protocol import DriverSide

_PRELOADED_MODULES = ("pandas", "pyarrow", "airflow_provider_ckpt.config.pipeline")


def main(directory: str) -> int:
    """Run waves until told to stop.

    :param directory: the run directory
    :return: exit status
    """
    die_with_parent()
    side = DriverSide(directory)
    job = side.job()
    prefer_installed_pyspark()
    preload_in_thread(_PRELOADED_MODULES)
    from pyspark.sql import SparkSession

    from airflow_provider_ckpt.spark.sql import first_line, silence_client_logs
    from airflow_provider_ckpt.spark.wave import check_transform, run_wave

    silence_client_logs()
    spark = SparkSession.builder.appName(f"ckpt {job.context.pipeline}").getOrCreate()
    if spark.conf.get(python_daemon.PROPERTY, None) == python_daemon.__name__:
        start_worker_in_thread(spark)
    try:
        columns = check_transform(spark, job)
    except CkptError as error:
        side.failed(0, error.info, final=True)
        return 1
    context = spark.sparkContext
    logged = spark.conf.get("spark.eventLog.enabled", "false") == "true"
    side.ready(
        context.defaultParallelism, columns, ui=context.uiWebUrl, application=context.applicationId if logged else None
    )
    for wave in side.waves():
        started = time.monotonic()
        try:
            outcomes = run_wave(spark, job, wave)
        except CkptError as error:
            side.failed(wave.number, error.info, final=True)
        except Exception as error:  # noqa: BLE001  # process boundary: report the wave as lost; receipts tell what it did
            side.failed(wave.number, ErrorInfo(ErrorType.PROCESSING, first_line(error)), final=False)
        else:
            side.finished(wave.number, outcomes, time.monotonic() - started)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
