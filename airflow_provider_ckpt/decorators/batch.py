"""``@task.ckpt_batch``: a run of a pipeline whose transform ends in the decorated Python function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators.expansion import CkptTaskDecorator
from airflow_provider_ckpt.operators.replicate import CkptReplicateOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.setup import Setup


class CkptBatchOperator(DecoratedOperator, CkptReplicateOperator):
    """A :class:`CkptReplicateOperator` that brings its pipeline's function along; made by :func:`ckpt_batch_task`."""

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
        op_args: Sequence[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        rows = next(iter(inspect.signature(python_callable).parameters), None)
        if rows is None or op_args:
            raise ConfigError(
                f"{python_callable.__name__} gets the rows as its first argument, and others by name.",
                hint="Write it as def f(rows, *, limit=1), and call it as f(limit=2).",
            )
        # Airflow binds the arguments when the DAG is parsed; the rows come later, in the lanes.
        given = {rows: None, **(op_kwargs or {})}
        super().__init__(python_callable=python_callable, op_args=(), op_kwargs=given, **kwargs)
        self._rows = rows

    def load_pipeline(self) -> Pipeline:
        """The pipeline, from its declaration.

        :raises ConfigError: if it does not say that its function is a task's own
        """
        pipeline = super().load_pipeline()
        if not pipeline.transform.of_task:
            raise ConfigError(
                "its transform does not say that a task's own function is part of it.",
                pipeline=pipeline.name,
                hint="Write transform.python: task, and transform.returns with the columns that the function gives.",
            )
        return pipeline

    def setup(self, context: Context, ledger: Ledger, pipeline: Pipeline) -> Setup:
        """As any operator's, with the function."""
        from airflow_provider_ckpt.spark.transform.python_function import pack

        others = {name: value for name, value in self.op_kwargs.items() if name != self._rows}
        function = partial(self.python_callable, **others) if others else self.python_callable
        return replace(super().setup(context, ledger, pipeline), function=pack(function))


def ckpt_batch_task(
    python_callable: Callable[..., Any] | None = None, *, pipeline: Declaration, **kwargs: Any
) -> TaskDecorator:
    """Make a function the last step of a pipeline's transform, and a run of that pipeline a task::

        @task.ckpt_batch(pipeline="pipelines/orders.yaml")  # transform: {python: task, returns: id bigint, ...}
        def clean(rows: pyarrow.Table, *, rate: float) -> pyarrow.Table: ...

        clean(rate=1.1)

    The function runs in Spark's lanes, see :ref:`python-function`; its arguments but the first are bound when the task
    runs and may be templates. It travels by value with all of its DAG file that it uses; other modules that it imports
    must be there on the executors.

    :param python_callable: the function; left out where this decorates one
    :param pipeline: path of a YAML file relative to the DAG file's folder, a dict, or a ``Pipeline`` (templated)
    :param kwargs: further arguments of :class:`CkptReplicateOperator`
    """

    def decorate(function: Callable[..., Any]) -> CkptTaskDecorator:
        made = task_decorator_factory(
            python_callable=function, decorated_operator_class=CkptBatchOperator, pipeline=pipeline, **kwargs
        )
        return CkptTaskDecorator.of(made)

    return cast("TaskDecorator", decorate if python_callable is None else decorate(python_callable))
