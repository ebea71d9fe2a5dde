"""The example DAGs are parsed without a warning and without heavy imports, and every task can be serialized."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import airflow_provider_ckpt

FOLDER = Path(airflow_provider_ckpt.__file__).parent / "example_dags"
EXAMPLES = sorted(file.name for file in FOLDER.glob("example_*.py"))
HEAVY = {"pyspark", "pyarrow", "pandas", "psycopg2", "deltalake", "adbc_driver_manager", "confluent_kafka"}
_PARSE = """
import json, sys
from tests.services.dag_parsing import DagSerialization, dag_bag
before = set(sys.modules)
bag = dag_bag(sys.argv[1])
stored = {}
for dag in bag.dags.values():
    tasks = DagSerialization.from_dict(DagSerialization.to_dict(dag)).task_ids
    stored.setdefault(dag.fileloc.rpartition("/")[2], {})[dag.dag_id] = sorted(tasks)
loaded = sorted({name.partition(".")[0] for name in set(sys.modules) - before})
print(json.dumps({"errors": bag.import_errors, "warnings": bag.captured_warnings, "dags": stored, "loaded": loaded}))
"""


@pytest.fixture(scope="module")
def parsed() -> dict[str, Any]:
    """Return a new process's view of the folder; one process for all tests, since Airflow starts slowly."""
    environment = {**os.environ, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    parse = [sys.executable, "-c", _PARSE, str(FOLDER)]
    done = subprocess.run(parse, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("file", EXAMPLES)
def test_every_file_makes_dags_with_tasks(parsed: dict[str, Any], file: str) -> None:
    assert all(parsed["dags"][file].values())


def test_none_is_parsed_with_an_error_or_a_warning(parsed: dict[str, Any]) -> None:
    assert parsed["errors"] == {}
    assert parsed["warnings"] == {}


def test_parsing_them_loads_nothing_heavy(parsed: dict[str, Any]) -> None:
    assert "airflow_provider_ckpt" in parsed["loaded"]
    assert not HEAVY & set(parsed["loaded"])
