"""Identify the task of a DAG run that made a proposal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import Context


def proposal_origin(context: Context, task_id: str) -> str:
    """Return the text that identifies the task of a proposal: ``dag/run/task``, with ``[index]`` if it is mapped.

    :param context: context of any task of the same run
    :param task_id: id of the task that proposes
    """
    run, index = context["dag_run"], context["ti"].map_index
    member = "" if index in (None, -1) else f"[{index}]"
    return f"{run.dag_id}/{run.run_id}/{task_id}{member}"
