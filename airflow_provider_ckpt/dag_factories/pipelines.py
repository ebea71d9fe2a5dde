"""Create DAGs from YAML files. A file declares a pipeline or many tables, and in its section ``dag`` the DAG.

Files are read and validated when the DAG file is parsed. An invalid file affects only its own DAG. It is replaced by a
DAG that shows the error, with file name, line and key, and whose task fails with this error.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Asset, get_parsing_context

from airflow_provider_ckpt.config.characters import for_message
from airflow_provider_ckpt.config.outline import declares_many_tables, may_declare, read_outline
from airflow_provider_ckpt.config.schedule import DagSection, DagShape
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.dag_factories._section import dag_of_section, path_from
from airflow_provider_ckpt.dag_factories.databases import create_database_dag
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.operators._database_declaration import load_database_file
from airflow_provider_ckpt.operators._declaration import load_file
from airflow_provider_ckpt.operators.broken_pipeline import CkptBrokenPipelineOperator
from airflow_provider_ckpt.schedules import schedule_problem

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

log = logging.getLogger(__name__)

_TASK_ID = "replicate"
_YAML_PATTERNS = ("*.yaml", "*.yml")
_MAX_FILE_NAME = 200
"""Largest number of characters of a file's name in a DAG id (Airflow allows 250 characters) or in a message."""
_MAX_ERROR = 500


def pipeline_dags(
    dag_file: str,
    folder: str | Path = "pipelines",
    *,
    ckpt_conn_id: str = DEFAULT_CONNECTION,
    default_args: Mapping[str, Any] | None = None,
) -> dict[str, DAG]:
    """Create a DAG from every YAML file in a folder that has a ``dag`` section::

        globals().update(pipeline_dags(__file__, "pipelines"))

    For an invalid file, a DAG with the tag ``broken`` is created: it shows the error in its docs, and its task fails
    with the error. This DAG has the DAG id and the schedule that the file declares, if they can be read and no other
    file declares that id. Otherwise its id is ``broken_<file>``, with a hash of the file's name if the name is too long
    or has characters that a DAG id may not have. When a task runs, only the files that name its DAG are read.

    :param dag_file: the DAG file, ``__file__``
    :param folder: folder of the YAML files, relative to the DAG file's folder
    :param ckpt_conn_id: Airflow connection of the ledger
    :param default_args: default arguments of the tasks of all these DAGs, such as ``{"pool": "replication"}``;
        arguments in a file's section ``dag`` take precedence over them
    :return: the DAGs by DAG id
    :raises ConfigError: if there is no such folder
    """
    directory = Path(dag_file).parent / folder
    if not directory.is_dir():
        raise ConfigError(f"{directory} is not a folder.", hint="The path is relative to the DAG file's folder.")
    files = sorted(found for pattern in _YAML_PATTERNS for found in directory.glob(pattern))
    dags: dict[str, DAG] = {}
    errors: dict[Path, str] = {}
    for file in _files_of_dag(files, get_parsing_context().dag_id):
        dag_or_message = _dag_or_error(dag_file, file, ckpt_conn_id, default_args or {}, taken=dags)
        if isinstance(dag_or_message, str):
            errors[file] = dag_or_message
        elif dag_or_message is not None:
            dags[dag_or_message.dag_id] = dag_or_message
    for file, error in errors.items():  # last: an invalid file must not take the DAG id of a valid one
        broken = _broken_dag(file, error, dags)
        dags[broken.dag_id] = broken
    return dags


def _files_of_dag(files: Sequence[Path], dag_id: str | None) -> Sequence[Path]:
    """Return the files that declare the DAG with the given id; all files if none declares it, or if the id is None.

    :param files: YAML files of the folder
    :param dag_id: id of the DAG whose task runs; None when the DAG file is parsed for all its DAGs
    """
    if dag_id is None:
        return files
    return [file for file in files if may_declare(file, dag_id) and read_outline(file).dag_id == dag_id] or files


