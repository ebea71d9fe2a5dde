"""Create the DAG of a YAML file that declares many tables of a database; parsing the file opens no connection."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from airflow_provider_ckpt.config.schedule import DagSection
from airflow_provider_ckpt.dag_factories._section import dag_of_section, path_from
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.operators._database_declaration import load_database_file

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.database.model import Database

_GROUP_ID = "replicate"


def database_dag(
    dag_file: str,
    file: str | Path,
    *,
    ckpt_conn_id: str = DEFAULT_CONNECTION,
    default_args: Mapping[str, Any] | None = None,
) -> DAG:
    """Create the DAG of one YAML file that declares many tables::

        dag = database_dag(__file__, "databases/shop.yaml")

    Its tasks are those of :class:`CkptDatabaseTaskGroup`. :func:`pipeline_dags` creates the same DAG from a file that
    has a section ``dag``.

    :param dag_file: the DAG file, ``__file__``
    :param file: path of the YAML file, relative to the DAG file's folder; without a section ``dag`` the DAG has no
        schedule
    :param ckpt_conn_id: Airflow connection of the ledger
    :param default_args: default arguments of the DAG's tasks; arguments in the file's section ``dag`` take precedence
        over them
    :raises ConfigError: if the file is invalid; the message lists all its problems
    """
    path = Path(dag_file).parent / file
    database = load_database_file(path)
    return create_database_dag(database, database.dag or DagSection(), dag_file, path, ckpt_conn_id, default_args or {})


def create_database_dag(
    database: Database,
    section: DagSection,
    dag_file: str,
    file: Path,
    ckpt_conn_id: str,
    default_args: Mapping[str, Any],
) -> DAG:
    """Create the DAG of a valid declaration of many tables.

    :param database: the declaration
    :param section: section ``dag`` of the file
    :param dag_file: path of the DAG file
    :param file: path of the YAML file
    :param ckpt_conn_id: Airflow connection of the ledger
    :param default_args: default arguments of the DAG's tasks; arguments in the section take precedence over them
    :raises ConfigError: if the schedule is invalid
    """
    from airflow_provider_ckpt.task_groups.database import CkptDatabaseTaskGroup

    relative = path_from(dag_file, file)
    return dag_of_section(
        section,
        database.name,
        file=file,
        doc_md=f"Tables of a database, `{database.name}`, declared in `{file.name}`.",
        default_args=default_args,
        add_tasks=lambda: CkptDatabaseTaskGroup(_GROUP_ID, database=relative, ckpt_conn_id=ckpt_conn_id),
    )
