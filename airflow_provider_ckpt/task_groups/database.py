"""``CkptDatabaseTaskGroup``: replicate many tables of a database with a bounded number of tasks."""

from __future__ import annotations

from typing import Any

from airflow.sdk import TaskGroup

from airflow_provider_ckpt.operators._database_declaration import DatabaseDeclaration
from airflow_provider_ckpt.operators.database import CkptDatabaseTablesOperator, CkptFindTablesOperator
from airflow_provider_ckpt.task_groups._arguments import split_arguments, without_none


class CkptDatabaseTaskGroup(TaskGroup):
    """Replicate the tables of a database that have work, in a few groups with one task each::

        find_tables → tables[0 … groups-1]

    ``find_tables`` compares the whole database with the ledger once, and distributes the tables that have work over at
    most ``database.groups`` groups of about equal work. ``tables`` is a mapped task with one instance for each group,
    which replicates the tables of its group, several at a time. It is skipped if no table has work.

    :param group_id: id of the task group, and prefix of its tasks' ids
    :param database: declaration of the tables (templated): path of a YAML file relative to the DAG file's folder, or a
        dict
    :param ckpt_conn_id: Airflow connection of the ledger (templated); by default from ``default_args``
    :param kwargs: further arguments of ``TaskGroup``, or of the tasks: ``trigger_rule`` and ``inlets`` are passed to
        ``find_tables``, ``outlets`` to ``tables``, and all others, such as ``pool`` and ``retries``, to both tasks
    :raises TypeError: if an argument is neither one of ``TaskGroup`` nor of ``BaseOperator``
    """

    def __init__(
        self, group_id: str, *, database: DatabaseDeclaration, ckpt_conn_id: str | None = None, **kwargs: Any
    ) -> None:
        given = split_arguments(type(self).__name__, group_id, kwargs)
        super().__init__(group_id=group_id, **given.of_group)
        shared: dict[str, Any] = {
            "database": database,
            "task_group": self,
            "dag": self.dag,
            **without_none(ckpt_conn_id=ckpt_conn_id),
            **given.of_tasks,
        }
        find_tables = CkptFindTablesOperator(task_id="find_tables", **given.of_first, **shared)
        CkptDatabaseTablesOperator.partial(
            task_id="tables", map_index_template="{{ task.label }}", **given.of_last, **shared
        ).expand(tables=find_tables.output)
