"""Task and trigger that return the id of the ledger that they find, for a DAG of the system tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_ckpt.ledger_location import open_ledger
from airflow_provider_ckpt.triggers.next_round import SHORTEST_WAIT

if TYPE_CHECKING:
    from airflow.sdk import Context


def which(ckpt_conn_id: str) -> str:
    """The id of the ledger behind a connection."""
    with open_ledger(ckpt_conn_id) as ledger:
        return ledger.id


class WhichLedgerTrigger(BaseTrigger):
    """Fires with the ledger's id."""

    def __init__(self, *, ckpt_conn_id: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ckpt_conn_id = ckpt_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the trigger in the form in which Airflow stores it."""
        return f"{__name__}.{type(self).__name__}", {"ckpt_conn_id": self.ckpt_conn_id}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look, and wait as long as a task needs that has just deferred."""
        found = await asyncio.to_thread(which, self.ckpt_conn_id)
        await asyncio.sleep(SHORTEST_WAIT.total_seconds())
        yield TriggerEvent(found)  # type: ignore[no-untyped-call]


class WhichLedgerOperator(BaseOperator):
    """Returns what it finds itself, and what a trigger finds."""

    def __init__(self, *, ckpt_conn_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.ckpt_conn_id = ckpt_conn_id

    def execute(self, context: Context) -> None:
        """Look, and have the triggerer look."""
        del context
        trigger = WhichLedgerTrigger(ckpt_conn_id=self.ckpt_conn_id)
        self.defer(trigger=trigger, method_name="resume", kwargs={"task": which(self.ckpt_conn_id)})

    def resume(self, context: Context, event: str, task: str) -> dict[str, str]:
        """Tell."""
        del context
        return {"task": task, "trigger": event}
