"""What the operators share: a pipeline from its declaration, the set-up of a run, and errors as Airflow's.

Nothing heavy is imported before a task runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.core.errors import (
    CkptError,
    ConfigError,
    EngineError,
    LeaseBusyError,
    LedgerUnavailableError,
)
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, open_ledger, resolve_connection
from airflow_provider_ckpt.links.pipeline import PipelineLink
from airflow_provider_ckpt.operators.last_will import let_go

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.ledger.records import Lease
    from airflow_provider_ckpt.replication.engine import Engine
    from airflow_provider_ckpt.replication.setup import Setup
    from airflow_provider_ckpt.stats import StatsMeter

Declaration = str | Path | Mapping[str, Any] | Pipeline
"""A pipeline as a DAG gives it: the path of a YAML file, relative to the DAG file's folder; a dict; or the model."""


class CkptOperator(BaseOperator):
    """Base of the operators that work on one pipeline.

    :param pipeline: its declaration (templated); a path is relative to the folder of the DAG file
    :param ckpt_conn_id: the ledger's connection; see :class:`CkptHook`
    """

    template_fields: Sequence[str] = ("pipeline", "ckpt_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"pipeline": "json"}
    operator_extra_links = (PipelineLink(),)
    ui_color = "#d8ecff"
    shares_lease: ClassVar[bool] = False
    """Whether it carries a run on with the other tasks of its group; then they hold one lease."""

    def __init__(self, *, pipeline: Declaration, ckpt_conn_id: str = DEFAULT_CONNECTION, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = _portable(pipeline)
        self.ckpt_conn_id = ckpt_conn_id
        self._engine: Engine | None = None
        self._held: tuple[Ledger, Lease] | None = None
        self._killed = False
        self._meter: StatsMeter | None = None

    def on_kill(self) -> None:
        """Stop Spark, then try to record that its attempts are cancelled and let go of the lease; 2 s each at most.

        What Spark had in hand is unknown then. The next run finds out, whether this was recorded or not.
        """
        self._killed = True
        if self._engine is not None:
            self._engine.kill()
        if self._held is not None:
            let_go(*self._held)

    @property
    def pipeline_name(self) -> str:
        """The name of the pipeline that is meant.

        :raises ConfigError: if its declaration is wrong
        """
        return self.load_pipeline().name

    def load_pipeline(self) -> Pipeline:
        """The pipeline, from its declaration.

        :raises ConfigError: if it is wrong; the message names file, line or key
        """
        from airflow_provider_ckpt.config.load import build, load

        if isinstance(self.pipeline, str):
            return load(Path(self.dag.folder) / self.pipeline)
        return build(self.pipeline, f"task {self.task_id}")

    @contextmanager
    def setup_run(self, context: Context) -> Iterator[Setup]:
        """What the use cases need, for this task; Airflow's exceptions come out of the block.

        The log tells of keys that are accepted and do less, or more, than their names say.

        :raises AirflowFailException: if trying again cannot help
        :raises AirflowException: if it can
        """
        from airflow_provider_ckpt.config.warnings import warnings

        with self.errors():
            pipeline = self.load_pipeline()
            for warning in warnings(pipeline):
                self.log.warning("pipeline %s: %s", pipeline.name, warning)
            with open_ledger(self.ckpt_conn_id) as ledger:
                yield self.setup(context, ledger, pipeline)

    def setup(self, context: Context, ledger: Ledger, pipeline: Pipeline) -> Setup:
        """What the use cases need, in a ledger that is open; the lease is this task's, or its group's."""
        from airflow_provider_ckpt.replication.owner import of_task
        from airflow_provider_ckpt.replication.setup import Setup
        from airflow_provider_ckpt.stats import StatsMeter

        run = context["dag_run"]

        def hold(lease: Lease) -> None:
            self._held = ledger, lease

        self._meter = StatsMeter(pipeline.name)
        owner = of_task(run.dag_id, run.run_id, pipeline.name, self._place(context["ti"].map_index))
        return Setup(pipeline, ledger, resolve_connection, owner, hold, self._meter)

    def _place(self, map_index: int | None) -> str:
        """Which task, or which group, of a DAG run this is."""
        name = self.task_id.rpartition(".")[0] if self.shares_lease else self.task_id
        return name if map_index in (None, -1) else f"{name}[{map_index}]"

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Around all that a task does: what goes wrong comes out as an exception of Airflow's."""
        try:
            yield
        except CkptError as error:
            if self._killed:
                raise AirflowException("The task was killed; the next run carries on from the checkpoint.") from error
            raise airflow_error(error) from error
        finally:
            self._held = None

    def get_openlineage_facets_on_complete(self, task_instance: object) -> OperatorLineage[Any, Any] | None:
        """What this task read and wrote, for the OpenLineage provider, which calls this if it is installed."""
        from airflow_provider_ckpt.lineage import lineage_of

        del task_instance
        return lineage_of(self.load_pipeline(), self._meter.totals, resolve_connection) if self._meter else None

    def make_engine(self, pipeline: Pipeline) -> Engine:
        """The engine that runs Spark; nothing is started before its first wave. ``on_kill`` stops it."""
        from airflow_provider_ckpt.hooks.engines import make_engine

        self._engine = make_engine(pipeline)
        return self._engine


def airflow_error(error: CkptError) -> AirflowException:
    """The exception that tells Airflow whether its own ``retries`` make sense."""
    again = error.recoverable or error.whole or isinstance(error, LeaseBusyError | LedgerUnavailableError | EngineError)
    return AirflowException(str(error)) if again else AirflowFailException(str(error))


def hand_over(context: Context, document: dict[str, Any]) -> dict[str, Any]:
    """Store what the task returns now, for a task that may still fail or branch; neither would store it."""
    context["ti"].xcom_push(key="return_value", value=document)
    return document


def _portable(declaration: object) -> Any:
    """The declaration in a form that Airflow can template and show; what a task is yet to return passes as it is."""
    if isinstance(declaration, Pipeline):
        return declaration.document()
    if isinstance(declaration, Mapping):
        return dict(declaration)
    if not isinstance(declaration, str | Path):
        return declaration
    if not str(declaration).strip():
        raise ConfigError("pipeline is empty; give a YAML file's path or a dict.")
    return str(declaration)
