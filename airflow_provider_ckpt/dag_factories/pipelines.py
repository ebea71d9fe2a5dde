"""DAGs of YAML files: one file a pipeline, whose ``dag`` section says when it runs, and as what.

Files are read and validated when the DAG file is parsed; what is wrong with one is Airflow's import error, with the
file's name, line and key.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Asset

from airflow_provider_ckpt.config.load import load
from airflow_provider_ckpt.config.schedule import Dag, Shape
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_TASK = "replicate"
_FILES = ("*.yaml", "*.yml")
_PRESETS = frozenset({"@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly"})


def pipeline_dags(
    dag_file: str, folder: str | Path = "pipelines", *, ckpt_conn_id: str = DEFAULT_CONNECTION
) -> dict[str, DAG]:
    """A DAG of every YAML file in a folder that has a ``dag`` section, by DAG id::

        globals().update(pipeline_dags(__file__, "pipelines"))

    One file that is wrong keeps Airflow from importing them all; to keep pipelines apart, give each a DAG file with
    :func:`pipeline_dag`.

    :param dag_file: the DAG file, ``__file__``
    :param folder: relative to the DAG file's own
    :param ckpt_conn_id: the ledger's connection
    :raises ConfigError: naming everything that is wrong with any of the files
    """
    here = Path(dag_file).parent / folder
    if not here.is_dir():
        raise ConfigError(f"{here} is no folder.", hint="It is looked for beside the DAG file.")
    dags: dict[str, DAG] = {}
    wrong = []
    for file in sorted(found for pattern in _FILES for found in here.glob(pattern)):
        try:
            pipeline = load(file)
            if pipeline.dag is None:
                continue
            made = _dag(pipeline, pipeline.dag, dag_file, file, ckpt_conn_id)
            if made.dag_id in dags:
                raise ConfigError(f"{file}: another file of this folder makes the DAG {made.dag_id}, too.")
        except ConfigError as error:
            wrong.append(error.message)
        else:
            dags[made.dag_id] = made
    if wrong:
        raise ConfigError("\n".join(wrong))
    return dags


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
    if section.schedule and section.schedule not in _PRESETS and not _is_cron(section.schedule):
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


def _is_cron(text: str) -> bool:
    from croniter import croniter  # type: ignore[import-untyped]

    return bool(croniter.is_valid(text))


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
