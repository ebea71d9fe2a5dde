"""Parse and serialize DAG files with Airflow's functions, which are in different modules in different versions."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

from airflow.serialization import serialized_objects

try:
    from airflow.dag_processing.dagbag import DagBag
except ModuleNotFoundError:  # before Airflow 3.2
    from airflow.models.dagbag import DagBag  # type: ignore[no-redef]

DagSerialization: Any = (
    getattr(serialized_objects, "DagSerialization", None) or vars(serialized_objects)["SerializedDAG"]
)
"""Turns a DAG into what Airflow stores, and back."""


def dag_bag(path: Path | str) -> DagBag:
    """Return the DAGs of a file or folder, and what is wrong with them."""
    known = signature(DagBag).parameters
    arguments: dict[str, Any] = {"bundle_name": "tests", "include_examples": False}
    return DagBag(path, **{name: value for name, value in arguments.items() if name in known})
