"""Explain where the state of a DAG run in Airflow disagrees with the ledger, for ``airflow ckpt status``.

If a user marks a DAG run as success or failed in Airflow, no batch gets a verdict by that. Airflow and the ledger then
disagree, and the ledger is right. If a task is running when it is marked, Airflow stops it, and its open attempts are
cancelled (``operators/_on_kill.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.task_lease_owner import dag_run_of, task_of
from airflow_provider_ckpt.replication.process_lease_owner import is_held

log = logging.getLogger(__name__)

_LEASED_TASKS = ("plan", "submit", "settle", "route", "retry")
"""Names, inside their task group, of the tasks that hold the pipeline's lease while they run."""
_WITHOUT_VERDICT = (BatchState.PLANNED, BatchState.IN_FLIGHT)


def last_dag_run(status: dict[str, Any]) -> dict[str, Any] | None:
    """Return the DAG run that last worked on a pipeline, with its state and its disagreement with the ledger.

    It is the DAG run that owns the lease or, if no DAG run owns it, the DAG run that last started batches. None if
    there is neither.

    :param status: the pipeline's status from the ledger
    :return: JSON-ready dict with ``dag_id``, ``run_id``, ``state`` (None if Airflow does not know the run), and
        ``disagrees``, an explanation, or None if Airflow and the ledger agree
    """
    owner = next(filter(dag_run_of, (status["lease"]["owner"], status["begun_by"])), None)
    found = dag_run_of(owner)
    if owner is None or found is None:
        return None
    dag_id, run_id = found
    state, running = _dag_run_state(dag_id, run_id), _running_tasks(owner)
    explanation = contradiction(state, status, running)
    return {"dag_id": dag_id, "run_id": run_id, "state": state, "disagrees": explanation}


def contradiction(state: str | None, status: dict[str, Any], running: Sequence[str] = ()) -> str | None:
    """Return an explanation if the state of a DAG run in Airflow contradicts the ledger; None if they agree.

    For example: ``the DAG run is a success, but batches have no verdict: 3 planned; the next run sends them``.

    :param state: the DAG run's state in Airflow; None if Airflow does not know the run
    :param status: the pipeline's status from the ledger
    :param running: tasks that work on the pipeline under a lease and that Airflow shows as running
    """
    if state == "running" and running and not is_held(status["lease"]):
        return (
            f"Airflow shows {', '.join(running)} as running, but no run holds the lease: the task is about to start or "
            "to end, or its worker has died, which Airflow notices later; the next run sends the batches that have no "
            "verdict"
        )
    undone = [
        f"{status['batches'][name.value]} {name.value}"
        for name in _WITHOUT_VERDICT
        if status["batches"].get(name.value)
    ]
    if state == "success" and undone:
        return f"the DAG run is a success, but batches have no verdict: {', '.join(undone)}; the next run sends them"
    if state == "failed" and not undone and not status["held"]:
        return "the DAG run failed, but all planned batches have a verdict: nothing has to be sent again"
    return None


def _running_tasks(owner: str) -> list[str]:
    """Return the ids of the tasks that Airflow shows as running and that should therefore hold the lease.

    The name of a lease's owner contains a DAG run and a task or task group; the result has this task, or the tasks of
    this group. It is empty if the owner is no Airflow task, or Airflow's metadata database cannot be read.

    :param owner: owner of a lease, as the ledger stores it
    """
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError

    run, task = dag_run_of(owner), task_of(owner)
    if run is None or task is None:
        return []
    columns = (TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.map_index, TaskInstance.state)
    there = (*run, task[1], "running")
    names = [task[0], *(f"{task[0]}.{name}" for name in _LEASED_TASKS)]
    query = select(TaskInstance.task_id).where(
        TaskInstance.task_id.in_(names), *(column == value for column, value in zip(columns, there, strict=True))
    )
    try:
        with create_session() as session:
            return sorted(session.scalars(query))
    except SQLAlchemyError as error:
        log.debug("cannot read tasks from Airflow's metadata database: %s", error)
        return []


def _dag_run_state(dag_id: str, run_id: str) -> str | None:
    """Return the state of a DAG run in Airflow, such as ``success``.

    :param dag_id: id of the DAG
    :param run_id: id of the DAG run
    :return: None if Airflow does not know the run, or its metadata database cannot be read
    """
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with create_session() as session:
            known = select(DagRun.state).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
            state = session.scalar(known)
    except SQLAlchemyError as error:
        log.debug("cannot read DAG runs from Airflow's metadata database: %s", error)
        return None
    return None if state is None else str(state)
