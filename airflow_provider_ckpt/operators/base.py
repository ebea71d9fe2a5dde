"""What the operators share: a pipeline from its declaration, the set-up of a run, and errors as Airflow's.

Nothing heavy is imported before a task runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Asset, BaseOperator, BaseOperatorLink, get_parsing_context
from airflow.sdk.definitions._internal.expandinput import MappedArgument
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_provider_ckpt.assets.pipeline import pipeline_asset
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.core.errors import (
    CkptError,
    EngineError,
    LeaseBusyError,
    LedgerUnavailableError,
)
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, open_ledger, resolve_connection
from airflow_provider_ckpt.links.pipeline import PipelineLink
from airflow_provider_ckpt.links.spark import SparkLink
from airflow_provider_ckpt.operators import _declaration as declarations
from airflow_provider_ckpt.operators import expansion
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators._on_kill import let_go
from airflow_provider_ckpt.operators.expansion import CkptPartial

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.ledger.types import Lease
    from airflow_provider_ckpt.replication.run.engine_protocol import Engine, Ready
    from airflow_provider_ckpt.replication.setup import Setup
    from airflow_provider_ckpt.stats import StatsMeter

_LABEL = "{{ task.pipeline_label }}"


class CkptTaskError(AirflowException):
    """A task failed, and trying again may help: Airflow's ``retries`` apply."""


