"""``CkptWorkTrigger``: starts a pipeline's DAG when there is enough to do, or something has waited for long enough.

For an asset watcher: a DAG that is scheduled on the watched asset runs whenever this fires.
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
from airflow_provider_ckpt.ledger_location import DEFAULT_CONNECTION
from airflow_provider_ckpt.triggers.watching import look

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.replication.setup import Setup


class Why(StrEnum):
    """Why it fires."""

    ENOUGH = "enough"
    WAITED = "waited"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look found.

    :param lag: per source partition, how many positions are ahead of the checkpoint
    :param epoch: of the newest run
    :param running: whether a run holds the lease
    """

    lag: dict[str, int]
    epoch: int
    running: bool


@dataclass(slots=True)
class Watch:
    """Decides when to fire; the time comes in as an argument.

    It fires where ``at_least`` positions are new, or where there is any lag and ``longest_wait`` has passed since that
    was first seen. Then not before the run that this started has ended, or ``longest_wait`` has passed without one.
    What a run leaves, such as held batches, is not new.

    :param longest_wait: seconds
    """

    at_least: int
    longest_wait: float
    since: float | None = None
    left: int = 0
    fired_at: float | None = None
    fired_epoch: int = 0

    def due(self, seen: Seen, now: float) -> Why | None:
        """Why to fire now, None if not.

        :param now: seconds, on a clock that only goes forward
        """
        total = sum(seen.lag.values())
        if self.fired_at is not None:
            answered = seen.epoch > self.fired_epoch and not seen.running
            if not answered and now - self.fired_at < self.longest_wait:
                return None
            self.fired_at = self.since = None
            self.left = total if answered else 0
        self.left = min(self.left, total)
        if total <= 0:
            self.since = None
            return None
        self.since = now if self.since is None else self.since
        if seen.running:
            return None
        why = None
        if total - self.left >= self.at_least:
            why = Why.ENOUGH
        elif now - self.since >= self.longest_wait:
            why = Why.WAITED
        if why is not None:
            self.fired_at, self.fired_epoch = now, seen.epoch
        return why


class CkptWorkTrigger(BaseEventTrigger):
    """Fires with ``{"pipeline", "why", "lag"}``, again and again; ``why`` is ``enough`` or ``waited``.

    A triggerer that restarts has forgotten when it fired last, so a run may be started that finds nothing new.

    :param pipeline: its name in the ledger, or its declaration as a dict: then it need not have run before
    :param at_least: a lag (positions of all source partitions) that is worth a run
    :param longest_wait: nothing waits longer than this, however little it is
    :param every: between looks; longer than 0
    :param ckpt_conn_id: the ledger's connection
    :raises ConfigError: if there is no time between looks
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
        self.longest_wait = _seconds(longest_wait)
        self.every = _seconds(every)
        if self.every <= 0:
            raise ConfigError(f"every is {every}; a look at the source must be followed by a pause.")
        self.ckpt_conn_id = ckpt_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments, as Airflow stores them."""
        names = ("pipeline", "at_least", "longest_wait", "every", "ckpt_conn_id")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look for ever; what cannot be reached is asked again."""
        watch = Watch(self.at_least, self.longest_wait)
        loop = asyncio.get_running_loop()
        declaration = self.pipeline if isinstance(self.pipeline, dict) else None
        name = str(declaration["name"]) if declaration else str(self.pipeline)
        while True:
            try:
                seen = await asyncio.to_thread(look, self.ckpt_conn_id, name, declaration, self._see)
            except CkptError as error:
                self.log.warning("Looking at %s failed, trying again: %s", name, error)
            else:
                why = watch.due(seen, loop.time())
                if why is not None:
                    yield TriggerEvent({"pipeline": name, "why": why.value, "lag": seen.lag})  # type: ignore[no-untyped-call]
            await asyncio.sleep(self.every)

    @staticmethod
    def _see(ledger: Ledger, setup: Callable[[], Setup]) -> Seen:
        from airflow_provider_ckpt.replication.observe.lag import lag
        from airflow_provider_ckpt.replication.owner import is_held

        made = setup()
        name = made.pipeline.name
        if name not in ledger.pipelines():  # it has never run
            return Seen(lag(made), 0, running=False)
        lease = ledger.status(name)["lease"]
        return Seen(lag(made), lease["epoch"], running=is_held(lease))


def _seconds(span: timedelta | float) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else float(span)
