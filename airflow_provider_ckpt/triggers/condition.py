"""``CkptConditionTrigger``: wait in the triggerer until a condition on a pipeline is met."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_ckpt.core.errors import CkptError, ConfigError
from airflow_provider_ckpt.triggers.next_round import SHORTEST_WAIT
from airflow_provider_ckpt.triggers.watching import call_with_ledger, serialized

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.setup import PipelineContext


class CkptConditionTrigger(BaseTrigger):
    """Fire once a condition on a pipeline is met, or once the configuration turns out to be invalid.

    The event is ``{"seen": observed values}`` in the first case, ``{"wrong": error message}`` in the second. While the
    ledger, the source or the secrets backend cannot be reached, the trigger keeps trying.

    Airflow stores a trigger's arguments. They do not contain the passwords of connections. But they contain the whole
    declaration, with any secret in its ``run.conf`` or from an environment variable.

    :param pipeline: name of the pipeline
    :param declaration: declaration of the pipeline; None for the declaration that its newest run stored
    :param condition: the condition, from :meth:`Condition.to_json`
    :param ckpt_conn_id: Airflow connection of the ledger
    :param every: seconds between checks
    """

    def __init__(
        self,
        *,
        pipeline: str,
        declaration: dict[str, Any] | None,
        condition: dict[str, Any],
        ckpt_conn_id: str,
        every: float,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline = pipeline
        self.declaration = declaration
        self.condition = condition
        self.ckpt_conn_id = ckpt_conn_id
        self.every = every

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the import path of the class and the arguments of this trigger; see :func:`.serialized`."""
        return serialized(self, "pipeline", "declaration", "condition", "ckpt_conn_id", "every")

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check the condition until it is met or the configuration turns out to be invalid, then yield one event.

        The first check is made after 10 s; by then, Airflow has noticed that the deferred task's worker ended.
        """
        await asyncio.sleep(SHORTEST_WAIT.total_seconds())
        while True:
            try:
                met, observed = await asyncio.to_thread(
                    call_with_ledger, self.ckpt_conn_id, self.pipeline, self.declaration, self._check
                )
            except CkptError as error:
                if isinstance(error, ConfigError) and not error.recoverable:
                    yield TriggerEvent({"wrong": str(error)})  # type: ignore[no-untyped-call]
                    return
                self.log.warning("The check of pipeline %s failed and is tried again: %s", self.pipeline, error)
                met = False
            if met:
                yield TriggerEvent({"seen": observed})  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(self.every)

    def _check(self, ledger: Ledger, setup: Callable[[], PipelineContext]) -> tuple[bool, dict[str, Any]]:
        """Check the condition once; return whether it is met, and the observed values, such as the lag.

        :param ledger: the open ledger
        :param setup: function that returns the context of the pipeline; called only if the condition has to read the
            source
        """
        from airflow_provider_ckpt.replication.observe.conditions import Condition

        return Condition.from_json(self.condition).check(ledger, self.pipeline, setup)
