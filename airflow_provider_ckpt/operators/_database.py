"""Base class of the operators that replicate many tables of a database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, open_ledger
from airflow_provider_ckpt.operators import _database_declaration
from airflow_provider_ckpt.operators._database_declaration import DatabaseDeclaration
from airflow_provider_ckpt.operators._task_failure import airflow_error

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.database.model import Database
    from airflow_provider_ckpt.ledger.ledger import Ledger


class CkptDatabaseOperator(BaseOperator):
    """Base of the operators that replicate many tables of a database, each table as a pipeline of its own.

    :param database: declaration of the tables (templated): path of a YAML file relative to the DAG file's folder, or a
        dict
    :param ckpt_conn_id: Airflow connection of the ledger (templated); see :class:`CkptHook`
    :param kwargs: further arguments of ``BaseOperator``
    """

    template_fields: Sequence[str] = ("database", "ckpt_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"database": "json", "declaration": "json"}
    ui_color = "#d8ecff"

    def __init__(self, *, database: DatabaseDeclaration, ckpt_conn_id: str = DEFAULT_CONNECTION, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.database = database
        self.ckpt_conn_id = ckpt_conn_id

    def load_database(self) -> Database:
        """Build the declaration of the tables from the argument ``database``.

        :raises ConfigError: if the declaration is invalid; the message names file, line or key
        """
        return _database_declaration.load_database(self.database, self.folder, f"task {self.task_id}")

    @property
    def folder(self) -> str:
        """Folder of the DAG file, from which relative paths start; empty if the task belongs to no DAG."""
        return self.dag.folder if self.has_dag() else ""  # type: ignore[no-untyped-call]

    @contextmanager
    def opened(self) -> Iterator[tuple[Database, Ledger]]:
        """Yield the declaration and the open ledger; translate errors of the ``with`` block to Airflow's exceptions.

        :raises AirflowFailException: if the declaration is invalid, or trying again cannot help for another reason
        :raises CkptTaskError: if trying again may help
        """
        try:
            database = self.load_database()
            with open_ledger(self.ckpt_conn_id) as ledger:
                yield database, ledger
        except CkptError as error:
            raise airflow_error(error) from error
