"""Importing the package is fast, since Airflow does it in every process, and Spark on every executor."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {"airflow", "pyspark", "sqlalchemy", "pyarrow", "pandas", "psycopg2", "deltalake", "adbc_driver_manager"}


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a new interpreter has after a statement."""
    code = (
        f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = loaded_by("import airflow_provider_ckpt")

    assert "airflow_provider_ckpt" in loaded
    assert not loaded & (HEAVY | {"pydantic", "yaml"})


def test_core_needs_the_standard_library_alone() -> None:
    loaded = loaded_by("import airflow_provider_ckpt.core.partition, airflow_provider_ckpt.core.wave_messages")

    assert not loaded & (HEAVY | {"pydantic", "yaml"})


def test_declaring_a_pipeline_and_naming_connectors_loads_nothing_heavy() -> None:
    loaded = loaded_by("import airflow_provider_ckpt.config.load, airflow_provider_ckpt.connectors.registry")

    assert "pydantic" in loaded
    assert not loaded & HEAVY
