"""``CkptConditionTrigger``: waits in the triggerer until a pipeline's condition is met."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_ckpt.core.errors import CkptError, ConfigError
from airflow_provider_ckpt.triggers.next_round import SHORTEST_WAIT
from airflow_provider_ckpt.triggers.watching import look

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.setup import Setup


class CkptConditionTrigger(BaseTrigger):
    """Fires with ``{"seen"}`` once the condition is met, or with ``{"wrong"}`` where waiting cannot help.

    A ledger, a source or a secrets backend that cannot be reached is asked again. What is stored of a trigger holds no
    password of a connection; what a declaration holds itself, in ``run.conf`` or of an expanded variable, is stored.

    :param pipeline: its name
    :param declaration: the pipeline's; the one that its newest run stored if None
    :param condition: as :meth:`Condition.to_json` gave it
    :param ckpt_conn_id: the ledger's connection
    :param every: seconds between looks
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
        """The class and its arguments, as Airflow stores them."""
        names = ("pipeline", "declaration", "condition", "ckpt_conn_id", "every")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look, wait, look again; the first time after Airflow has noticed that the worker ended."""
        await asyncio.sleep(SHORTEST_WAIT.total_seconds())
        while True:
            try:
                met, seen = await asyncio.to_thread(look, self.ckpt_conn_id, self.pipeline, self.declaration, self._see)
            except CkptError as error:
                if isinstance(error, ConfigError) and not error.recoverable:
                    yield TriggerEvent({"wrong": str(error)})  # type: ignore[no-untyped-call]
                    return
                self.log.warning("Looking at %s failed, trying again: %s", self.pipeline, error)
                met = False
            if met:
                yield TriggerEvent({"seen": seen})  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(self.every)

    def _see(self, ledger: Ledger, setup: Callable[[], Setup]) -> tuple[bool, dict[str, Any]]:
        from airflow_provider_ckpt.replication.observe.conditions import Condition

        return Condition.from_json(self.condition).check(ledger, self.pipeline, setup)
