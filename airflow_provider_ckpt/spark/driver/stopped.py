"""Detect that Spark has stopped by itself, as after an error in its scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_stopped(spark: SparkSession) -> bool:
    """Return whether Spark has stopped by itself, so that none of its sessions can run anything."""
    return bool(spark.sparkContext._jsc.sc().isStopped())  # PySpark has no public access to this
