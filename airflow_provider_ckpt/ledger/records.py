"""The values that the ledger hands out: a lease, a partition as stored, range receipts, what a settlement decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_ckpt.core.batch import Batch, BatchKey, BatchState, Counts, Receipt
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.policy import Decision
from airflow_provider_ckpt.core.ranges import Range


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run a pipeline under an epoch.

    :param ttl: not renewed for this long, it may be taken over
    :param expires_at: by the database's clock, when it was last renewed through this object's making
    """

    pipeline: str
    owner: str
    epoch: int
    ttl: timedelta
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition as stored.

    :param identity: names the very thing that it was started on
    :param state: what the source wants to be told at the next planning
    :param bound: the newest closed bound that planning noted, where the source has one
    :param unconfirmed: where the first batch starts that was sent at most once and not heard of since, if there is one
    """

    partition: Partition
    identity: str
    state: Mapping[str, Any]
    bound: int | None = None
    unconfirmed: int | None = None

    @property
    def after(self) -> int:
        """The sink's receipts that end beyond this position may be news."""
        committed = self.partition.committed
        return committed if self.unconfirmed is None else min(committed, self.unconfirmed)


@dataclass(frozen=True, slots=True)
class RangeReceipt:
    """Contiguous receipts below the checkpoint, as one.

    :param batches: how many went in
    :param rejected: of these, dead-lettered whole
    :param skipped: of these, let go
    :param sent: of these, sent at most once and never confirmed
    """

    generation: int
    partition: str
    range: Range
    counts: Counts
    batches: int
    rejected: int = 0
    skipped: int = 0
    sent: int = 0

    @classmethod
    def of(cls, batch: Batch) -> RangeReceipt:
        """The range receipt of one resolved batch."""
        return cls(
            batch.key.generation,
            batch.key.partition,
            batch.range,
            batch.receipt.counts if batch.receipt else Counts(),
            1,
            int(batch.state is BatchState.REJECTED),
            int(batch.state is BatchState.SKIPPED),
            int(batch.state is BatchState.SENT),
        )


def merge_receipts(receipts: Iterable[RangeReceipt]) -> list[RangeReceipt]:
    """The receipts of one partition and generation, as few as possible: touching and overlapping ones become one."""
    groups: list[list[RangeReceipt]] = []
    end = 0
    for item in sorted(receipts, key=lambda receipt: receipt.range):
        if groups and item.range.start <= end:
            groups[-1].append(item)
            end = max(end, item.range.end)
        else:
            groups.append([item])
            end = item.range.end
    return [_sum(group) for group in groups]


def _sum(group: list[RangeReceipt]) -> RangeReceipt:
    first = group[0]
    counts = [item.counts for item in group]
    return RangeReceipt(
        first.generation,
        first.partition,
        Range(first.range.start, max(item.range.end for item in group)),
        Counts(
            sum(c.read for c in counts),
            sum(c.delivered for c in counts),
            sum(c.filtered for c in counts),
            sum(c.dead_lettered for c in counts),
        ),
        sum(item.batches for item in group),
        sum(item.rejected for item in group),
        sum(item.skipped for item in group),
        sum(item.sent for item in group),
    )


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a run found out about the work of runs before it.

    :param acked: receipts of batches that the ledger did not know to be resolved
    :param imported: receipts that the ledger did not know, or knew with another range
    :param fenced: batches whose attempt an older epoch left open, and that have no receipt
    """

    acked: list[Receipt] = field(default_factory=list)
    imported: list[Receipt] = field(default_factory=list)
    fenced: list[BatchKey] = field(default_factory=list)

    @property
    def counts(self) -> Counts:
        """Records of all receipts that were news, by their fate."""
        return sum((receipt.counts for receipt in [*self.acked, *self.imported]), Counts())


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of the outcomes of a wave.

    :param acked: receipts that resolved a batch now
    :param decisions: what the policy decided of each batch that failed
    :param halted: the error that ends the run until a person has acted
    :param failed: the error of the sink or source as a whole that ends the run
    :param checkpoint: committed position of every partition, afterwards
    """

    acked: list[Receipt] = field(default_factory=list)
    decisions: dict[BatchKey, Decision] = field(default_factory=dict)
    halted: ErrorInfo | None = None
    failed: ErrorInfo | None = None
    checkpoint: dict[str, int] = field(default_factory=dict)
