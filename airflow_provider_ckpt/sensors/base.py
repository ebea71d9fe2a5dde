"""What the sensors share: one condition on one pipeline, waited for in a worker or in the triggerer."""

from __future__ import annotations

from abc import abstractmethod
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_ckpt.ledger_location import open_ledger
from airflow_provider_ckpt.operators._named import CkptNamedOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.observe.conditions import Condition
    from airflow_provider_ckpt.replication.setup import Setup


class CkptSensor(CkptNamedOperator, BaseSensorOperator):
    """Base of the sensors. Returns what was seen when the condition was met. Its fields may be templates.

    :param pipeline: the name by which the ledger knows it, or a declaration, see :class:`CkptNamedOperator`
    :param ckpt_conn_id: the ledger's connection
    :param deferrable: wait in the triggerer, not in a worker's slot; else as Airflow's ``default_deferrable``
    :param kwargs: further arguments of ``BaseSensorOperator``: ``poke_interval``, ``timeout``, ``soft_fail`` and so on
    """

    ui_color = "#d8ffe0"

    def __init__(
        self,
        *,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable

    @abstractmethod
    def condition(self) -> Condition:
        """What is waited for.

        :raises ConfigError: if a field's value cannot be used
        """

    def execute(self, context: Context) -> Any:
        """Wait for it."""
        if not self.deferrable:
            return super().execute(context)
        found = self.poke(context)
        return found.xcom_value if found else self._wait()

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once."""
        with self.errors(), open_ledger(self.ckpt_conn_id) as ledger:
            met, seen = self.condition().check(ledger, self.pipeline_name, partial(self._setup, context, ledger))
        self.log.info("%s: %s", "met" if met else "not yet", seen)
        return PokeReturnValue(is_done=met, xcom_value={"pipeline": self.pipeline_name, **seen})

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002  # as Airflow calls it
        """Go on after the triggerer has waited.

        :raises AirflowFailException: if waiting cannot help
        """
        if "wrong" in event:
            raise AirflowFailException(event["wrong"])
        return {"pipeline": self.pipeline_name, **event["seen"]}

    def _setup(self, context: Context, ledger: Ledger) -> Setup:
        return self.setup(context, ledger, self.declared(ledger))

    def _wait(self) -> None:
        from airflow_provider_ckpt.triggers.condition import CkptConditionTrigger

        with self.errors():
            trigger = CkptConditionTrigger(
                pipeline=self.pipeline_name,
                declaration=None if self.is_named else self.load_pipeline().document(),
                condition=self.condition().to_json(),
                ckpt_conn_id=self.ckpt_conn_id,
                every=self.poke_interval,
            )
        self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=self.timeout))
