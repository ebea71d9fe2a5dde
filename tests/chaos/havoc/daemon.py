"""PySpark's daemon with all that lanes need imported before it forks, so that a killed worker soon has a successor."""

from __future__ import annotations

import sys
from importlib import import_module

_NEEDED = (
    "adbc_driver_postgresql.dbapi",
    "confluent_kafka.admin",
    "deltalake",
    "pyarrow.compute",
    "pyarrow.parquet",
    "airflow_provider_ckpt.config.pipeline",
    "airflow_provider_ckpt.spark.wave",
)


def main() -> None:
    """Import, then fork a worker whenever Spark asks for one."""
    # A second copy of PySpark, inside a zip, would come first and be slow to import.
    sys.path[:] = [entry for entry in sys.path if not entry.endswith("pyspark.zip")]
    for name in _NEEDED:
        import_module(name)
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