def _dag_or_error(
    dag_file: str, file: Path, ckpt_conn_id: str, default_args: Mapping[str, Any], *, taken: Container[str]
) -> DAG | str | None:
    """Return the DAG of a YAML file; an error message if the file is invalid; None if the file has no section ``dag``.

    A file is also invalid if another file of the folder declares a DAG with the same id.

    :param dag_file: path of the DAG file
    :param file: path of the YAML file
    :param ckpt_conn_id: Airflow connection of the ledger
    :param default_args: default arguments of the DAG's tasks; arguments in the file take precedence over them
    :param taken: ids of the DAGs that other files of the folder declare
    """
    try:
        many_tables = declares_many_tables(file)
        declared = load_database_file(file) if many_tables else load_file(file)
        if declared.dag is None:
            return None
        if any("\ud800" <= dead_letter <= "\udfff" for dead_letter in str(file)):
            raise ConfigError(
                f"{_path_text(file)}: the file's name is not UTF-8, so no DAG can contain it; rename the file."
            )
        dag_id = declared.dag.dag_id or declared.name
        if dag_id in taken:
            raise ConfigError(f"{file}: another file of this folder declares the DAG {dag_id}, too.")
        create: Callable[..., DAG] = create_database_dag if many_tables else _create_dag
        return create(declared, declared.dag, dag_file, file, ckpt_conn_id, default_args)
    except ConfigError as error:
        message = error.message.encode("utf-8", "backslashreplace").decode()  # the file's name may not be UTF-8
        log.error("%s", message)
        return message
    except Exception as error:  # an error of one file must not affect the other files' DAGs
        reason = f"{type(error).__name__}: {for_message(error, _MAX_ERROR)}"
        message = f"{_path_text(file)}: no DAG can be created from it: {reason}"
        log.exception("%s", message)
        return message


def _broken_dag(file: Path, error: str, taken: Container[str]) -> DAG:
    """Create the DAG that takes the place of an invalid file's DAG.

    The DAG has the id that the file declares, if this can be read and is not in use, and the file's schedule, if
    Airflow accepts this.

    :param file: the invalid file
    :param error: error message, which the DAG shows
    :param taken: DAG ids that are in use by other files
    """
    found = read_outline(file)
    names = itertools.chain([found.dag_id] if found.dag_id else [], _broken_dag_ids(file.name))
    dag_id = next(name for name in names if name not in taken)
    try:
        return _failing_dag(
            dag_id, file, error, found.schedule if _is_schedule(found.schedule) else None, found.start_date
        )
    except Exception:  # a schedule or date that Airflow refuses must not hide the error
        log.exception("%s: its schedule cannot be used", _path_text(file))
        return _failing_dag(dag_id, file, error)


def _broken_dag_ids(name: str) -> Iterator[str]:
    """Yield DAG ids to try for an invalid file, such as ``broken_orders.yaml``; there is no last one.

    An id contains a hash of the file's name if the name is too long or has characters that a DAG id cannot have.

    :param name: name of the file
    """
    valid = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    if valid == name and len(name) <= _MAX_FILE_NAME:
        yield f"broken_{name}"
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:12]
    yield f"broken_{valid[:_MAX_FILE_NAME]}_{digest}"
    for number in itertools.count(2):
        yield f"broken_{valid[:_MAX_FILE_NAME]}_{digest}_{number}"


def _failing_dag(
    dag_id: str, file: Path, error: str, schedule: str | timedelta | None = None, start_date: datetime | None = None
) -> DAG:
    """Create a DAG that shows an error in its docs, and whose only task fails with the error.

    :param dag_id: id of the DAG
    :param file: the invalid file
    :param error: error message
    :param schedule: schedule of the DAG; None for a DAG that is only triggered by users
    :param start_date: start date of the DAG; None for none
    """
    name = for_message(file.name, _MAX_FILE_NAME)
    lines = "\n".join(f"    {line}" for line in error.splitlines())
    with DAG(
        dag_id,
        schedule=schedule,
        start_date=start_date,
        description=f"{name} cannot be used",
        catchup=False,
        max_active_runs=1,
        tags=["ckpt", "broken"],
        doc_md=f"`{name}` cannot be used, so nothing is replicated:\n\n{lines}\n",
    ) as dag:
        CkptBrokenPipelineOperator(task_id=_TASK_ID, error=error)
    return dag