class CkptOperator(BaseOperator):
    """Base of the operators that work on one pipeline.

    A declaration that is wrong is an import error of its DAG. *Rendered Templates* shows it as ``declaration``, with
    its digest, and a change of it is a new version of the DAG, also where a mapped task or group expands over it. A
    mapped task is named after its pipeline.

    :param pipeline: its declaration (templated); a path is relative to the folder of the DAG file
    :param ckpt_conn_id: the ledger's connection; see :class:`CkptHook`
    """

    template_fields: Sequence[str] = ("pipeline", "ckpt_conn_id", "declaration")
    template_fields_renderers: ClassVar[dict[str, str]] = {"pipeline": "json", "declaration": "json"}
    operator_extra_links: tuple[BaseOperatorLink, ...] = (PipelineLink(),)
    ui_color = "#d8ecff"
    announces: ClassVar[bool] = False
    """Whether it gives the events of its pipeline's asset, through an alias."""
    shares_lease: ClassVar[bool] = False
    """Whether it carries a run on with the other tasks of its group; then they hold one lease."""

    def __init__(self, *, pipeline: Declaration, ckpt_conn_id: str = DEFAULT_CONNECTION, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.ckpt_conn_id = ckpt_conn_id
        self.declaration: dict[str, Any] | None = None
        self.spark_application: str | None = None
        self._ti: Any = None
        self._asset: Asset | None = None
        self._engine: Engine | None = None
        self._held: tuple[Ledger, Lease] | None = None
        self._killed = False
        self._meter: StatsMeter | None = None

    @classmethod
    def partial(cls, **kwargs: Any) -> CkptPartial:
        """Give some of the arguments, and expand over the others; see Airflow's documentation of it."""
        return CkptPartial.of(super().partial(**kwargs))

    def on_kill(self) -> None:
        """Stop Spark, then try to record that its attempts are cancelled and let go of the lease; 2 s each at most.

        What Spark had in hand is unknown then. The next run finds out, whether this was recorded or not.
        """
        self._killed = True
        if self._engine is not None:
            self._engine.kill()
        if self._held is not None:
            let_go(*self._held)

    def prepare_template(self) -> None:
        """Judge the declaration; Airflow calls this when it has parsed the DAG file.

        :raises ConfigError: if it is wrong
        """
        super().prepare_template()
        if isinstance(self.pipeline, Pipeline):
            self.pipeline = self.pipeline.document()
        if get_parsing_context().dag_id is None:  # else a task of the DAG is about to run, and says it itself
            declarations.check(self.pipeline, self._folder, f"task {self.task_id}")
        self.declaration = self._shown()
        self._asset = None
        if self.announces and self.declaration and self.declaration["document"]:
            self._asset = pipeline_asset(self.declaration["document"]["name"])
            if self._asset not in self.outlets:
                self.outlets = [*self.outlets, self._asset]

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        """Render the templates; the declaration that they give is shown as it is.

        The asset was among the outlets for Airflow to show who gives its events. Now the task is about to run, and its
        event is given only where the checkpoint moves.
        """
        fields = [name for name in template_fields if name != "declaration"]
        super()._do_render_template_fields(parent, fields, context, jinja_env, seen_oids)
        self.declaration = self._shown()
        self.outlets = [outlet for outlet in self.outlets if outlet is not self._asset]
        if context.get("map_index_template") is None and context["ti"].map_index not in (None, -1):
            context["map_index_template"] = _LABEL

    def _shown(self) -> dict[str, Any] | None:
        if isinstance(self.pipeline, MappedArgument):
            return expansion.shown(self.pipeline, self._folder, f"task {self.task_id}")
        return declarations.shown(self.pipeline, self._folder, f"task {self.task_id}")

    @property
    def _folder(self) -> str:
        """The DAG file's folder, from which relative paths start; empty without a DAG."""
        return self.dag.folder if self.has_dag() else ""  # type: ignore[no-untyped-call]

    @property
    def pipeline_name(self) -> str:
        """The name of the pipeline that is meant.

        :raises ConfigError: if its declaration is wrong
        """
        return self.load_pipeline().name

    @property
    def pipeline_label(self) -> str:
        """Label of a mapped task on Airflow's pages: its pipeline's name, or the declaration if that is wrong."""
        try:
            return self.pipeline_name
        except CkptError:
            return str(self.pipeline)[:250]

    def load_pipeline(self) -> Pipeline:
        """The pipeline, from its declaration.

        :raises ConfigError: if it is wrong; the message names file, line or key
        """
        return declarations.read(self.pipeline, self._folder, f"task {self.task_id}")

    @contextmanager
    def setup_run(self, context: Context) -> Iterator[Setup]:
        """What the use cases need, for this task; Airflow's exceptions come out of the block.

        The log tells of keys that are accepted and do less, or more, than their names say. A connection that is not
        defined is told before anything is begun.

        :raises AirflowFailException: if trying again cannot help
        :raises CkptTaskError: if it can
        """
        from airflow_provider_ckpt.config.warnings import warnings

        with self.errors():
            pipeline = self.load_pipeline()
            for warning in warnings(pipeline):
                self.log.warning("pipeline %s: %s", pipeline.name, warning)
            for connection_id in sorted(pipeline.connections | {*filter(None, [pipeline.run.connection])}):
                resolve_connection(connection_id)
            with open_ledger(self.ckpt_conn_id) as ledger:
                yield self.setup(context, ledger, pipeline)

    def setup(self, context: Context, ledger: Ledger, pipeline: Pipeline) -> Setup:
        """What the use cases need, in a ledger that is open; the lease is this task's, or its group's."""
        from airflow_provider_ckpt.replication.owner import of_task
        from airflow_provider_ckpt.replication.setup import Setup
        from airflow_provider_ckpt.stats import StatsMeter

        run, self._ti = context["dag_run"], context["ti"]

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
                raise CkptTaskError("The task was killed; the next run carries on from the checkpoint.") from error
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
        from airflow_provider_ckpt.engines.factory import make_engine

        self._engine = make_engine(pipeline, self._show_spark)
        return self._engine

    def _show_spark(self, ready: Ready) -> None:
        """Have the task's page lead to Spark's own pages at once; Airflow asks for the link when the task has ended."""
        self.spark_application = ready.application
        if ready.ui and self._ti is not None:
            self.log.info("Spark's UI: %s", ready.ui)
            self._ti.xcom_push(key=SparkLink().xcom_key, value=ready.ui)


def airflow_error(error: CkptError) -> AirflowException:
    """The exception that tells Airflow whether its own ``retries`` make sense."""
    again = error.recoverable or error.whole or isinstance(error, LeaseBusyError | LedgerUnavailableError | EngineError)
    return CkptTaskError(str(error)) if again else AirflowFailException(str(error))


def hand_over(context: Context, document: dict[str, Any]) -> dict[str, Any]:
    """Store what the task returns now, for a task that may still fail or branch; neither would store it."""
    context["ti"].xcom_push(key="return_value", value=document)
    return document
