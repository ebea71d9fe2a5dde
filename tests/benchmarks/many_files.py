"""Measure one folder of many YAML files: the cost of parsing it for the DAG processor, and for the start of a task.

Run as a script with the folder of a DAG file, the module parses this file as Airflow does, and prints time and memory;
imports of Airflow and this package are made before. Every third pipeline of a folder is a task group.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_FILE = """
name: orders_{number:03}
source: {{type: postgres, connection: shop, table: public.orders_{number:03}, cursor: id}}
transform:
  where: status <> 'draft'
  select: {{id: id, amount: "cast(amount as decimal(12, 2))", status: upper(status)}}
sink: {{type: postgres, connection: warehouse, table: public.orders_{number:03}, mode: upsert, key: [id]}}
delivery: exactly_once
commit_strategy: {{commit_interval: 5000}}
dag:
  schedule: "*/10 * * * *"
  start_date: 2026-01-01
  pool: replication
  tags: [ckpt, shop]
  shape: {shape}
"""
_DAGS = """
from airflow_provider_ckpt.dag_factories.pipelines import pipeline_dags

globals().update(pipeline_dags(__file__, "pipelines"))
"""
_DAG_ID = "_AIRFLOW_PARSING_CONTEXT_DAG_ID"


def write(folder: Path, files: int) -> None:
    """Write a DAG file and its YAML files; every third pipeline is a task group."""
    (folder / "pipelines").mkdir(parents=True)
    (folder / "dags.py").write_text(_DAGS)
    for number in range(files):
        text = _FILE.format(number=number, shape="operator" if number % 3 else "task_group")
        (folder / "pipelines" / f"orders_{number:03}.yaml").write_text(text)


def measure(home: Path, files: int, rounds: int) -> dict[str, Any]:
    """Parse a folder of so many files, and one of a single file, each in processes of its own.

    :return: medians in seconds of processor time, and MiB
    """
    found: dict[str, Any] = {"files": files}
    for name, count in (("all", files), ("one", 1)):
        write(home / name, count)
        told = [parse(home, home / name) for _ in range(rounds)]
        found[name] = {key: round(statistics.median(item[key] for item in told), 3) for key in told[0]}
    every, one = found["all"], found["one"]
    return {
        "files": files,
        "parse_seconds": every["parse"],
        "serialize_seconds": every["serialize"],
        "parse_mib": round(every["mib"] - one["mib"], 1),
        "task_seconds": every["task"],
        "task_seconds_with_one_file": one["task"],
    }


def parse(home: Path, folder: Path) -> dict[str, float]:
    """Parse a folder in a process of its own, and return what it took.

    :param home: directory for Airflow's home
    :param folder: folder of the DAG file
    """
    env = {**os.environ, "AIRFLOW_HOME": str(home / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(folder)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(folder: str) -> None:
    """Parse the folder for all its DAGs, serialize them as the DAG processor does, then parse it for one DAG's task."""
    from airflow.dag_processing.dagbag import DagBag
    from airflow.serialization.serialized_objects import DagSerialization

    import airflow_provider_ckpt.operators.replicate
    import airflow_provider_ckpt.task_groups.database
    import airflow_provider_ckpt.task_groups.replication  # noqa: F401

    times = [time.process_time()]
    bag = DagBag(folder)
    times.append(time.process_time())
    if bag.import_errors:
        raise RuntimeError(bag.import_errors)
    for dag in bag.dags.values():
        DagSerialization.to_dict(dag)
    times.append(time.process_time())
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    os.environ[_DAG_ID] = max(bag.dags)
    times.append(time.process_time())
    assert len(DagBag(folder).dags) == 1
    times.append(time.process_time())
    told = {"parse": times[1] - times[0], "serialize": times[2] - times[1], "task": times[4] - times[3], "mib": mib}
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