def _path_text(file: Path) -> str:
    """Return a file's path for a message, shortened and without control characters."""
    return for_message(file, _MAX_FILE_NAME)


def pipeline_dag(
    dag_file: str,
    file: str | Path,
    *,
    ckpt_conn_id: str = DEFAULT_CONNECTION,
    default_args: Mapping[str, Any] | None = None,
) -> DAG:
    """Create the DAG of one YAML file::

        dag = pipeline_dag(__file__, "pipelines/orders.yaml")

    :param dag_file: the DAG file, ``__file__``
    :param file: path of the YAML file, relative to the DAG file's folder; without a section ``dag`` the DAG has no
        schedule
    :param ckpt_conn_id: Airflow connection of the ledger
    :param default_args: default arguments of the DAG's tasks; arguments in the file's section ``dag`` take precedence
        over them
    :raises ConfigError: if the file is invalid; the message lists all its problems
    """
    path = Path(dag_file).parent / file
    pipeline = load_file(path)
    return _create_dag(pipeline, pipeline.dag or DagSection(), dag_file, path, ckpt_conn_id, default_args or {})


def _create_dag(
    pipeline: Pipeline,
    section: DagSection,
    dag_file: str,
    file: Path,
    ckpt_conn_id: str,
    default_args: Mapping[str, Any],
) -> DAG:
    """Create the DAG of a valid pipeline.

    :param pipeline: the pipeline's declaration
    :param section: section ``dag`` of the pipeline's file
    :param dag_file: path of the DAG file
    :param file: path of the pipeline's YAML file
    :param ckpt_conn_id: Airflow connection of the ledger
    :param default_args: default arguments of the DAG's tasks; arguments in the section take precedence over them
    :raises ConfigError: if the schedule is invalid, or if ``transform.python`` is ``task``, since only
        ``@task.ckpt_batch`` in a DAG file can define this function
    """
    if pipeline.transform.is_task_function:
        raise ConfigError(
            f"{file}: transform.python: task means that a DAG file holds the function; "
            "write that DAG file with @task.ckpt_batch, or name a function that can be imported."
        )
    shared = {"pipeline": path_from(dag_file, file), "ckpt_conn_id": ckpt_conn_id}
    return dag_of_section(
        section,
        pipeline.name,
        file=file,
        doc_md=f"Pipeline `{pipeline.name}`, declared in `{file.name}`.",
        default_args=default_args,
        add_tasks=lambda: _add_tasks(section, shared),
        schedule=_work_schedule(pipeline, section, ckpt_conn_id),
    )


def _add_tasks(section: DagSection, shared: Mapping[str, Any]) -> None:
    """Add the replicate operator or the task group to the DAG that is being created.

    :param section: section ``dag`` of the pipeline's file; its key ``shape`` chooses the operator or the group
    :param shared: arguments for the operator or the group
    """
    if section.shape is DagShape.OPERATOR:
        from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator

        CkptReplicateOperator(task_id=_TASK_ID, **shared)
    else:
        from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup

        CkptReplicationTaskGroup(_TASK_ID, deferrable=section.deferrable, **shared)


def _is_schedule(given: str | timedelta | None) -> bool:
    """Return whether Airflow accepts a value as a schedule; True for an interval and for None.

    :param given: cron expression, preset or interval
    """
    return not isinstance(given, str) or schedule_problem(given) is None


def _work_schedule(pipeline: Pipeline, section: DagSection, ckpt_conn_id: str) -> Asset | None:
    """Return the asset that starts a pipeline's DAG when there is work; None if the section has no key ``work``.

    :param pipeline: the pipeline's declaration
    :param section: section ``dag`` of the pipeline's file
    :param ckpt_conn_id: Airflow connection of the ledger
    """
    if section.work is None:
        return None
    from airflow_provider_ckpt.assets.work import work_asset

    return work_asset(
        pipeline,
        at_least=section.work.at_least,
        longest_wait=section.work.longest_wait,
        check_every=section.work.check_every,
        ckpt_conn_id=ckpt_conn_id,
    )
