"""PySpark's daemon with what lanes need imported before it forks, so that it is imported once and not in every worker.

Spark starts it by name, so this package must be installed beside the executing Python, as it is on a local master.
Elsewhere PySpark's own daemon serves.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable

from airflow_provider_ckpt.spark.driver.preload import prefer_installed_pyspark, preload

PROPERTY = "spark.python.daemon.module"
_MODULES = "CKPT_PRELOADED_MODULES"
_ALWAYS = (
    "pyarrow.compute",
    "pandas",
    "pyspark.worker",
    "airflow_provider_ckpt.config.pipeline",
    "airflow_provider_ckpt.spark.lane.fast_path",
    "airflow_provider_ckpt.spark.lane.deliver",
    "airflow_provider_ckpt.spark.lane.read",
)


def properties(modules: Iterable[str]) -> dict[str, str]:
    """Spark's properties by which this daemon serves.

    :param modules: what else to import, as the run's connectors need it
    """
    return {PROPERTY: __name__, f"spark.executorEnv.{_MODULES}": " ".join(modules)}


def main() -> None:
    """Import, then fork a worker whenever Spark asks for one."""
    prefer_installed_pyspark()
    preload([*_ALWAYS, *os.environ.get(_MODULES, "").split()])
    gc.freeze()  # what is imported stays shared between the workers
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
