"""Base class of the operators: load the pipeline, open the ledger, and create the engine.

Large packages are imported only when a task runs, so that parsing a DAG file stays fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import Asset, BaseOperator, BaseOperatorLink, get_parsing_context
from airflow.sdk.definitions._internal.expandinput import MappedArgument

from airflow_provider_ckpt.assets.pipeline import pipeline_asset
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, open_ledger, resolve_connection
from airflow_provider_ckpt.links.pipeline import PipelineLink
from airflow_provider_ckpt.links.spark import SparkLink
from airflow_provider_ckpt.operators import _declaration, expansion
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators._on_kill import cancel_and_release
from airflow_provider_ckpt.operators._task_failure import CkptTaskError, airflow_error
from airflow_provider_ckpt.operators.expansion import CkptPartial

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.ledger.types import Lease
    from airflow_provider_ckpt.replication.run.engine_protocol import Engine, EngineInfo
    from airflow_provider_ckpt.replication.setup import PipelineContext
    from airflow_provider_ckpt.stats import StatsMeter

DEFAULT_DEFERRABLE = conf.getboolean("operators", "default_deferrable", fallback=False)
"""Airflow's configured default for the argument ``deferrable`` of operators."""

_LABEL_TEMPLATE = "{{ task.pipeline_label }}"


