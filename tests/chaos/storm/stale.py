"""Send commands under a lease that has ended, or that the process never had; the ledger must refuse them.

Except for their lease, these commands are valid, and their receipts are made up. So a ledger that accepts one contains
the made-up receipt afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

from airflow_provider_ckpt.connectors.source_plan import Plan, PlannedBatch
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import AttemptOutcome, Batch, BatchState
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Receipt, Verdict
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.ledger.types import Lease
from tests.chaos.storm.commands import Commands
from tests.chaos.storm.journal import Answer, Expect
from tests.chaos.storm.lanes import a_policy, receipt_for

POISON = "poison"
"""A partition that only a stale command starts."""


class Zombie:
    """Commands under a lease that is over.

    :param lease: certainly not the current one
    """

    def __init__(self, commands: Commands, lease: Lease, random: Random) -> None:
        self._commands = commands
        self._lease = lease
        self._random = random

    def stir(self) -> None:
        """Give one command."""
        records = self._commands.look(self._lease.pipeline).value or {}
        partitions = {name: record.partition for name, record in records.items()}
        moves: tuple[Callable[[Mapping[str, Partition]], Answer[object] | None], ...] = (
            self._plan,
            self._begin,
            self._settle,
            self._lost,
            self._reconcile,
            self._act,
            self._others,
        )
        self._random.choices(moves, (2, 2, 3, 1, 1, 1, 4))[0](partitions)

    def _plan(self, partitions: Mapping[str, Partition]) -> Answer[object] | None:
        part = self._one(partitions)
        if part is None:
            return None
        batch = PlannedBatch(part.id, Range(part.planned_end, part.planned_end + 7))
        return self._commands.plan(self._lease, Plan([batch]), {part.id: part.generation}, Expect.STALE)

    def _begin(self, partitions: Mapping[str, Partition]) -> Answer[object] | None:
        keys = [batch.key for batch in self._in(partitions, BatchState.PLANNED)][:1]
        return self._commands.begin(self._lease, keys, now=datetime.now(UTC), at_most_once=False, expect=Expect.STALE)

    def _settle(self, partitions: Mapping[str, Partition]) -> Answer[object] | None:
        now = datetime.now(UTC)
        reports = [
            Outcome(receipt.key, receipt.attempt, AttemptOutcome.VOID, receipt) for receipt in self._forged(partitions)
        ]
        return self._commands.settle(
            self._lease, reports, now=now, policy=a_policy(self._random), unit=lambda: 0.0, expect=Expect.STALE
        )

    def _lost(self, partitions: Mapping[str, Partition]) -> Answer[object] | None:
        lanes = [[batch.key] for batch in self._in(partitions, BatchState.IN_FLIGHT)]
        forged = self._forged(partitions)
        return self._commands.lost(self._lease, lanes, forged, now=datetime.now(UTC), limit=1, expect=Expect.STALE)

    def _reconcile(self, partitions: Mapping[str, Partition]) -> Answer[object] | None:
        forged = self._forged(partitions)
        return self._commands.reconcile(self._lease, forged, now=datetime.now(UTC), expect=Expect.STALE)

    def _act(self, partitions: Mapping[str, Partition]) -> Answer[object] | None:
        part = self._one(partitions)
        if part is None:
            return None
        kind = self._random.choice((ActionKind.REWIND, ActionKind.FORCE_STOP, ActionKind.DRAIN))
        positions = {part.id: part.base} if kind is ActionKind.REWIND else {}
        return self._commands.act_under_lease(self._lease, Action(kind, positions=positions), Expect.STALE)

    def _others(self, _: Mapping[str, Partition]) -> Answer[object] | None:
        now = datetime.now(UTC)
        moves: tuple[Callable[[], Answer[object]], ...] = (
            lambda: self._commands.declare(self._lease, Expect.STALE),
            lambda: self._commands.start(self._lease, [POISON], Expect.STALE),
            lambda: self._commands.cancel(self._lease, now=now, expect=Expect.STALE),
            lambda: self._commands.renew(self._lease, Expect.STALE),
            lambda: self._commands.attach(self._lease, Expect.STALE),
            lambda: self._commands.apply_stored_actions(self._lease, now=now, behind_fence=True, expect=Expect.STALE),
        )
        return self._random.choice(moves)()

    def _one(self, partitions: Mapping[str, Partition]) -> Partition | None:
        found = [part for part in partitions.values() if part.limit is None and part.phase is Phase.RUNNING]
        return self._random.choice(found) if found else None

    def _in(self, partitions: Mapping[str, Partition], state: BatchState) -> list[Batch]:
        return [batch for part in partitions.values() for batch in part.batches.values() if batch.state is state]

    def _forged(self, partitions: Mapping[str, Partition]) -> list[Receipt]:
        """Receipts that no sink holds, of batches that wait for theirs."""
        open_ones = [batch for batch in self._in(partitions, BatchState.IN_FLIGHT) if batch.started]
        return [receipt_for(batch, self._lease.epoch, Verdict.VOID) for batch in open_ones[:2]]


def impostor(lease: Lease, random: Random) -> Lease:
    """Return a lease that was never granted: with another owner, or with a future epoch."""
    if random.random() < 0.5:
        return replace(lease, owner=f"not {lease.owner}")
    return replace(lease, epoch=lease.epoch + 1000)
