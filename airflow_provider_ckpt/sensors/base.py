"""Base class of the sensors, which wait for a condition on one pipeline, in a worker or in the triggerer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import BaseSensorOperator, PokeReturnValue

from airflow_provider_ckpt.core.lag import lag_cells
from airflow_provider_ckpt.core.ranges import position_text
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION, open_ledger
from airflow_provider_ckpt.operators._declaration import Declaration
from airflow_provider_ckpt.operators._named import CkptNamedOperator
from airflow_provider_ckpt.operators.base import DEFAULT_DEFERRABLE

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.observe.conditions import Condition
    from airflow_provider_ckpt.replication.setup import PipelineContext


class CkptSensor(CkptNamedOperator, BaseSensorOperator):
    """Base of the sensors. A sensor waits for a condition on a pipeline, and returns the values that met it, such as
    the lag.

    :param pipeline: name of the pipeline in the ledger, or a declaration, see :class:`CkptNamedOperator` (templated)
    :param deferrable: whether to wait in the triggerer instead of a worker slot. By default as Airflow's ``[operators]
        default_deferrable``
    :param ckpt_conn_id: Airflow connection of the ledger (templated)
    :param kwargs: further arguments of ``BaseSensorOperator``: ``poke_interval``, ``timeout``, ``soft_fail`` and so on
    """

    ui_color = "#d8ffe0"

    def __init__(
        self,
        *,
        pipeline: Declaration,
        deferrable: bool = DEFAULT_DEFERRABLE,
        ckpt_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(pipeline=pipeline, ckpt_conn_id=ckpt_conn_id, **kwargs)
        self.deferrable = deferrable

    @abstractmethod
    def condition(self) -> Condition:
        """Return the condition that this sensor waits for, from its rendered parameters.

        :raises ConfigError: if the value of a parameter is invalid
        """

    def execute(self, context: Context) -> Any:
        """Wait for the condition, and return the observed values.

        A deferrable sensor checks the condition once in the worker, and then waits in the triggerer.

        :param context: the task's context
        """
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context)
        return found.xcom_value if found else self._wait()

    def poke(self, context: Context) -> PokeReturnValue:
        """Check the sensor's condition once; return whether it is met, and the observed values for XCom.

        :param context: the task's context
        """
        with self.translate_errors(), open_ledger(self.ckpt_conn_id) as ledger:
            met, observed = self.condition().check(
                ledger, self.pipeline_name, partial(self._pipeline_context, context, ledger)
            )
        self.log.info("%s: %s", "met" if met else "not yet", _as_text(observed))
        return PokeReturnValue(is_done=met, xcom_value={"pipeline": self.pipeline_name, **observed})

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002  # as Airflow calls it
        """Return the values that the triggerer observed when the condition was met.

        :param context: the task's context
        :param event: event of :class:`CkptConditionTrigger`
        :raises AirflowFailException: if the condition can never be met, since the configuration is invalid
        """
        if "wrong" in event:
            raise AirflowFailException(event["wrong"])
        return {"pipeline": self.pipeline_name, **event["seen"]}

    def _pipeline_context(self, context: Context, ledger: Ledger) -> PipelineContext:
        """Return the pipeline's setup (declaration, connections), with which the condition reads the source.

        :param context: the task's context
        :param ledger: the ledger, open
        """
        return self.setup(context, ledger, self.resolve_pipeline(ledger))

    def _wait(self) -> None:
        """Defer this task until its trigger finds that the condition is met."""
        from airflow_provider_ckpt.triggers.condition import CkptConditionTrigger

        with self.translate_errors():
            trigger = CkptConditionTrigger(
                pipeline=self.pipeline_name,
                declaration=None if self.is_given_by_name else self.load_pipeline().document(),
                condition=self.condition().to_json(),
                ckpt_conn_id=self.ckpt_conn_id,
                every=self.poke_interval,
            )
        self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=self.timeout))


def _as_text(observed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a check for the log: a checkpoint or lag that has not begun becomes text such as ``start``.

    :param observed: values by name, as a condition's check returns them
    """
    shown = dict(observed)
    if "checkpoint" in shown:
        shown["checkpoint"] = {name: position_text(position) for name, position in shown["checkpoint"].items()}
    if "lag" in shown:
        shown["lag"] = lag_cells(shown["lag"])
    return shown
