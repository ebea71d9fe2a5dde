"""PySpark's daemon with what lanes need imported before it forks, so that it is imported once and not in every worker.

Spark starts it by ``spark.python.daemon.module``, which the launcher sets where this package is installed beside the
executing Python: on a local master. Elsewhere PySpark's own daemon serves.
"""

from __future__ import annotations

import gc
import os

from airflow_provider_ckpt.spark.warming import MODULES, prefer_installed_pyspark, preload

_ALWAYS = (
    "pyarrow.compute",
    "pandas",
    "pyspark.worker",
    "airflow_provider_ckpt.config.pipeline",
    "airflow_provider_ckpt.spark.copying",
    "airflow_provider_ckpt.spark.delivery",
    "airflow_provider_ckpt.spark.reading",
)


def main() -> None:
    """Import, then fork a worker whenever Spark asks for one."""
    prefer_installed_pyspark()
    preload([*_ALWAYS, *os.environ.get(MODULES, "").split()])
    gc.freeze()  # what is imported stays shared between the workers
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
