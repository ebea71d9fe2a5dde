"""Create a DAG from the section ``dag`` of a YAML file, which declares one pipeline or many tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset

from airflow_provider_ckpt.config.schedule import DagSection
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.schedules import schedule_problem


def dag_of_section(
    section: DagSection,
    name: str,
    *,
    file: Path,
    doc_md: str,
    default_args: Mapping[str, Any],
    add_tasks: Callable[[], object],
    schedule: Any = None,
) -> DAG:
    """Create the DAG that a section ``dag`` describes.

    :param section: the section
    :param name: the DAG's id, unless the section gives one
    :param file: path of the file with the section, for the error message
    :param doc_md: the DAG's description in Markdown
    :param default_args: default arguments of the DAG's tasks; arguments in the section take precedence over them
    :param add_tasks: function that adds the tasks to the DAG that is being created
    :param schedule: the DAG's schedule; None for the section's cron expression, interval or assets
    :raises ConfigError: if the schedule is invalid
    """
    problem = schedule_problem(section.schedule)
    if problem:
        raise ConfigError(f"{file}: {problem}")
    if schedule is None:
        schedule = section.schedule or section.every or [Asset(uri) for uri in section.assets] or None
    with DAG(
        section.dag_id or name,
        schedule=schedule,
        start_date=section.start_date,
        description=section.description,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=section.paused,
        tags=list(section.tags),
        default_args={
            "owner": section.owner,
            "retries": section.task_retries,
            **default_args,
            **section.task_arguments,
        },
        doc_md=doc_md,
    ) as dag:
        try:
            add_tasks()
        except BaseException:
            dag.auto_register = False  # otherwise Airflow would register the incomplete DAG
            raise
    return dag


def path_from(dag_file: str, file: Path) -> str:
    """Return the path of a YAML file relative to the DAG file's folder.

    A relative path also works on a worker that has the folder elsewhere.

    :param dag_file: path of the DAG file
    :param file: path of the YAML file
    """
    return os.path.relpath(file, Path(dag_file).parent)
