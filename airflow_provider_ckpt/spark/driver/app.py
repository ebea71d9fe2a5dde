"""Spark application of the ``submit`` engine: it runs the waves of one run and returns their outcomes.

``spark-submit`` starts it with the path of the run directory. In that directory it exchanges files with the lease
holder, the process that holds the pipeline's lease; the lease holder plans the waves and is the only one to use the
ledger. See ``run_directory_protocol.py`` for the files.
"""

from __future__ import annotations

import sys
from pathlib import Path

if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
    # In a script, this folder is first on the path, and its modules would hide others of the same names.
    del sys.path[0]

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
    """Run the waves that the lease holder, the process that plans them, sends through the run directory.

    :param directory: path of the run directory
    :return: exit status: 1 if no wave was run because the check of the pipeline's transform failed, for example at an
        expression that Spark cannot parse; otherwise 0, whatever the outcomes of the batches
    """
    die_with_parent()
    side = DriverSide(directory)
    job = side.job()
    prefer_installed_pyspark()
    preload_in_thread(_PRELOADED_MODULES)
    from pyspark.sql import SparkSession

    from airflow_provider_ckpt.spark.driver.serve import serve
    from airflow_provider_ckpt.spark.prepared_plans import PreparedWaves
    from airflow_provider_ckpt.spark.sql import silence_client_logs

    silence_client_logs()
    spark = SparkSession.builder.appName(f"ckpt {job.context.pipeline}").getOrCreate()
    if spark.conf.get(python_daemon.PROPERTY, None) == python_daemon.__name__:
        start_worker_in_thread(spark)
    served = serve(PreparedWaves(spark), side, job)
    if served:
        spark.stop()
    return 0 if served else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
