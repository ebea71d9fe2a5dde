"""Many tables in one DAG: a failing or dropped table stops no other; a cleared task repeats only tables with work."""

from __future__ import annotations

from typing import Any

import pytest

from tests.services.tables import execute, scalar
from tests.system.airflow.deployment import PATIENCE, Deployment
from tests.system.airflow.many_tables import NAMES, ROWS

pytestmark = pytest.mark.beside

TABLES, LOOK = "replicate.tables", "replicate.find_tables"
REFUSING, DROPPED = "t4", "t5"
OTHERS = [name for name in NAMES if name not in (REFUSING, DROPPED)]


def copied(deployment: Deployment) -> dict[str, int]:
    """The number of rows in each target."""
    return {name: scalar(deployment.store, f"SELECT count(*) FROM copy.{name}") for name in NAMES}


def groups(deployment: Deployment, run_id: str) -> list[dict[str, Any]]:
    """The mapped task instances."""
    path = f"/dags/many/dagRuns/{run_id.replace('+', '%2B')}/taskInstances/{TABLES}/listMapped"
    found: list[dict[str, Any]] = deployment.airflow.api("GET", path)["task_instances"]
    return found


def errors(deployment: Deployment, run_id: str) -> list[str]:
    """The lines of errors of the newest try of each group, by the tables that they name."""
    folder = deployment.airflow.home / "logs/dag_id=many" / f"run_id={run_id}" / f"task_id={TABLES}"
    found = []
    for group in groups(deployment, run_id):
        log = (folder / f"map_index={group['map_index']}" / f"attempt={group['try_number']}.log").read_text()
        found += [name for name in NAMES if f"\\nmany.{name}: " in log]
    return sorted(found)


def clear(deployment: Deployment, run_id: str, task_id: str) -> None:
    """Clear what has failed of a task, or all of one that has not, and what comes after it."""
    body = {
        "dry_run": False,
        "dag_run_id": run_id,
        "task_ids": [task_id],
        "only_failed": task_id == TABLES,
        "include_downstream": True,
        "reset_dag_runs": True,
    }
    deployment.airflow.api("POST", "/dags/many/clearTaskInstances", body)


def epochs(deployment: Deployment) -> dict[str, int]:
    """The epoch of each table's pipeline that has run."""
    return {name: deployment.epoch(f"many.many.{name}") for name in (*OTHERS, REFUSING)}


def test_two_tables_fail_the_others_are_replicated_and_clearing_repeats_what_has_work(deployment: Deployment) -> None:
    deployment.refuse(f"copy.{REFUSING}", whether=True)

    run_id = deployment.begin("many")

    assert deployment.airflow.wait("many", run_id, PATIENCE) == "failed"
    assert copied(deployment) == {**dict.fromkeys(OTHERS, ROWS), REFUSING: 0, DROPPED: 0}
    assert errors(deployment, run_id) == [REFUSING, DROPPED]
    made = groups(deployment, run_id)
    assert [item["map_index"] for item in made] == [0, 1]
    assert all(item["rendered_map_index"].endswith("(3 tables)") for item in made)
    first = epochs(deployment)

    deployment.refuse(f"copy.{REFUSING}", whether=False)
    clear(deployment, run_id, TABLES)

    assert deployment.airflow.wait("many", run_id, PATIENCE) == "failed"
    assert copied(deployment) == {**dict.fromkeys(OTHERS, ROWS), REFUSING: ROWS, DROPPED: 0}
    assert errors(deployment, run_id) == [DROPPED]
    assert epochs(deployment) == first | {REFUSING: first[REFUSING] + 1}

    clear(deployment, run_id, LOOK)

    deployment.succeeds("many", run_id)
    assert epochs(deployment) == first | {REFUSING: first[REFUSING] + 1}
    rows = "SELECT count(*), sum(id), sum(v) FROM"
    for name in (*OTHERS, REFUSING):
        assert execute(deployment.store, f"{rows} many.{name}") == execute(deployment.store, f"{rows} copy.{name}")
