"""PySpark daemon, the process that forks Spark's Python workers.

It imports the modules that lanes need once, before it forks. Spark starts it by module name, so it is used only where
this package is installed for the executors' Python, as on a local master. Elsewhere PySpark's own daemon is used.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable

from airflow_provider_ckpt.spark.driver.preload import prefer_installed_pyspark, preload

PROPERTY = "spark.python.daemon.module"
_MODULES_VARIABLE = "CKPT_PRELOADED_MODULES"
_LANE_MODULES = (
    "pyarrow.compute",
    "pandas",
    "pyspark.worker",
    "airflow_provider_ckpt.config.pipeline",
    "airflow_provider_ckpt.spark.lane.fast_path",
    "airflow_provider_ckpt.spark.lane.deliver",
    "airflow_provider_ckpt.spark.lane.read",
)


def properties(modules: Iterable[str]) -> dict[str, str]:
    """Return the Spark properties that make Spark start this module as its Python daemon.

    :param modules: names of further modules to import, which the run's connectors need
    """
    return {PROPERTY: __name__, f"spark.executorEnv.{_MODULES_VARIABLE}": " ".join(modules)}


def main() -> None:
    """Import the modules that lanes and connectors need, then fork a worker whenever Spark requests one."""
    prefer_installed_pyspark()
    preload([*_LANE_MODULES, *os.environ.get(_MODULES_VARIABLE, "").split()])
    gc.freeze()  # keeps memory of imported modules shared between workers
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
