"""Identify the task of a DAG run that proposed an action."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import Context


def proposal_origin(context: Context, task_id: str) -> str:
    """Return the origin of a proposal, as the ledger stores it: ``dag/run/task``, with ``[index]`` if mapped.

    :param context: context of any task of the same DAG run with the same map index
    :param task_id: id of the task that proposes
    """
    run, index = context["dag_run"], context["ti"].map_index
    member = "" if index in (None, -1) else f"[{index}]"
    return f"{run.dag_id}/{run.run_id}/{task_id}{member}"
