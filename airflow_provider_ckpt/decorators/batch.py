"""``@task.ckpt_batch``: run a pipeline with the decorated Python function as the last step of its transform."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators.expansion import CkptTaskDecorator
from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.setup import PipelineContext


class CkptBatchOperator(DecoratedOperator, CkptReplicateOperator):
    """Run a pipeline with a Python function as the last step of its transform; created by :func:`ckpt_batch_task`.

    :param python_callable: function whose first parameter receives the rows of a batch
    :param pipeline: declaration of the pipeline (templated): path of a YAML file relative to the DAG file's folder, a
        dict, or a ``Pipeline``
    :param op_args: must be empty, since all other arguments of the function are given by name
    :param op_kwargs: arguments of the function, by name, except the rows (templated)
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseOperator``
    :raises ConfigError: if the function has no parameter, or ``op_args`` are given
    """

    custom_operator_name = "@task.ckpt_batch"
    template_fields: Sequence[str] = (*DecoratedOperator.template_fields, *CkptReplicateOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DecoratedOperator.template_fields_renderers,
        **CkptReplicateOperator.template_fields_renderers,
    }

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        pipeline: Declaration,
        op_args: Sequence[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        rows = next(iter(inspect.signature(python_callable).parameters), None)
        if rows is None or op_args:
            raise ConfigError(
                f"{python_callable.__name__} must take the rows as its first argument and others by name.",
                hint="Write it as def f(rows, *, limit=1), and call it as f(limit=2).",
            )
        # Airflow binds the arguments when the DAG file is parsed; Spark's lanes pass the rows later.
        given = {rows: None, **(op_kwargs or {})}
        super().__init__(
            python_callable=python_callable,
            op_args=(),
            op_kwargs=given,
            pipeline=pipeline,
            ckpt_conn_id=ckpt_conn_id,
            **kwargs,
        )
        self._rows = rows

    def load_pipeline(self) -> Pipeline:
        """Build the pipeline from its declaration, which must use the decorated function.

        :raises ConfigError: if the declaration is invalid, or does not say ``transform.python: task``
        """
        pipeline = super().load_pipeline()
        if not pipeline.transform.is_task_function:
            raise ConfigError(
                "its transform does not use the task's function.",
                pipeline=pipeline.name,
                hint="Write transform.python: task, and transform.returns with the columns that the function returns.",
            )
        return pipeline

    def setup(self, context: Context, ledger: Ledger, pipeline: Pipeline) -> PipelineContext:
        """Return the setup of a run of this task: pipeline, ledger, connections, and the serialized Python function.

        :param context: the task's context
        :param ledger: the open ledger
        :param pipeline: the pipeline to run
        """
        from airflow_provider_ckpt.spark.transform.python_function import pack

        others = {name: value for name, value in self.op_kwargs.items() if name != self._rows}
        function = partial(self.python_callable, **others) if others else self.python_callable
        return replace(super().setup(context, ledger, pipeline), function=pack(function))


def ckpt_batch_task(
    python_callable: Callable[..., Any] | None = None, *, pipeline: Declaration, **kwargs: Any
) -> TaskDecorator:
    """Make a function the last step of a pipeline's transform; calling it creates a task that runs the pipeline::

        @task.ckpt_batch(pipeline="pipelines/orders.yaml")  # transform: {python: task, returns: id bigint, ...}
        def clean(rows: pyarrow.Table, *, rate: float) -> pyarrow.Table: ...

        clean(rate=1.1)

    The function runs in lanes, that is, in Spark's tasks; see :ref:`python-function`. All of its arguments except the
    rows are templated, and are bound when the Airflow task runs. The function is serialized together with everything
    that it uses from its DAG file; other modules that it imports must be installed on the executors.

    :param python_callable: the function; left out if ``ckpt_batch_task`` is used as a decorator with arguments
    :param pipeline: declaration of the pipeline (templated): path of a YAML file relative to the DAG file's folder, a
        dict, or a ``Pipeline``
    :param kwargs: further arguments of :class:`CkptReplicateOperator`
    """

    def decorate(function: Callable[..., Any]) -> CkptTaskDecorator:
        decorator = task_decorator_factory(
            python_callable=function,
            multiple_outputs=False,  # the type of the function's result is not that of the task's
            decorated_operator_class=CkptBatchOperator,
            pipeline=pipeline,
            **kwargs,
        )
        return CkptTaskDecorator.of(decorator)

    return cast("TaskDecorator", decorate if python_callable is None else decorate(python_callable))
