"""The values that the ledger hands out: a lease, a partition as stored, range receipts, what a settlement decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_ckpt.core.actions import Act
from airflow_provider_ckpt.core.batch import BatchKey, Counts, Receipt
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.policy import Decision
from airflow_provider_ckpt.core.proposals import Proposal, ProposalState
from airflow_provider_ckpt.core.receipts import Known, RangeReceipt


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run a pipeline under an epoch.

    :param ttl: not renewed for this long, it may be taken over
    :param expires_at: by the database's clock, when it was last renewed through this object's making
    :param taken_over: whether it was taken from somebody else
    """

    pipeline: str
    owner: str
    epoch: int
    ttl: timedelta
    expires_at: datetime
    taken_over: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Totals:
    """What the receipts of one generation of a partition sum up to.

    :param batches: how many batches the checkpoint has passed
    :param rejected: of these, dead-lettered whole
    :param skipped: of these, let go
    :param sent: of these, sent at most once and never confirmed
    """

    counts: Counts = field(default_factory=Counts)
    batches: int = 0
    rejected: int = 0
    skipped: int = 0
    sent: int = 0

    def plus(self, parts: Iterable[Totals | RangeReceipt]) -> Totals:
        """These totals and more."""
        items = [self, *parts]
        return Totals(
            sum((item.counts for item in items), Counts()),
            sum(item.batches for item in items),
            sum(item.rejected for item in items),
            sum(item.skipped for item in items),
            sum(item.sent for item in items),
        )

    def to_json(self) -> dict[str, int]:
        """A JSON-ready dict; also the columns that hold it. :meth:`from_json` is its inverse."""
        return {
            **self.counts.to_json(),
            "batches": self.batches,
            "rejected": self.rejected,
            "skipped": self.skipped,
            "sent": self.sent,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Totals:
        """The totals that :meth:`to_json` wrote."""
        counts = Counts(data["read"], data["delivered"], data["filtered"], data["dead_lettered"])
        return cls(counts, data["batches"], data["rejected"], data["skipped"], data["sent"])


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition as stored.

    :param identity: names the very thing that it was started on
    :param state: what the source wants to be told at the next planning
    :param bound: the newest closed bound that planning noted, where the source has one
    :param unconfirmed: where the first batch starts that was sent at most once and not heard of since, if there is one
    :param low: the low watermark: recovery looks at what lies above it
    :param totals: what the checkpoint has passed in this generation
    """

    partition: Partition
    identity: str
    state: Mapping[str, Any]
    bound: int | None = None
    unconfirmed: int | None = None
    low: int = 0
    totals: Totals = field(default_factory=Totals)

    @property
    def known(self) -> Known:
        """Up to where no receipt of the sink's is news."""
        committed = self.partition.committed
        position = committed if self.unconfirmed is None else min(committed, self.unconfirmed)
        return Known(self.partition.generation, position)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a run found out about the work of runs before it.

    :param acked: receipts of batches that the ledger did not know to be resolved
    :param imported: receipts that the ledger did not know, or knew with another range
    :param fenced: batches whose attempt an older epoch left open, and that have no receipt
    :param caught_up: partitions of which the ledger had forgotten a rewind: in which generation they are now, and where
        that was taken to begin
    """

    acked: list[Receipt] = field(default_factory=list)
    imported: list[Receipt] = field(default_factory=list)
    fenced: list[BatchKey] = field(default_factory=list)
    caught_up: dict[str, Known] = field(default_factory=dict)

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


@dataclass(frozen=True, slots=True)
class Measures:
    """What is measured of a pipeline beyond its partitions.

    :param newest_event: the newest event's id
    :param parked: how many dead letters wait for a person
    :param oldest_parked: when the oldest of them was dead-lettered
    :param stands_since: since when the checkpoint stands that has waited longest for something beyond it
    :param expired: ranges that expired without a receipt, JSON-ready: ``partition`` and ``range``
    """

    newest_event: int
    parked: int
    oldest_parked: datetime | None
    stands_since: datetime | None
    expired: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Intent:
    """A person's act that waits for the holder of the lease.

    :param id: its number
    :param who: the person
    :param why: the reason, in the person's words
    """

    id: int
    act: Act
    who: str
    why: str | None
    stored_at: datetime


@dataclass(frozen=True, slots=True)
class ActResult:
    """What became of a person's act.

    :param applied: whether it was carried out now
    :param intent: its number where it was stored for the holder of the lease
    :param refusal: why it was refused
    :param before: phase, batches and checkpoints that it is about, before
    :param after: the same, after
    """

    act: Act
    applied: bool
    intent: int | None = None
    refusal: str | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProposalRecord:
    """A proposal as stored.

    :param digest: of the proposal, as it was stored and shown
    :param subject: the question's headline
    :param body: the question's text
    :param state: how far it has come
    :param expires_at: from then on it can be neither approved nor carried out
    :param answered_by: who approved or rejected it
    :param result: ``{"applied", "intent"}`` of one that was carried out, ``{"refusal"}`` of one that no longer fitted
    """

    proposal: Proposal
    digest: str
    subject: str
    body: str
    state: ProposalState
    expires_at: datetime
    answered_by: str | None
    result: Mapping[str, Any] | None
