"""Run one pipeline as its lease holder: acquire the lease, fence, reconcile, then send random commands until the end.

Only valid commands are sent, so a refusal for any other reason than a newer epoch is a defect of the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from random import Random

from sqlalchemy.exc import DBAPIError

from airflow_provider_ckpt.connectors.source_plan import Plan, PlannedBatch
from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import FencedError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import KnownReceipts
from airflow_provider_ckpt.ledger.types import Lease, PartitionRecord
from airflow_provider_ckpt.replication import process_lease_owner as owners
from tests.chaos.storm import users
from tests.chaos.storm.commands import Commands
from tests.chaos.storm.journal import Answer, Expect
from tests.chaos.storm.lanes import Lanes, a_policy
from tests.chaos.storm.scene import Pipe
from tests.chaos.storm.sink import AbstractSink

TTLS = (0.2, 0.5, 1.0, 3.0)
"""Seconds; short, so that leases expire under their holders."""

_LOOKS = 5
"""Tries at a read whose session may be ended under it."""

_MANY = 60
"""Unresolved batches beyond which a run plans no more."""


class Run:
    """An acquired lease, and the state of the pipeline as its holder knows it.

    :param pipe: the pipeline
    """

    def __init__(
        self, commands: Commands, sink: AbstractSink, lanes: Lanes, random: Random, lease: Lease, pipe: Pipe
    ) -> None:
        self.commands = commands
        self.sink = sink
        self.lanes = lanes
        self.random = random
        self.lease = lease
        self.pipe = pipe
        self.partitions: Mapping[str, Partition] = {}
        self.flying: dict[BatchKey, Batch] = {}
        self.late: list[Batch] = []

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""
        return self.lease.pipeline

    @property
    def running(self) -> bool:
        """Return whether the pipeline may plan and begin."""
        return all(partition.phase is Phase.RUNNING for partition in self.partitions.values())

    def open(self) -> bool:
        """Fence the sink and reconcile, as every run must before it begins anything; says whether it may go on."""
        try:
            self.sink.fence(self.pipeline, self.lease.epoch)
            if self.random.random() < 0.3 and not self._still(self.commands.declare(self.lease)):
                return False
            if not self._still(self.commands.start(self.lease, self.pipe.names)):
                return False
            records = self._records()
            if records is None:
                return False
            receipts = self.sink.receipts(self.pipeline, {name: record.known for name, record in records.items()})
        except (FencedError, DBAPIError):
            return False
        done = self.commands.reconcile(self.lease, receipts, now=datetime.now(UTC), window=self.pipe.window)
        return self._still(done) and done.value is not None and self.apply_stored_actions(behind_fence=True)

    def work(self, steps: int) -> bool:
        """Take a number of random steps; return whether the lease is still valid as far as is known."""
        moves = (self.send, self.settle, self.plan, self.lose, self.cancel, self.intents, self.keep, self.tidy)
        for _ in range(steps):
            [move] = self.random.choices(moves, (10, 10, 5, 1, 1, 2, 2, 1))
            if not move():
                return False
            self._dawdle()
        return True

    def plan(self) -> bool:
        """Plan a few batches; now and then where there is nothing to plan."""
        chosen = self.random.sample(sorted(self.partitions), k=min(len(self.partitions), self.random.randint(1, 3)))
        parts = [self.partitions[name] for name in chosen]
        wrong = self.random.random() < 0.04
        enough = sum(len(part.blocking) for part in self.partitions.values()) > _MANY
        if not wrong and (enough or (not self.running and self.random.random() < 0.8)):
            return True
        batches = [batch for part in parts for batch in self._ranges(part, wrong)]
        if not batches:
            return True
        expect = Expect.WRONG if wrong or not self.running else Expect.VALID
        generations = {part.id: part.generation for part in parts}
        done = self.commands.plan(self.lease, Plan(batches), generations, expect)
        return self._still(done) and self._learn(done)

    def send(self) -> bool:
        """Begin batches that are due; now and then one that may not be begun."""
        now = datetime.now(UTC)
        planned = [b for p in self.partitions.values() for b in p.batches.values() if b.state is BatchState.PLANNED]
        due = [batch for batch in planned if batch.not_before is None or batch.not_before <= now]
        if not due or (not self.running and self.random.random() < 0.8):
            return self.plan()
        keys = [batch.key for batch in sorted(due, key=lambda batch: batch.key)[: self.random.randint(1, 8)]]
        wrong = self.random.random() < 0.04
        if wrong:
            early = [batch.key for batch in planned if batch not in due]
            keys.append(early[0] if early else BatchKey(keys[0].generation, keys[0].partition, 10**9))
        expect = Expect.WRONG if wrong or not self.running else Expect.VALID
        done = self.commands.begin(self.lease, keys, now=now, at_most_once=self.pipe.at_most_once, expect=expect)
        self.flying |= {batch.key: batch for batch in done.value or ()}
        return self._still(done) and self._learn(done)

    def settle(self) -> bool:
        """Have the lanes carry out what is begun, and settle what they report, in one go or two."""
        reports = self.lanes.reports(self.pipeline, list(self.flying.values()), self.lease.epoch)
        self.random.shuffle(reports)
        cut = self.random.randint(0, len(reports)) if self.random.random() < 0.3 else len(reports)
        for part in filter(None, (reports[:cut], reports[cut:])):
            done = self.commands.settle(
                self.lease,
                part,
                now=datetime.now(UTC),
                policy=a_policy(self.random),
                unit=lambda: self.random.uniform(-1, 1),
                window=self.pipe.window,
            )
            if not self._still(done):
                return False
            for report in part if done.value else ():
                gone = self.flying.pop(report.key, None)
                if gone is not None and report.receipt is None and self.random.random() < 0.2:
                    self.late.append(gone)
        return self.look()

    def lose(self) -> bool:
        """Simulate the loss of Spark; its open attempts may still claim their receipts later."""
        flying = list(self.flying)
        cut = self.random.randint(0, len(flying))
        try:
            known = {name: KnownReceipts(part.generation, part.committed) for name, part in self.partitions.items()}
            receipts = self.sink.receipts(self.pipeline, known)
        except DBAPIError:
            return True
        lanes = [lane for lane in (flying[:cut], flying[cut:]) if lane]
        done = self.commands.lost(
            self.lease,
            lanes,
            receipts,
            now=datetime.now(UTC),
            limit=self.random.randint(1, 3),
            window=self.pipe.window,
        )
        self._drop_flying()
        return self._still(done) and self.look()

    def cancel(self) -> bool:
        """Cancel what is in flight."""
        done = self.commands.cancel(self.lease, now=datetime.now(UTC))
        self._drop_flying()
        return self._still(done) and self.look()

    def intents(self) -> bool:
        """Apply the stored actions of users, or carry out an action of this run."""
        if self.random.random() < 0.6:
            return self.apply_stored_actions(behind_fence=False)
        act = users.an_act(self.partitions, self.random, behind_fence=False)
        return self._still(self.commands.act_under_lease(self.lease, act)) and self.look()

    def keep(self) -> bool:
        """Renew the lease, or attach to it once more."""
        if self.random.random() < 0.5:
            return self._still(self.commands.renew(self.lease))
        return self._still(self.commands.attach(self.lease))

    def tidy(self) -> bool:
        """Have an orphaned task claim the receipt of its batch after all."""
        for batch in self.late:
            self.lanes.claim(self.pipeline, batch, self.lease.epoch)
        self.late.clear()
        return True

    def apply_stored_actions(self, *, behind_fence: bool) -> bool:
        """Apply the stored actions of users."""
        done = self.commands.apply_stored_actions(self.lease, now=datetime.now(UTC), behind_fence=behind_fence)
        return self._still(done) and self.look()

    def look(self) -> bool:
        """Read the partitions from the ledger again; return whether that worked, since the run needs them."""
        return self._records() is not None

    def _learn(self, done: Answer[list[Batch]]) -> bool:
        """Take over the batches that a command has returned; read them from the ledger if it did not answer."""
        if done.value is None:
            return self.look()
        for batch in done.value:
            part = self.partitions[batch.key.partition]
            part.batches[batch.key.seq] = batch
            part.planned_end = max(part.planned_end, batch.range.end)
        return True

    def _records(self) -> Mapping[str, PartitionRecord] | None:
        for _ in range(_LOOKS):
            records = self.commands.look(self.pipeline).value
            if records is not None:
                self.partitions = {name: record.partition for name, record in records.items()}
                return records
        return None

    def _ranges(self, part: Partition, wrong: bool) -> list[PlannedBatch]:
        at = part.planned_end + (5 if wrong else 0)
        batches = []
        for _ in range(self.random.randint(1, 5)):
            end = at + self.random.randint(1, 40)
            if part.limit is not None:
                end = min(end, part.limit + (50 if wrong else 0))
            if at < end:
                batches.append(PlannedBatch(part.id, Range(at, end), end - at))
                at = end
        return batches

    def _drop_flying(self) -> None:
        self.late += [batch for batch in self.flying.values() if self.random.random() < 0.3]
        self.flying.clear()

    def _dawdle(self) -> None:
        if self.random.random() < 0.02:
            time.sleep(self.random.uniform(0, 1.5 * min(self.lease.ttl.total_seconds(), 1.0)))

    @staticmethod
    def _still(done: Answer[object]) -> bool:
        return not done.over


def a_lease(commands: Commands, sink: AbstractSink, pipeline: str, owner: str, random: Random) -> Answer[Lease]:
    """Ask for the lease, as runs do, and now and then by force."""
    ttl = timedelta(seconds=random.choice(TTLS))
    knows_death = random.random() < 0.5
    return commands.acquire(
        pipeline,
        owner,
        ttl,
        at_least=sink.epoch(pipeline),
        force=random.random() < 0.02,
        **({"is_dead": owners.is_dead} if knows_death else {}),
    )
