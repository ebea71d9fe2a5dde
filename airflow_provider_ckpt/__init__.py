"""Checkpointed micro-batch replication for Apache Airflow and Apache Spark.

Importing the package imports none of its modules, so that Airflow's processes and Spark's executors start fast.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description for Airflow's provider manager; see ``provider_info.py``."""
    from airflow_provider_ckpt.provider_info import get_provider_info

    return get_provider_info()
