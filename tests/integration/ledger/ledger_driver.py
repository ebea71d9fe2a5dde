"""Send a run's commands to the ledger, each with one call; the sink is a list of receipts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from airflow_provider_ckpt.connectors.source_plan import Plan, PlannedBatch, SourcePartition
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch import AttemptOutcome, Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.types import ActionResult, Lease, PartitionRecord, Reconciliation, Settlement

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TTL = timedelta(seconds=60)
TRANSIENT = ErrorInfo(ErrorType.SINK, "connection reset", recoverable=True, sqlstate="08006")
BAD_DATA = ErrorInfo(ErrorType.SINK, "value too long", sqlstate="22001")
OUTAGE = ErrorInfo(ErrorType.SINK, "no route to host", recoverable=True, sqlstate="08001", is_outage=True)
UNNAMED = ErrorInfo(ErrorType.GENERIC, "nobody knows")


def receipt_of(batch: Batch, verdict: Verdict = Verdict.DELIVERED, *, epoch: int = 1, dead: int = 0) -> Receipt:
    """The sink's receipt for a batch: the planned records, ``dead`` of them dead-lettered."""
    size = batch.range.end - batch.range.start if batch.records is None else batch.records
    if verdict is Verdict.REJECTED:
        dead = size
    counts = Counts() if verdict is Verdict.VOID else Counts(size, size - dead, 0, dead)
    return Receipt(batch.key, batch.range, verdict, epoch, max(batch.attempts, 1), counts, NOW)


def delivered(batch: Batch, *, dead: int = 0, dead_letters: dict[str, int] | None = None) -> Outcome:
    """A lane's report of success."""
    receipt = receipt_of(batch, dead=dead)
    return Outcome(batch.key, batch.attempts, AttemptOutcome.DELIVERED, receipt, dead_letters=dead_letters or {})


def ended(batch: Batch, outcome: AttemptOutcome, error: ErrorInfo | None = None) -> Outcome:
    """A lane's report of anything else."""
    return Outcome(batch.key, batch.attempts, outcome, error=error)


def failed(batch: Batch, error: ErrorInfo = TRANSIENT) -> Outcome:
    """A lane's report of a failure."""
    return ended(batch, AttemptOutcome.FAILED, error)


class LedgerDriver:
    """A run of one pipeline, under a clock that only a test moves.

    :param owner: holds the lease from the start
    """

    now: datetime
    window: timedelta | None = None

    def __init__(self, ledger: Ledger, owner: str = "first", pipeline: str = "orders") -> None:
        self.ledger = ledger
        self.now = NOW
        self.lease: Lease = ledger.acquire(pipeline, owner, TTL)

    def start(self, *names: str, base: int = 0) -> Self:
        """Start partitions."""
        sources = {SourcePartition(name, f"thing of {name}"): base for name in names}
        self.ledger.start_partitions(self.lease, sources, now=self.now)
        return self

    def wait(self, **time: float) -> Self:
        """Let time pass, given as a timedelta takes it."""
        self.now += timedelta(**time)
        return self

    def again(self, owner: str = "first") -> Self:
        """Acquire anew, as the next run does."""
        self.ledger.release(self.lease)
        self.lease = self.ledger.acquire(self.lease.pipeline, owner, TTL)
        return self

    def plan(self, *ends: int, name: str = "t", start: int | None = None, records: int | None = None) -> list[Batch]:
        """Plan one batch up to each of ``ends``, of so many records, by default one a position."""
        at = self.partition(name).planned_end if start is None else start
        planned = []
        for end in ends:
            planned.append(PlannedBatch(name, Range(at, end), end - at if records is None else records))
            at = end
        return self.ledger.plan(self.lease, Plan(planned), now=self.now)

    def begin(
        self, batches: Iterable[Batch], *, now: datetime | None = None, at_most_once: bool = False
    ) -> list[Batch]:
        """Open attempts."""
        keys = [batch.key for batch in batches]
        return self.ledger.begin(self.lease, keys, now=now or self.now, run="run 1", at_most_once=at_most_once)

    def send(self, *ends: int, name: str = "t") -> list[Batch]:
        """Plan and begin."""
        return self.begin(self.plan(*ends, name=name))

    def deliver(self, *ends: int, name: str = "t") -> Settlement:
        """Plan, begin and settle."""
        return self.settle(*map(delivered, self.send(*ends, name=name)))

    def settle(
        self, *outcomes: Outcome, policy: DeliveryPolicy | None = None, now: datetime | None = None
    ) -> Settlement:
        """Settle, without jitter."""
        return self.ledger.settle(
            self.lease,
            outcomes,
            now=now or self.now,
            policy=policy or DeliveryPolicy(),
            deviation=lambda: 0.0,
            window=self.window,
        )

    def reconcile(self, *receipts: Receipt) -> Reconciliation:
        """Reconcile with a sink that holds just these receipts."""
        return self.ledger.reconcile(self.lease, receipts, now=self.now, window=self.window)

    def lost(
        self, *lanes: Sequence[Batch], receipts: Sequence[Receipt] = (), alone: bool = False, limit: int = 3
    ) -> Settlement:
        """Lose Spark."""
        keys = [[batch.key for batch in lane] for lane in lanes]
        return self.ledger.settle_lost_wave(
            self.lease, keys, receipts, now=self.now, alone=alone, limit=limit, window=self.window
        )

    def action(self, kind: ActionKind, *batches: Batch, **more: Any) -> ActionResult:
        """A person's act that waits for the holder of the lease, who applies it behind the fence."""
        action = Action(kind, tuple(batch.key for batch in batches), **more)
        self.ledger.action(self.lease.pipeline, action, actor="ann", reason="because")
        (result,) = self.ledger.apply_stored_actions(self.lease, now=self.now, behind_fence=True)
        return result

    def record(self, name: str = "t") -> PartitionRecord:
        """The stored partition."""
        return self.ledger.partitions(self.lease.pipeline)[name]

    def partition(self, name: str = "t") -> Partition:
        """The stored state."""
        return self.record(name).partition

    def batch(self, key: BatchKey) -> Batch:
        """A stored batch."""
        return self.partition(key.partition).batches[key.seq]

    def states(self, name: str = "t") -> dict[int, BatchState]:
        """The state of each batch beyond the checkpoint."""
        return {seq: batch.state for seq, batch in self.partition(name).batches.items()}

    def receipts(self) -> list[tuple[int, int, int, int]]:
        """Range receipts: start, end, batches, delivered."""
        found = self.ledger.receipts(self.lease.pipeline)
        return [(r.range.start, r.range.end, r.batches, r.counts.delivered) for r in found]

    def ranges(self, generation: int = 1, name: str = "t") -> list[tuple[int, int]]:
        """The ranges of the receipts of one generation of a partition."""
        found = self.ledger.receipts(self.lease.pipeline)
        return [(r.range.start, r.range.end) for r in found if (r.generation, r.partition) == (generation, name)]

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """The audit log's events of some kinds."""
        return [event for event in self.ledger.events(self.lease.pipeline, limit=10_000) if event["kind"] in kinds]
