"""Create partitions, receipts and errors with one call each, for the tests of the core."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow_provider_ckpt.core.batch import Batch
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.tickets import InFlightTicket, PlannedTicket

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BROKEN = ErrorInfo(ErrorType.SINK, "connection reset", recoverable=True, sqlstate="08006")


def partition_of(*ends: int, base: int = 0) -> Partition:
    """A partition with one planned batch up to each of ``ends``."""
    made = Partition("p", base=base)
    for end in ends:
        made.plan(Range(made.planned_end, end))
    return made


def begin(partition: Partition, seq: int, *, epoch: int = 1) -> InFlightTicket:
    """Open an attempt."""
    return partition.begin(partition.planned_ticket(seq), epoch=epoch, now=NOW)[0]


def begin_all(partition: Partition, *, epoch: int = 1) -> list[InFlightTicket]:
    """Open an attempt of every planned batch, in order of seq."""
    return [begin(partition, seq, epoch=epoch) for seq in sorted(partition.batches)]


def receipt_of(batch: Batch, verdict: Verdict = Verdict.DELIVERED, *, epoch: int = 1) -> Receipt:
    """The sink's receipt for a batch."""
    size = batch.range.end - batch.range.start
    counts = Counts(size, size) if verdict is Verdict.DELIVERED else Counts(size, 0, 0, size)
    return Receipt(batch.key, batch.range, verdict, epoch, max(batch.attempts, 1), counts, NOW)


def ack(partition: Partition, seq: int, verdict: Verdict = Verdict.DELIVERED) -> list[str]:
    """Resolve a batch by a receipt; the kinds of the events."""
    return [event.kind for event in partition.ack(receipt_of(partition.batches[seq], verdict))]


def fail(
    partition: Partition, ticket: InFlightTicket, *, next_round: bool = False, counts: bool = True
) -> PlannedTicket:
    """Report a failure that waits for nothing."""
    return partition.fail(ticket, BROKEN, not_before=None, next_round=next_round, counts=counts)[0]