class CkptOperator(BaseOperator):
    """Base of the operators that work on one pipeline.

    An invalid declaration is shown as an import error of the DAG file. Airflow's *Rendered Templates* shows the
    declaration with its digest, and a changed declaration makes a new version of the DAG, even if a mapped task or
    group expands over it. A mapped task is labelled with the name of its pipeline.

    :param pipeline: declaration of the pipeline (templated): path of a YAML file relative to the DAG file's folder, a
        dict, or a ``Pipeline``
    :param ckpt_conn_id: Airflow connection of the ledger (templated); see :class:`CkptHook`
    :param kwargs: further arguments of ``BaseOperator``
    """

    template_fields: Sequence[str] = ("pipeline", "ckpt_conn_id", "declaration")
    template_fields_renderers: ClassVar[dict[str, str]] = {"pipeline": "json", "declaration": "json"}
    operator_extra_links: tuple[BaseOperatorLink, ...] = (PipelineLink(),)
    ui_color = "#d8ecff"
    emits_asset_events: ClassVar[bool] = False
    """True if tasks of this class emit the events of the pipeline's asset."""
    shares_lease: ClassVar[bool] = False
    """True if the tasks of one task group share a lease. The owner of the lease is then the group, not the task."""

    def __init__(self, *, pipeline: Declaration, ckpt_conn_id: str = DEFAULT_CONNECTION, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.ckpt_conn_id = ckpt_conn_id
        self.declaration: dict[str, Any] | None = None
        self.spark_application: str | None = None
        self._ti: Any = None
        self._asset: Asset | None = None
        self._engine: Engine | None = None
        self._ledger_and_lease: tuple[Ledger, Lease] | None = None
        self._killed = False
        self._meter: StatsMeter | None = None

    @classmethod
    def partial(cls, **kwargs: Any) -> CkptPartial:
        """Return an object with some arguments of this operator class, to be expanded over the other arguments.

        Like Airflow's ``partial``, but ``expand`` of the returned object also makes all declarations part of the DAG's
        version.

        :param kwargs: the arguments to set
        """
        return CkptPartial.of(super().partial(**kwargs))

    def on_kill(self) -> None:
        """Stop Spark, then try to cancel the open attempts in the ledger and to release the lease.

        Each of the two steps takes 2 s at most. It is unknown which of the batches in flight were delivered. The next
        run reads the sink's receipts and settles these batches, whether or not the cancellation was recorded.
        """
        self._killed = True
        if self._engine is not None:
            self._engine.kill()
        if self._ledger_and_lease is not None:
            cancel_and_release(*self._ledger_and_lease)

    def prepare_template(self) -> None:
        """Validate the declaration; Airflow calls this after it has parsed the DAG file.

        :raises ConfigError: if the declaration is invalid
        """
        super().prepare_template()
        if isinstance(self.pipeline, Pipeline):
            self.pipeline = self.pipeline.document()
        if get_parsing_context().dag_id is None:  # set while a task starts: execute() then reports the error
            _declaration.validate(self.pipeline, self._folder, f"task {self.task_id}")
        self.declaration = self._displayed_declaration()
        self._asset = None
        if self.emits_asset_events and self.declaration and self.declaration["document"]:
            self._asset = pipeline_asset(self.declaration["document"]["name"])
            if self._asset not in self.outlets:
                self.outlets = [*self.outlets, self._asset]

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        """Render the templates, then set ``declaration`` to the rendered declaration.

        :meth:`prepare_template` has added the pipeline's asset to the outlets, so that Airflow shows which task updates
            the asset. This method removes the asset from the outlets before the task runs, since its event is emitted
            only if the checkpoint moves.

        :param parent: object whose fields are rendered; this parameter and the others are passed on to Airflow's method
        :param template_fields: names of the fields to render
        :param context: the task's context
        :param jinja_env: Jinja environment
        :param seen_oids: ids of the objects that have been rendered
        """
        fields = [name for name in template_fields if name != "declaration"]
        super()._do_render_template_fields(parent, fields, context, jinja_env, seen_oids)
        self.declaration = self._displayed_declaration()
        self.outlets = [outlet for outlet in self.outlets if outlet is not self._asset]
        if context.get("map_index_template") is None and context["ti"].map_index not in (None, -1):
            context["map_index_template"] = _LABEL_TEMPLATE

    def _displayed_declaration(self) -> dict[str, Any] | None:
        """Return the declaration in the form in which Airflow shows and stores it.

        The result is None for a declaration with a template or another task's result, and for an invalid one.
        """
        if isinstance(self.pipeline, MappedArgument):
            return expansion.combined_digest(self.pipeline, self._folder, f"task {self.task_id}")
        return _declaration.displayed_declaration(self.pipeline, self._folder, f"task {self.task_id}")

    @property
    def _folder(self) -> str:
        """Folder of the DAG file, from which relative paths start; empty if the task belongs to no DAG."""
        return self.dag.folder if self.has_dag() else ""  # type: ignore[no-untyped-call]

    @property
    def pipeline_name(self) -> str:
        """Name of the pipeline.

        :raises ConfigError: if its declaration is invalid
        """
        return self.load_pipeline().name

    @property
    def pipeline_label(self) -> str:
        """Label of a mapped task in Airflow's UI: the pipeline's name, or an invalid declaration as text."""
        try:
            return self.pipeline_name
        except CkptError:
            return str(self.pipeline)[:250]

    def load_pipeline(self) -> Pipeline:
        """Build the pipeline from its declaration.

        :raises ConfigError: if the declaration is invalid; the message names file, line or key
        """
        return _declaration.load_pipeline(self.pipeline, self._folder, f"task {self.task_id}")

    @contextmanager
    def setup_run(self, context: Context) -> Iterator[PipelineContext]:
        """Open the ledger and yield the setup of a run; translate errors of the ``with`` block to Airflow's exceptions.

        Before that, log a warning for each key of the declaration whose effect differs from what its name suggests, and
        check that every connection of the pipeline is defined.

        :param context: the task's context
        :raises AirflowFailException: if trying again cannot help
        :raises CkptTaskError: if trying again may help
        """
        from airflow_provider_ckpt.config.warnings import warnings

        with self.translate_errors():
            pipeline = self.load_pipeline()
            for warning in warnings(pipeline):
                self.log.warning("pipeline %s: %s", pipeline.name, warning)
            for connection_id in sorted(pipeline.connections | {*filter(None, [pipeline.run.connection])}):
                resolve_connection(connection_id)
            with open_ledger(self.ckpt_conn_id) as ledger:
                yield self.setup(context, ledger, pipeline)

    def setup(self, context: Context, ledger: Ledger, pipeline: Pipeline) -> PipelineContext:
        """Return the setup of a run or an action of this task: pipeline, ledger, connections, lease owner and metrics.

        :param context: the task's context
        :param ledger: the open ledger
        :param pipeline: the pipeline to run or act on
        """
        from airflow_provider_ckpt.core.task_lease_owner import of_task
        from airflow_provider_ckpt.replication.setup import PipelineContext
        from airflow_provider_ckpt.stats import StatsMeter

        run, self._ti = context["dag_run"], context["ti"]

        def hold(lease: Lease) -> None:
            self._ledger_and_lease = ledger, lease

        self._meter = StatsMeter(pipeline.name)
        owner = of_task(run.dag_id, run.run_id, pipeline.name, self._lease_scope(context["ti"].map_index))
        return PipelineContext(pipeline, ledger, resolve_connection, owner, hold, self._meter)

    def _lease_scope(self, map_index: int | None) -> str:
        """Return the part of the lease owner's name that identifies this task, or its group if the tasks share a lease.

        :param map_index: index of a mapped task, which is appended; None or -1 if the task is not mapped
        """
        name = self.task_id.rpartition(".")[0] if self.shares_lease else self.task_id
        return name if map_index in (None, -1) else f"{name}[{map_index}]"

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Translate errors of this package that the ``with`` block raises to Airflow's exceptions.

        :raises AirflowFailException: if trying again cannot help
        :raises CkptTaskError: if trying again may help, or the task was killed
        """
        try:
            yield
        except CkptError as error:
            if self._killed:
                raise CkptTaskError("The task was killed; the next run continues from the checkpoint.") from error
            raise airflow_error(error) from error
        finally:
            self._ledger_and_lease = None

    def get_openlineage_facets_on_complete(self, task_instance: object) -> OperatorLineage[Any, Any] | None:
        """Return the datasets that this task read and wrote; None if it has settled no batch.

        The OpenLineage provider calls this if it is installed.
        """
        from airflow_provider_ckpt.lineage import lineage_of

        del task_instance
        return lineage_of(self.load_pipeline(), self._meter.totals, resolve_connection) if self._meter else None

    def make_engine(self, pipeline: Pipeline) -> Engine:
        """Create the engine for a pipeline without starting Spark, and keep it so that ``on_kill`` can stop Spark.

        :param pipeline: the pipeline's declaration
        """
        from airflow_provider_ckpt.engines.factory import make_engine

        self._engine = make_engine(pipeline, self._show_spark)
        if self._killed:  # on_kill() was called before there was an engine
            self._engine.kill()
        return self._engine

    def _show_spark(self, ready: EngineInfo) -> None:
        """Store the address of Spark's web UI as the link that :class:`SparkLink` shows while the task runs.

        Airflow itself asks for the link only after the task has ended.

        :param ready: properties of the Spark that has just started: address of its UI, and id of the application
        """
        self.spark_application = ready.application
        if ready.ui and self._ti is not None:
            self.log.info("Spark's UI: %s", ready.ui)
            self._ti.xcom_push(key=SparkLink().xcom_key, value=ready.ui)


def push_return_value(context: Context, document: dict[str, Any]) -> dict[str, Any]:
    """Push the task's return value to XCom now, and return it.

    Airflow itself would not store the return value if the task fails or branches afterwards.

    :param context: the task's context
    :param document: the return value
    """
    context["ti"].xcom_push(key="return_value", value=document)
    return document


@contextmanager
def pushed_on_failure(context: Context, document: dict[str, Any]) -> Iterator[None]:
    """Push the task's return value to XCom if the ``with`` block fails. (After success, Airflow itself pushes it.)

    :param context: the task's context
    :param document: the return value
    """
    try:
        yield
    except BaseException:
        push_return_value(context, document)
        raise
