"""Build and parse the names of lease owners that are tasks of DAG runs.

``replication/process_lease_owner.py`` builds the names of lease owners that are processes.
"""

from __future__ import annotations


def of_task(dag_id: str, run_id: str, pipeline: str, task: str) -> str:
    """Return the lease owner name of a task or task group, such as ``dag:orders/manual__1/orders/replicate``.

    All tries of a task, and all tasks of a task group, have the same name.

    :param dag_id: id of the DAG
    :param run_id: id of the DAG run
    :param pipeline: name of the pipeline
    :param task: id of the task or group; with its map index if it is mapped, such as ``replicate[2]``
    """
    return f"dag:{dag_id}/{run_id}/{pipeline}/{task}"


def dag_run_of(owner: str | None) -> tuple[str, str] | None:
    """Return the DAG id and run id in an owner name; None if the owner is not a task of a DAG run."""
    parts = _parts(owner)
    return (parts[0], parts[1]) if parts else None


def task_of(owner: str | None) -> tuple[str, int] | None:
    """Return the id and the map index of the task, or task group, in an owner name; None if the owner is not a task.

    The map index is -1 if the task is not mapped.
    """
    parts = _parts(owner)
    if parts is None:
        return None
    name, _, index = parts[3].removesuffix("]").partition("[")
    return name, int(index) if index else -1


def _parts(owner: str | None) -> list[str] | None:
    """Return DAG id, run id, pipeline and task of an owner name; None if the owner is not a task."""
    kind, _, rest = (owner or "").partition(":")
    parts = rest.split("/")
    return parts if kind == "dag" and len(parts) == 4 else None
