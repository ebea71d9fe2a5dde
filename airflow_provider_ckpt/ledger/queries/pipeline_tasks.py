"""Query which tasks have planned a pipeline; users' rights on the DAGs of these tasks apply to the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.ledger.store import tables

_P, _T = tables.pipeline.c, tables.pipeline_task.c

Tasks = tuple[tuple[str, str], ...]
"""Tasks in alphabetical order, each as a pair of its DAG's id and its task id."""


@dataclass(frozen=True, slots=True)
class PlannedPipeline:
    """Pipeline with the tasks that have planned it.

    :param name: name of the pipeline
    :param planned_at: time of its last planning; None if it was never planned
    :param tasks: the tasks
    """

    name: str
    planned_at: datetime | None
    tasks: Tasks


def planned_pipeline(connection: Connection, pipeline: str) -> PlannedPipeline | None:
    """Return a pipeline with the tasks that have planned it; None if the ledger does not know it.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    """
    query = sa.select(_P.planned_at, _T.dag_id, _T.task_id).outerjoin(tables.pipeline_task, _T.pipeline == _P.name)
    rows = connection.execute(query.where(_P.name == pipeline).order_by(_T.dag_id, _T.task_id)).all()
    if not rows:
        return None
    return PlannedPipeline(pipeline, rows[0][0], tuple((row[1], row[2]) for row in rows if row[1] is not None))


def tasks_by_pipeline(connection: Connection, pipeline: str | None) -> dict[str, Tasks]:
    """Return the tasks that have planned each pipeline, by name of the pipeline.

    Pipelines that no task has planned are left out.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the only pipeline to look up; None for all
    """
    query = sa.select(_T.pipeline, _T.dag_id, _T.task_id).order_by(_T.pipeline, _T.dag_id, _T.task_id)
    if pipeline is not None:
        query = query.where(_T.pipeline == pipeline)
    found: dict[str, Tasks] = {}
    for name, dag_id, task_id in connection.execute(query):
        found[name] = (*found.get(name, ()), (dag_id, task_id))
    return found
