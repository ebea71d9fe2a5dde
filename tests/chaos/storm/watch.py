"""Observe the ledger during the storm: audit it, follow the audit log of every pipeline, and delete old rows.

Rows are read for the judge before they are deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import timedelta
from itertools import count, cycle
from typing import Any

import sqlalchemy as sa

from airflow_provider_ckpt.core.errors import CkptError, ConfigError, LedgerUnavailableError
from airflow_provider_ckpt.core.recovery import MissingReason
from airflow_provider_ckpt.ledger.queries.subscription import Subscription
from airflow_provider_ckpt.ledger.store import database as engines
from airflow_provider_ckpt.ledger.store import tables
from tests.chaos.storm.commands import Commands
from tests.chaos.storm.evidence import VIOLATION, Fault, Row
from tests.chaos.storm.scene import PIPELINES

_UNREAD = (LedgerUnavailableError, ConfigError)
"""Its own session was ended, or nobody has acquired the pipeline yet."""

_ATTEMPTS = 5
_NOTHING = timedelta(0)
_PAUSE = 0.25
_COLLECT_EVERY = 7
_KEEP = timedelta(seconds=45)
"""Audits between collections of what is older: longer than any command waits for its lease row, so it was read."""


class Watch:
    """Observer of one ledger.

    :param url: the ledger's

    ``events`` is what the subscriptions told, ``intents`` every act that was ever seen kept, by pipeline.
    """

    def __init__(self, commands: Commands, url: str) -> None:
        self.commands = commands
        self.audits = 0
        self.collected = 0
        self.faults: list[Fault] = []
        self.events: dict[str, list[Row]] = {}
        self._intents: dict[str, dict[int, Row]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._engine = engines.create_engine(engines.parse_url(url))

    @property
    def intents(self) -> Mapping[str, list[Row]]:
        """Every stored action, as it was last read."""
        return {pipeline: list(rows.values()) for pipeline, rows in self._intents.items()}

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()

    def audit(self, pipeline: str, *, quick: bool = False) -> None:
        """Read the partitions, audit the ledger, and look for missing ranges; none of these may ever find a fault."""
        self.commands.look(pipeline)
        ledger = self.commands.ledger
        try:
            found = ledger.audit(pipeline, quick=quick)
            missing = ledger.recovery_plan(pipeline, settle_lag=_NOTHING)
        except _UNREAD:
            return
        self.audits += 1
        said = [f"{item['name']} in {item['partition']}: {item['message']}" for item in found["violations"]]
        said += [f"{item.to_json()} is unaccounted for" for item in missing if item.reason is MissingReason.UNRECEIPTED]
        self.faults += [Fault(VIOLATION, f"audit of {pipeline}: {text}") for text in said]

    def follow(self, pipeline: str) -> bool:
        """Read what is new in the audit log, and the acts that are kept; says whether that worked."""
        if pipeline not in self._subscriptions:
            self._subscriptions[pipeline] = self.commands.ledger.subscribe(pipeline, 0)
        c = tables.stored_action.c
        try:
            self.events.setdefault(pipeline, []).extend(self._subscriptions[pipeline])
            with engines.open_snapshot(self._engine, "the storm's ledger") as connection:
                rows = (
                    connection.execute(sa.select(tables.stored_action).where(c.pipeline == pipeline)).mappings().all()
                )
        except _UNREAD:
            return False
        self._intents.setdefault(pipeline, {}).update({row["id"]: dict(row) for row in rows})
        return True

    def collect(self, pipeline: str, keep: timedelta) -> None:
        """Delete old rows of the ledger, after all of them were read."""
        if not self.follow(pipeline):
            return
        try:
            gone: dict[str, Any] = self.commands.ledger.garbage_collect(
                pipeline, keep=keep, actor="the collector", reason="storm"
            )
        except LedgerUnavailableError:
            return
        except CkptError as error:
            self.faults.append(Fault(VIOLATION, f"collecting of {pipeline} was refused: {error}"))
            return
        self.collected += sum(gone.values())

    def until(self, over: threading.Event) -> None:
        """Go from one pipeline to the next; meant for a thread, since a frozen process may hold what this waits for."""
        names = cycle(PIPELINES)
        for turn in count(1):
            if over.wait(_PAUSE):
                return
            name = next(names)
            self.audit(name, quick=turn % 3 == 0)
            self.follow(name)
            if turn % _COLLECT_EVERY == 0:
                self.collect(name, _KEEP)

    def parked_state(self) -> None:
        """Everything of every pipeline, now that nothing else happens."""
        for pipeline in self.commands.ledger.pipelines():
            self.audit(pipeline)
            if not any(self.follow(pipeline) for _ in range(_ATTEMPTS)):
                self.faults.append(Fault(VIOLATION, f"the audit log of {pipeline} cannot be read to its end"))
