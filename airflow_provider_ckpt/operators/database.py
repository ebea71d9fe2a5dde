"""Operators of ``CkptDatabaseTaskGroup``: find the tables that have work, and replicate a group of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import get_parsing_context

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.table_groups import group_tables
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, resolve_connection
from airflow_provider_ckpt.operators import _database_declaration
from airflow_provider_ckpt.operators._database import CkptDatabaseOperator
from airflow_provider_ckpt.operators._database_declaration import DatabaseDeclaration
from airflow_provider_ckpt.operators._task_failure import CkptTaskError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.config.database.model import Database
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.connection import Connection
    from airflow_provider_ckpt.engines.several_runs import RunResult
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.observe.tables_with_work import TablesWithWork
    from airflow_provider_ckpt.replication.setup import PipelineContext

_MAX_LABEL = 250
"""Largest number of characters that Airflow stores as the label of a mapped task."""
_MAX_LINE = 500
"""Largest number of characters of one table's error in the error message of its group; the log has the whole error."""
_MOST_LINES = 100
_LABEL_NAMES = 3


class CkptFindTablesOperator(CkptDatabaseOperator):
    """Find the tables of a database that have work, and return them in groups of about equal work.

    The task takes no lease, raises no fence and starts no Spark. It returns a list of groups by XCom. Each group is a
    list of table names (``schema.table``), the table with the most new records first. There are at most
    ``database.groups`` groups, and no group if no table has work. Tables and patterns with an error are put into groups
    too, whose tasks then report the errors.

    An invalid declaration is shown as an import error of the DAG file, and a changed declaration makes a new version of
    the DAG.

    :param database: declaration of the tables (templated): path of a YAML file relative to the DAG file's folder, or a
        dict
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    """

    template_fields: Sequence[str] = (*CkptDatabaseOperator.template_fields, "declaration")

    def __init__(self, *, database: DatabaseDeclaration, ckpt_conn_id: str = DEFAULT_CONNECTION, **kwargs: Any) -> None:
        super().__init__(database=database, ckpt_conn_id=ckpt_conn_id, **kwargs)
        self.declaration: dict[str, Any] | None = None

    def prepare_template(self) -> None:
        """Validate the declaration; Airflow calls this after it has parsed the DAG file. Nothing connects.

        :raises ConfigError: if the declaration is invalid
        """
        super().prepare_template()
        if get_parsing_context().dag_id is None:  # it is set while a task starts; then execute() reports the error
            _database_declaration.validate_database(self.database, self.folder, f"task {self.task_id}")
        self.declaration = _database_declaration.displayed_database(self.database, self.folder)

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        """Render the templates, then set ``declaration`` to the rendered declaration.

        :param parent: object whose fields are rendered; this parameter and the others are passed on to Airflow's method
        :param template_fields: names of the fields to render
        :param context: the task's context
        :param jinja_env: Jinja environment
        :param seen_oids: ids of the objects that have been rendered
        """
        fields = [name for name in template_fields if name != "declaration"]
        super()._do_render_template_fields(parent, fields, context, jinja_env, seen_oids)
        self.declaration = _database_declaration.displayed_database(self.database, self.folder)

    def execute(self, context: Context) -> list[list[str]]:
        """Compare the database with the ledger, and return the tables that have work, in groups of names.

        :param context: the task's context
        :raises AirflowFailException: if ``new_tables`` or ``gone_tables`` halts the run, or no table is selected
        """
        from airflow_provider_ckpt.replication.observe.tables_with_work import find_tables_with_work

        del context
        with self.opened() as (database, ledger):
            found = find_tables_with_work(database, ledger, resolve_connection)
            found.expansion.refuse_halted()
            ledger.register(found.expansion.names.values())
        self._log(found)
        records = {**dict.fromkeys(found.expansion.errors, 0), **found.work}
        return [list(group) for group in group_tables(records, database.settings.groups)]

    def _log(self, found: TablesWithWork) -> None:
        """Log the number of tables that have work, and the names of tables that appeared or are missing.

        :param found: result of the comparison
        """
        expansion = found.expansion
        self.log.info("%d of %d tables have work", len(found.work), len(expansion.names))
        for text, names in (
            ("appeared and are replicated from now on", expansion.new),
            ("appeared and are left out, because of new_tables: ignore", expansion.ignored),
            ("are missing from the source", expansion.gone),
        ):
            if names:
                self.log.warning("%d tables %s: %s", len(names), text, _listed(names, _MOST_LINES))


