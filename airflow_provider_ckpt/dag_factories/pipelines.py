"""DAGs of YAML files: one file a pipeline, whose ``dag`` section says when it runs, and as what.

Files are read and validated when the DAG file is parsed. A file that is wrong costs its own DAG alone: in its place
stands one that says what is wrong, with the file's name, line and key, and fails with it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Container, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Asset, get_parsing_context

from airflow_provider_ckpt.config.load import load
from airflow_provider_ckpt.config.outline import outline
from airflow_provider_ckpt.config.schedule import Dag, Shape
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.operators.broken import CkptBrokenPipelineOperator

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

log = logging.getLogger(__name__)

_TASK = "replicate"
_FILES = ("*.yaml", "*.yml")
_PRESETS = frozenset({"@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly"})


def pipeline_dags(
    dag_file: str, folder: str | Path = "pipelines", *, ckpt_conn_id: str = DEFAULT_CONNECTION
) -> dict[str, DAG]:
    """A DAG of every YAML file in a folder that has a ``dag`` section, by DAG id::

        globals().update(pipeline_dags(__file__, "pipelines"))

    A file that is wrong becomes a DAG that carries the error in its docs and fails with it, tagged ``broken``: under
    its own DAG id and schedule as far as they can be read, else as ``broken_<file>``. When a task runs, only the file
    of its DAG is read.

    :param dag_file: the DAG file, ``__file__``
    :param folder: relative to the DAG file's own
    :param ckpt_conn_id: the ledger's connection
    :raises ConfigError: if there is no such folder
    """
    here = Path(dag_file).parent / folder
    if not here.is_dir():
        raise ConfigError(f"{here} is no folder.", hint="It is looked for beside the DAG file.")
    files = sorted(found for pattern in _FILES for found in here.glob(pattern))
    dags: dict[str, DAG] = {}
    for file in _wanted(files, get_parsing_context().dag_id):
        made = _dag_or_error(dag_file, file, ckpt_conn_id, taken=dags)
        if made is not None:
            dags[made.dag_id] = made
    return dags


def _wanted(files: Sequence[Path], dag_id: str | None) -> Sequence[Path]:
    """The one file that makes a DAG, all of them if none says so or no single DAG is asked for."""
    if dag_id is None:
        return files
    return next(([file] for file in files if outline(file).dag_id == dag_id), files)


def _dag_or_error(dag_file: str, file: Path, ckpt_conn_id: str, *, taken: Container[str]) -> DAG | None:
    """The DAG of a file, the one that says what is wrong with it, or None where the file asks for no DAG."""
    try:
        pipeline = load(file)
        if pipeline.dag is None:
            return None
        dag_id = pipeline.dag.dag_id or pipeline.name
        if dag_id in taken:
            raise ConfigError(f"{file}: another file of this folder makes the DAG {dag_id}, too.")
        return _dag(pipeline, pipeline.dag, dag_file, file, ckpt_conn_id)
    except ConfigError as error:
        log.error("%s", error.message)
        return _broken(file, error.message, taken)


def _broken(file: Path, error: str, taken: Container[str]) -> DAG:
    found = outline(file)
    dag_id = found.dag_id
    if dag_id is None or dag_id in taken:
        dag_id = f"broken_{re.sub(r'[^A-Za-z0-9_.-]', '_', file.name)}"
    shown = "\n".join(f"    {line}" for line in error.splitlines())
    with DAG(
        dag_id,
        schedule=found.schedule if _is_schedule(found.schedule) else None,
        start_date=found.start_date,
        description=f"{file.name} cannot be used",
        catchup=False,
        max_active_runs=1,
        tags=["ckpt", "broken"],
        doc_md=f"`{file.name}` cannot be used, so nothing is replicated:\n\n{shown}\n",
    ) as dag:
        CkptBrokenPipelineOperator(task_id=_TASK, error=error)
    return dag


def pipeline_dag(dag_file: str, file: str | Path, *, ckpt_conn_id: str = DEFAULT_CONNECTION) -> DAG:
    """The DAG of one YAML file::

        dag = pipeline_dag(__file__, "pipelines/orders.yaml")

    :param dag_file: the DAG file, ``__file__``
    :param file: relative to the DAG file's folder; without a ``dag`` section the DAG has no schedule
    :param ckpt_conn_id: the ledger's connection
    :raises ConfigError: naming everything that is wrong with the file
    """
    path = Path(dag_file).parent / file
    pipeline = load(path)
    return _dag(pipeline, pipeline.dag or Dag(), dag_file, path, ckpt_conn_id)


def _dag(pipeline: Pipeline, section: Dag, dag_file: str, file: Path, ckpt_conn_id: str) -> DAG:
    if pipeline.transform.of_task:
        raise ConfigError(
            f"{file}: transform.python: task says that a DAG file has its function; "
            "give it one with @task.ckpt_batch, or name a function that can be imported."
        )
    shared: dict[str, Any] = {
        # As the worker finds it: there the DAG file may lie elsewhere.
        "pipeline": os.path.relpath(file, Path(dag_file).parent),
        "ckpt_conn_id": ckpt_conn_id,
    }
    if not _is_schedule(section.schedule):
        raise ConfigError(
            f"{file}: dag.schedule: {section.schedule!r} is no schedule; "
            f"write a cron expression, or one of: {', '.join(sorted(_PRESETS))}"
        )
    with DAG(
        section.dag_id or pipeline.name,
        schedule=_schedule(pipeline, section, ckpt_conn_id),
        start_date=section.start_date,
        description=section.description,
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=section.paused,
        tags=list(section.tags),
        default_args={"owner": section.owner, "retries": section.task_retries},
        doc_md=f"Pipeline `{pipeline.name}`, made of `{file.name}`.",
    ) as dag:
        if section.shape is Shape.OPERATOR:
            from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator

            CkptReplicateOperator(task_id=_TASK, **shared)
        else:
            from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup

            CkptReplicationTaskGroup(_TASK, deferrable=section.deferrable, **shared)
    return dag


def _is_schedule(given: str | timedelta | None) -> bool:
    from croniter import croniter  # type: ignore[import-untyped]

    return not isinstance(given, str) or not given or given in _PRESETS or bool(croniter.is_valid(given))


def _schedule(pipeline: Pipeline, section: Dag, ckpt_conn_id: str) -> Any:
    if section.work is not None:
        from airflow_provider_ckpt.assets.work import work_asset

        return work_asset(
            pipeline,
            at_least=section.work.at_least,
            longest_wait=section.work.longest_wait,
            look_every=section.work.look_every,
            ckpt_conn_id=ckpt_conn_id,
        )
    return section.schedule or section.every or [Asset(uri) for uri in section.assets] or None
