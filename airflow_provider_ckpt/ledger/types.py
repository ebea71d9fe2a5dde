"""Value types that the ledger returns: leases, stored partitions, totals, reconciliations, settlements, proposals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_ckpt.core.action import Action
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, StaleEpochError
from airflow_provider_ckpt.core.failure_decisions import Decision
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.proposals import Proposal, ProposalState
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.receipt import Counts, KnownReceipts, Receipt


@dataclass(frozen=True, slots=True)
class Lease:
    """Right to run a pipeline, as one run acquired it under an epoch.

    :param pipeline: name of the pipeline
    :param owner: name of the task or process that holds the lease, see ``replication/process_lease_owner.py``
    :param epoch: epoch of the lease
    :param ttl: time without renewal after which another owner may take the lease over
    :param expires_at: when the lease expires by the database's clock; a later renewal does not change this value
    :param taken_over: whether the lease was taken from another owner
    """

    pipeline: str
    owner: str
    epoch: int
    ttl: timedelta
    expires_at: datetime
    taken_over: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Renewal:
    """Result of renewing several leases; leases that it does not name were renewed.

    :param lost: leases that their owner no longer holds, each with the error
    :param locked: leases that were not renewed because another command had locked their row
    """

    lost: Mapping[Lease, StaleEpochError] = field(default_factory=dict)
    locked: frozenset[Lease] = frozenset()


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the batches of one generation of a partition that the checkpoint has passed.

    :param counts: numbers of records that were read, delivered, filtered and dead-lettered
    :param batches: number of batches that the checkpoint has passed
    :param rejected: number of these batches whose records all became dead letters
    :param skipped: number of these batches that a user or the delivery policy gave up (verdict ``void``)
    :param sent: number of these batches that were sent with at-most-once delivery and of which no receipt is known
    """

    counts: Counts = field(default_factory=Counts)
    batches: int = 0
    rejected: int = 0
    skipped: int = 0
    sent: int = 0

    def plus(self, parts: Iterable[Totals | RangeReceipt]) -> Totals:
        """Return the sum of these totals and of other totals or range receipts."""
        items = [self, *parts]
        return Totals(
            sum((item.counts for item in items), Counts()),
            sum(item.batches for item in items),
            sum(item.rejected for item in items),
            sum(item.skipped for item in items),
            sum(item.sent for item in items),
        )

    def to_json(self) -> dict[str, int]:
        """Return the totals as a JSON-ready dict whose keys are column names; :meth:`from_json` is the inverse."""
        return {
            **self.counts.to_json(),
            "batches": self.batches,
            "rejected": self.rejected,
            "skipped": self.skipped,
            "sent": self.sent,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Totals:
        """Restore the totals from the output of :meth:`to_json`."""
        counts = Counts(data["read"], data["delivered"], data["filtered"], data["dead_lettered"])
        return cls(counts, data["batches"], data["rejected"], data["skipped"], data["sent"])


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition as the ledger stores it, the type that queries return.

    :param partition: the partition, with the batches beyond its checkpoint
    :param identity: identity of the table, topic partition or file list on which the partition was started
    :param state: JSON-ready values that the source stored at its last planning and gets back at the next one
    :param bound: newest closed bound that planning recorded, below which no record can appear any more; None if the
        source has none
    :param unconfirmed: start of the first batch that was sent at most once and not confirmed since; None if there is
        none
    :param low_watermark: position from which ``recover`` searches for records that were missed
    :param totals: sums of this generation's batches below the checkpoint
    """

    partition: Partition
    identity: str
    state: Mapping[str, Any]
    bound: int | None = None
    unconfirmed: int | None = None
    low_watermark: int = 0
    totals: Totals = field(default_factory=Totals)

    @property
    def known(self) -> KnownReceipts:
        """Generation and position up to which the ledger already knows all of the sink's receipts.

        A run asks the sink only for receipts beyond this position.
        """
        committed = self.partition.committed
        position = committed if self.unconfirmed is None else min(committed, self.unconfirmed)
        return KnownReceipts(self.partition.generation, position)


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """Result of reconciling the ledger with the sink's receipts.

    :param acked: receipts that resolved a batch of the ledger
    :param imported: receipts that the ledger did not know, or knew with another range
    :param fenced: batches without a receipt whose attempt of an older epoch was still open and was ended
    :param repeated_rewinds: partitions with a rewind that the ledger had lost and has carried out again, with their
        generation and the position at which it now starts
    """

    acked: list[Receipt] = field(default_factory=list)
    imported: list[Receipt] = field(default_factory=list)
    fenced: list[BatchKey] = field(default_factory=list)
    repeated_rewinds: dict[str, KnownReceipts] = field(default_factory=dict)

    @property
    def counts(self) -> Counts:
        """Sum of the record counts of all receipts that the ledger did not know before the reconciliation."""
        return sum((receipt.counts for receipt in [*self.acked, *self.imported]), Counts())


@dataclass(frozen=True, slots=True)
class Settlement:
    """Result of recording the outcomes of a wave's batches in the ledger.

    :param acked: receipts that resolved a batch
    :param decisions: decision of the delivery policy about each failed batch, such as a retry
    :param halted: first error that ends the run and that only a user can resolve; None if there is none
    :param failed: first error that ends the run and leaves its batch planned, such as an outage of the sink; None if
        there is none
    :param checkpoint: checkpoint of every partition after the settlement
    """

    acked: list[Receipt] = field(default_factory=list)
    decisions: dict[BatchKey, Decision] = field(default_factory=dict)
    halted: ErrorInfo | None = None
    failed: ErrorInfo | None = None
    checkpoint: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measures:
    """Values that metrics report for a pipeline as a whole.

    :param newest_event: id of the newest event; 0 if there is none
    :param parked: number of dead letters that wait for a user to replay or discard them
    :param oldest_parked: when the receipt of the oldest parked dead letter was claimed, UTC; None if there are none
    :param stalled_since: of all partitions with batches beyond the checkpoint, the earliest time at which a checkpoint
        last moved, UTC; None if there are no such partitions
    :param expired: ranges without a receipt that recovery can no longer compare with the source, as JSON-ready dicts
        with ``partition`` and ``range``
    """

    newest_event: int
    parked: int
    oldest_parked: datetime | None
    stalled_since: datetime | None
    expired: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class StoredAction:
    """A user's action that is stored until a run that holds the lease applies it.

    :param id: number of the stored action
    :param action: the action
    :param actor: the user who requested the action, such as ``cli:ann@host7``
    :param reason: the user's explanation, which the audit log stores; None if there is none
    :param stored_at: time at which the action was stored, UTC
    """

    id: int
    action: Action
    actor: str
    reason: str | None
    stored_at: datetime


@dataclass(frozen=True, slots=True)
class ActionResult:
    """Result of a user's action on a pipeline.

    :param action: the action
    :param applied: whether the action was carried out; False if it was stored, refused, or only tried in a dry run
    :param intent: number of the stored action if a run is to apply it; None otherwise
    :param refusal: reason for which the ledger refused the action; None if it did not
    :param before: phase, batches, checkpoints and dead letters that the action concerns, before it; JSON-ready
    :param after: the same values after the action
    """

    action: Action
    applied: bool
    intent: int | None = None
    refusal: str | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProposalRecord:
    """A proposal as the ledger stores it, with the question that the approver is asked and the answer.

    :param proposal: the proposed action, with its pipeline and the task that proposed it
    :param digest: digest of the proposal as it was stored and shown
    :param subject: headline of the question
    :param body: text of the question
    :param state: state of the proposal, such as approved
    :param expires_at: time from which the proposal can be neither approved nor carried out, UTC
    :param answered_by: the user who approved or rejected the proposal; None as long as it has no answer
    :param result: if the action was carried out, a dict with ``applied``, whether it took effect at once, and
        ``intent``, the id of the stored action if it did not; if it was refused, a dict with ``refusal``, the reason as
        text; None otherwise
    """

    proposal: Proposal
    digest: str
    subject: str
    body: str
    state: ProposalState
    expires_at: datetime
    answered_by: str | None
    result: Mapping[str, Any] | None