class CkptDatabaseTablesOperator(CkptDatabaseOperator):
    """Replicate those tables of a group that have work, several at a time; a table that fails does not stop the others.

    The task compares the database with the ledger again, and runs only the tables of the group that still have work. So
    a task that is cleared or retried does not repeat deliveries. The names of the tables come by XCom; a name that the
    declaration does not select is refused.

    The pipelines' own assets get no events, since a task with a thousand tables would overload Airflow's API with them.
    Assets given as ``outlets`` get one event for each group that succeeds.

    If any table failed or holds batches, the task fails after all its tables have ended, with one line for each such
    table.

    :param database: declaration of the tables (templated): path of a YAML file relative to the DAG file's folder, or a
        dict
    :param tables: names of the group's tables (``schema.table``). Not templated, since a user of the source database
        can create a table whose name is a template
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    """

    def __init__(
        self,
        *,
        database: DatabaseDeclaration,
        tables: Sequence[str],
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(database=database, ckpt_conn_id=ckpt_conn_id, **kwargs)
        self.tables = tables
        self._runs = False

    @property
    def label(self) -> str:
        """Label of the mapped task in Airflow's UI: names of the first tables, and the number of all."""
        try:
            names = self._names()
        except ConfigError:  # execute() reports the error
            return ""
        count = f" ({len(names)} {'table' if len(names) == 1 else 'tables'})"
        return _listed(names, _LABEL_NAMES)[: _MAX_LABEL - len(count)] + count

    def execute(self, context: Context) -> dict[str, Any]:
        """Replicate the tables, and return the number of tables by state and the number of records by outcome.

        :param context: the task's context
        :raises CkptTaskError: if any table failed or has held batches; a retry of the task runs only tables that still
            have work
        """
        from airflow_provider_ckpt.engines.several_runs import run_several
        from airflow_provider_ckpt.replication.observe.tables_with_work import find_tables_with_work

        with self.opened() as (database, ledger):
            names = self._names()
            found = find_tables_with_work(database, ledger, resolve_connection, only=names)
            found.expansion.refuse_halted()
            errors = _errors(database, found, names)
            connections = functools.cache(resolve_connection)
            pipelines = found.expansion.pipelines
            setups = {label: self._setup(context, ledger, pipelines[label], connections) for label in found.in_order}
            self.log.info("%d of %d tables of this group have work", len(setups), len(names))
            self._runs = True
            try:
                ended = run_several(setups, lanes_each=database.settings.lanes_per_table)
            finally:
                self._runs = False
        errors |= {label: result.error for label, result in ended.items() if result.error is not None}
        if errors:
            raise CkptTaskError(_failure(errors, len(names)))
        return _counts(ended, len(names))

    def on_kill(self) -> None:
        """Stop the runs in progress, which release their leases; the next run continues from the checkpoints.

        Airflow calls this method in the thread that waits for the runs, so raising an exception ends the wait.

        :raises CkptTaskError: if runs are in progress
        """
        if self._runs:
            self._runs = False
            raise CkptTaskError("The task was killed; the next run continues from the checkpoints.")

    def _names(self) -> list[str]:
        """Return the names of the group's tables, each once.

        :raises ConfigError: if the value that came by XCom is not a list of names
        """
        given: object = self.tables
        if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
            raise ConfigError(
                f"task {self.task_id}: tables is no list of names of tables.", hint="Clear the task find_tables."
            )
        return list(dict.fromkeys(given))

    def _setup(
        self, context: Context, ledger: Ledger, pipeline: Pipeline, connections: Callable[[str], Connection]
    ) -> PipelineContext:
        """Return the setup of the run of one table, with this task as the owner of its lease.

        :param context: the task's context
        :param ledger: the ledger, open
        :param pipeline: declaration of the table's pipeline
        :param connections: function that returns the connection of an id
        """
        from airflow_provider_ckpt.core.task_lease_owner import of_task
        from airflow_provider_ckpt.replication.setup import PipelineContext
        from airflow_provider_ckpt.stats import StatsMeter

        run, index = context["dag_run"], context["ti"].map_index
        task = self.task_id if index in (None, -1) else f"{self.task_id}[{index}]"
        owner = of_task(run.dag_id, run.run_id, pipeline.name, task)
        return PipelineContext(pipeline, ledger, connections, owner, meter=StatsMeter(pipeline.name))


def _errors(database: Database, tables: TablesWithWork, names: Collection[str]) -> dict[str, str]:
    """Return an error for each name without a pipeline: the table is invalid, was dropped, or is not selected.

    :param database: declaration of the tables
    :param tables: result of the comparison with the ledger
    :param names: names of the group's tables
    """
    from airflow_provider_ckpt.config.database.patterns import matcher

    expansion = tables.expansion
    included, excluded = matcher(database.settings.include), matcher(database.settings.exclude)
    errors = {}
    for name in names:
        if name in expansion.errors:
            errors[name] = str(expansion.errors[name])
        elif name in expansion.pipelines:
            continue
        elif name in expansion.ignored or not included(name) or excluded(name):
            errors[name] = f"{database.file} does not select this table, so it is not replicated."
        else:
            errors[name] = (
                "was dropped or renamed after find_tables listed it; clear that task as well to continue without it."
            )
    return errors


def _failure(errors: Mapping[str, str], count: int) -> str:
    """Return the error message of a group: one line for each table that failed.

    :param errors: error by table
    :param count: number of tables of the group
    """
    lines = [f"{name}: {' '.join(error.split())[:_MAX_LINE]}" for name, error in sorted(errors.items())]
    more = [f"and {len(lines) - _MOST_LINES:,} more; see the log"] if len(lines) > _MOST_LINES else []
    return "\n".join([f"{len(errors)} of {count} tables failed:", *lines[:_MOST_LINES], *more])


def _counts(ended: Mapping[str, RunResult], count: int) -> dict[str, Any]:
    """Return the number of tables that ran and of tables without work, and the number of records by outcome.

    :param ended: result of each table's run
    :param count: number of tables of the group
    """
    records: dict[str, int] = {}
    for result in ended.values():
        for outcome, number in (result.summary or {}).get("records", {}).items():
            records[outcome] = records.get(outcome, 0) + number
    return {"tables": {"done": len(ended), "without_work": count - len(ended)}, "records": records}


def _listed(names: Sequence[str], most: int) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")
