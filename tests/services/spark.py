"""Local Spark session for tests, configured like that of a pipeline's driver."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONF = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.codegen.hugeMethodLimit": "8000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
}


def local_session(conf: Mapping[str, str] | None = None, *, cores: int = 2) -> SparkSession:
    """Start a session in this process; the caller stops it.

    :param conf: further properties
    :param cores: how many tasks run at once
    """
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{cores}]").appName("tests")
    for name, value in {**_CONF, **(conf or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
