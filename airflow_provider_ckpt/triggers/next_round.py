"""``CkptNextRoundTrigger``: waits in the triggerer for a retry's next round, and keeps the run's lease alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_ckpt.core.errors import CkptError, StaleEpochError
from airflow_provider_ckpt.ledger_location import open_ledger

SHORTEST_WAIT = timedelta(seconds=10)
"""No event comes sooner: Airflow takes a task for killed that runs again before its executor has reported that the
worker which deferred has ended, which takes it five seconds and more (apache/airflow issue 72716)."""


class CkptNextRoundTrigger(BaseTrigger):
    """Fires when the next round is due, or as soon as another run has taken over: then its event says so.

    A ledger that cannot be reached only delays the renewal. What is stored of a trigger holds no secret.

    :param pipeline: its name
    :param epoch: the lease's epoch
    :param owner: the lease's owner
    :param ckpt_conn_id: the ledger's connection
    :param moment: when the round is due, aware
    :param every: seconds between renewals
    """

    def __init__(
        self, *, pipeline: str, epoch: int, owner: str, ckpt_conn_id: str, moment: datetime, every: float
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline = pipeline
        self.epoch = epoch
        self.owner = owner
        self.ckpt_conn_id = ckpt_conn_id
        self.moment = moment
        self.every = every

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments, as Airflow stores them."""
        names = ("pipeline", "epoch", "owner", "ckpt_conn_id", "moment", "every")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait; the lease is renewed at once, regularly, and in the end, so that the task has time to resume."""
        earliest = datetime.now(UTC) + SHORTEST_WAIT
        event = await self._wait(max(self.moment, earliest))
        await asyncio.sleep(_seconds_until(earliest))
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """Cancel what the run has open and let go of its lease, since a person has ended the task that waits.

        Without it, or where the ledger does not answer, the lease expires and the next run finds out all the same.
        """
        try:
            await asyncio.to_thread(self._let_go)
        except CkptError as error:
            self.log.warning("That %s was killed could not be recorded: %s", self.pipeline, error)

    async def _wait(self, moment: datetime) -> dict[str, Any]:
        while True:
            try:
                await asyncio.to_thread(self._renew)
            except StaleEpochError as error:
                return {"stale": str(error)}
            except CkptError as error:
                self.log.warning("The lease of %s could not be renewed, trying again: %s", self.pipeline, error)
            left = _seconds_until(moment)
            if not left:
                return {"due": self.moment.isoformat()}
            await asyncio.sleep(min(left, self.every))

    def _renew(self) -> None:
        # A ledger of its own each time: a wait of minutes keeps no connection open.
        with open_ledger(self.ckpt_conn_id) as ledger:
            ledger.attach(self.pipeline, self.epoch, self.owner)

    def _let_go(self) -> None:
        with open_ledger(self.ckpt_conn_id) as ledger:
            lease = ledger.attach(self.pipeline, self.epoch, self.owner)
            ledger.cancel(lease, now=datetime.now(UTC))
            ledger.release(lease)


def _seconds_until(moment: datetime) -> float:
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
