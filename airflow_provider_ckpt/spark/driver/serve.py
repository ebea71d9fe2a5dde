"""Serve one run in a driver: check its transform, execute its waves, and write their outcomes to the run directory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo, ErrorType
from airflow_provider_ckpt.spark.driver.stopped import is_stopped
from airflow_provider_ckpt.spark.sql import first_line

if TYPE_CHECKING:
    from airflow_provider_ckpt.spark.driver.run_directory_protocol import DriverSide
    from airflow_provider_ckpt.spark.job import Job
    from airflow_provider_ckpt.spark.prepared_plans import PreparedWaves


def serve(prepared: PreparedWaves, side: DriverSide, job: Job) -> bool:
    """Execute the waves of a run until the lease holder ends the run.

    The error of a wave is reported to the lease holder, which finds out from the receipts which batches were delivered.

    :param prepared: the Spark session that executes the run
    :param side: the driver's operations on the run directory: source of the waves, destination of the outcomes
    :param job: description of the run
    :raises Exception: the error of a wave, if Spark has stopped by itself, because no further wave could run
    :return: False if the run was refused before its first wave because its transform cannot be used; else True
    """
    spark = prepared.spark
    try:
        columns = prepared.check_transform(job)
    except CkptError as error:
        side.failed(0, error.info, final=True)
        return False
    context = spark.sparkContext
    logged = spark.conf.get("spark.eventLog.enabled", "false") == "true"
    side.ready(
        context.defaultParallelism, columns, ui=context.uiWebUrl, application=context.applicationId if logged else None
    )
    for wave in side.waves():
        started = time.monotonic()
        try:
            outcomes = prepared.run_wave(job, wave, side.directory)
        except CkptError as error:
            side.failed(wave.number, error.info, final=True)
        except Exception as error:
            if is_stopped(spark):  # without Spark, each further wave would fail too, until its batches were held
                raise
            side.failed(wave.number, ErrorInfo(ErrorType.PROCESSING, first_line(error)), final=False)
        else:
            side.finished(wave.number, outcomes, time.monotonic() - started)
    return True
