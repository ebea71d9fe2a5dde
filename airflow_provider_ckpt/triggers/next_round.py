"""``CkptNextRoundTrigger``: wait in the triggerer for the next retry round, and renew the run's lease meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_ckpt.core.errors import CkptError, StaleEpochError
from airflow_provider_ckpt.ledger_location import open_ledger
from airflow_provider_ckpt.triggers.watching import serialized

SHORTEST_WAIT = timedelta(seconds=10)
"""Shortest time before a trigger fires.

An executor takes five seconds or more to report that the worker of a deferred task has ended. If the task runs again
before that report, Airflow treats it as killed (apache/airflow issue 72716).
"""


class CkptNextRoundTrigger(BaseTrigger):
    """Fire when the next round of a run is due, or when the run has lost its lease.

    The event is ``{"due": time}`` or ``{"stale": message}``. The trigger renews the lease while it waits. If the ledger
    cannot be reached, it tries the renewal again later. The arguments that Airflow stores contain no secret.

    :param pipeline: name of the pipeline
    :param epoch: epoch of the lease
    :param owner: owner of the lease
    :param ckpt_conn_id: Airflow connection of the ledger
    :param moment: time when the round is due, with time zone
    :param every: seconds between renewals of the lease
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
        """Return the import path of the class and the arguments of this trigger; see :func:`.serialized`."""
        return serialized(self, "pipeline", "epoch", "owner", "ckpt_conn_id", "moment", "every")

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait until the round is due, then yield one event.

        The lease is renewed at the start, regularly, and at the end, so that it does not expire before the task
        resumes.
        """
        earliest = datetime.now(UTC) + SHORTEST_WAIT
        event = await self._wait(max(self.moment, earliest))
        await asyncio.sleep(_seconds_until(earliest))
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """Cancel the run's open attempts and release its lease, after a user has ended the deferred task.

        If the ledger does not answer, the lease expires, and the next run settles the attempts by the sink's receipts.
        """
        try:
            await asyncio.to_thread(self._cancel_and_release)
        except CkptError as error:
            self.log.warning(
                "The kill of pipeline %s could not be recorded; the next run settles its attempts: %s",
                self.pipeline,
                error,
            )

    async def _wait(self, moment: datetime) -> dict[str, Any]:
        """Renew the lease regularly until a time is reached or the lease is lost; return the content of the event.

        :param moment: the time, with time zone
        """
        while True:
            try:
                await asyncio.to_thread(self._renew)
            except StaleEpochError as error:
                return {"stale": str(error)}
            except CkptError as error:
                self.log.warning(
                    "The lease of pipeline %s could not be renewed; this is tried again: %s", self.pipeline, error
                )
            left = _seconds_until(moment)
            if not left:
                return {"due": self.moment.isoformat()}
            await asyncio.sleep(min(left, self.every))

    def _renew(self) -> None:
        # The ledger is opened for each renewal, so that a wait of minutes keeps no connection open.
        """Renew the lease in the ledger.

        :raises StaleEpochError: if another run has taken the lease over, or it was released
        """
        with open_ledger(self.ckpt_conn_id) as ledger:
            ledger.attach(self.pipeline, self.epoch, self.owner)

    def _cancel_and_release(self) -> None:
        """Cancel the run's open attempts in the ledger, and release its lease, so that another run can start.

        :raises StaleEpochError: if another run has taken the lease over
        """
        with open_ledger(self.ckpt_conn_id) as ledger:
            lease = ledger.attach(self.pipeline, self.epoch, self.owner)
            ledger.cancel(lease, now=datetime.now(UTC))
            ledger.release(lease)


def _seconds_until(moment: datetime) -> float:
    """Return the seconds until a time; 0 if it is past."""
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
