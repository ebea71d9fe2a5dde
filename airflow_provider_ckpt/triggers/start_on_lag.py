"""``CkptWorkTrigger``: start a pipeline's DAG when its lag is large enough, or when records have waited long enough.

The trigger is meant for an asset watcher: a DAG that is scheduled on the watched asset runs each time the trigger
fires.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_ckpt.core.errors import CkptError, ConfigError
from airflow_provider_ckpt.core.lag import PartitionLag, lag_positions
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.triggers.watching import call_with_ledger, serialized

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.setup import PipelineContext


class TriggerReason(StrEnum):
    """Reason why :class:`CkptWorkTrigger` fires.

    ``enough``: the lag is large enough. ``waited``: records have waited long enough.
    """

    ENOUGH = "enough"
    WAITED = "waited"


@dataclass(frozen=True, slots=True)
class LagReading:
    """State of a pipeline that one check has observed.

    :param lag: checkpoint and end of the source, by source partition
    :param epoch: epoch of the newest run; 0 if the pipeline has never run
    :param running: whether a run holds the lease
    """

    lag: dict[str, PartitionLag]
    epoch: int
    running: bool


@dataclass(slots=True)
class FiringRule:
    """Rule that decides, from the pipeline's lag at each check, when the trigger starts a run.

    The trigger fires if at least ``at_least`` positions are new, or if there is any lag and ``longest_wait`` has passed
    since the lag was first observed. It never fires while a run holds the lease. After firing, it does not fire again
    until the run that it started has ended, or until ``longest_wait`` has passed without a run. Lag that a run leaves
    behind, for example because of held batches, does not count as new.

    :param at_least: number of new positions from which a run is started at once
    :param longest_wait: longest time in seconds that a new record waits for a run
    :ivar lag_since: time at which the present lag was first observed; None without lag
    :ivar lag_left: number of positions of lag that the newest run left behind
    :ivar fired_at: time at which the trigger last fired; None once it may fire again
    :ivar fired_epoch: epoch of the newest run when the trigger last fired
    """

    at_least: int
    longest_wait: float
    lag_since: float | None = None
    lag_left: int = 0
    fired_at: float | None = None
    fired_epoch: int = 0

    def due(self, reading: LagReading, now: float) -> TriggerReason | None:
        """Return the reason to start a run now; None if no run is due.

        If a reason is returned, the rule records that the trigger fires now, for later calls.

        :param reading: state of the pipeline now
        :param now: time in seconds on a monotonic clock
        """
        total = sum(part.distance for part in reading.lag.values())
        if self.fired_at is not None:
            answered = reading.epoch > self.fired_epoch and not reading.running
            if not answered and now - self.fired_at < self.longest_wait:
                return None
            self.fired_at = self.lag_since = None
            self.lag_left = total if answered else 0
        self.lag_left = min(self.lag_left, total)
        if total <= 0:
            self.lag_since = None
            return None
        self.lag_since = now if self.lag_since is None else self.lag_since
        if reading.running:
            return None
        reason = None
        if total - self.lag_left >= self.at_least:
            reason = TriggerReason.ENOUGH
        elif now - self.lag_since >= self.longest_wait:
            reason = TriggerReason.WAITED
        if reason is not None:
            self.fired_at, self.fired_epoch = now, reading.epoch
        return reason


class CkptWorkTrigger(BaseEventTrigger):
    """Fire each time that a run of the pipeline is due: enough records are new, or a new record has waited long enough.

    The event is ``{"pipeline", "reason", "lag"}``. ``reason`` is ``enough`` (the lag is large enough) or ``waited``
    (records have waited long enough). ``lag`` is the number of positions by source partition, None for a partition
    whose lag is not known. After a restart the triggerer does not know when the trigger last fired, so it may start a
    run that finds nothing new.

    :param pipeline: name of the pipeline in the ledger, or its declaration as a dict; with a declaration, the pipeline
        need not have run before
    :param at_least: number of new positions, over all source partitions, from which a run is started at once
    :param longest_wait: longest time (a timedelta, or seconds) that a new record waits for a run
    :param every: time between checks (a timedelta, or seconds), longer than 0
    :param ckpt_conn_id: Airflow connection of the ledger
    :raises ConfigError: if ``every`` is not positive
    """

    def __init__(
        self,
        *,
        pipeline: str | dict[str, Any],
        at_least: int = 1,
        longest_wait: timedelta | float = timedelta(hours=1),
        every: timedelta | float = timedelta(minutes=1),
        ckpt_conn_id: str = DEFAULT_CONNECTION,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline = pipeline
        self.at_least = at_least
        self.longest_wait = _to_seconds(longest_wait)
        self.every = _to_seconds(every)
        if self.every <= 0:
            raise ConfigError(
                f"every is {every}; it must be longer than 0, so that there is a pause between reads of the source."
            )
        self.ckpt_conn_id = ckpt_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the import path of the class and the arguments of this trigger; see :func:`.serialized`."""
        return serialized(self, "pipeline", "at_least", "longest_wait", "every", "ckpt_conn_id")

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check the pipeline's lag without end, and yield an event each time that a run is due.

        A check that fails is logged and repeated.
        """
        rule = FiringRule(self.at_least, self.longest_wait)
        loop = asyncio.get_running_loop()
        declaration = self.pipeline if isinstance(self.pipeline, dict) else None
        name = str(declaration["name"]) if declaration else str(self.pipeline)
        while True:
            try:
                reading = await asyncio.to_thread(call_with_ledger, self.ckpt_conn_id, name, declaration, self._read)
            except CkptError as error:
                self.log.warning("The check of pipeline %s failed and is tried again: %s", name, error)
            else:
                reason = rule.due(reading, loop.time())
                if reason is not None:
                    seen = lag_positions(reading.lag)
                    yield TriggerEvent({"pipeline": name, "reason": reason.value, "lag": seen})  # type: ignore[no-untyped-call]
            await asyncio.sleep(self.every)

    @staticmethod
    def _read(ledger: Ledger, setup: Callable[[], PipelineContext]) -> LagReading:
        """Return the pipeline's lag, the epoch of its newest run, and whether a run is in progress.

        :param ledger: the open ledger, which knows the newest run
        :param setup: function that returns the context of the pipeline; called once, to read the lag from the source
        """
        from airflow_provider_ckpt.replication.observe.lag import lag
        from airflow_provider_ckpt.replication.process_lease_owner import is_held

        context = setup()
        name = context.pipeline.name
        if name not in ledger.pipelines():  # it has never run
            return LagReading(lag(context), 0, running=False)
        lease = ledger.status(name)["lease"]
        return LagReading(lag(context), lease["epoch"], running=is_held(lease))


def _to_seconds(span: timedelta | float) -> float:
    """Convert a timedelta to seconds; a number is taken as seconds."""
    return span.total_seconds() if isinstance(span, timedelta) else float(span)
