"""Questions of the search to one partition; each consists of one or a few calls of the core.

A question is a tuple: one of the functions in this module, then its arguments. So it can be stored together with its
answer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_ckpt.core import reconcile as reconciling
from airflow_provider_ckpt.core.batch import Batch, BatchState, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.reconcile import import_receipts
from airflow_provider_ckpt.core.tickets import Event, InFlightTicket, PlannedTicket

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
BROKEN = ErrorInfo(ErrorType.SINK, "connection reset", recoverable=True, sqlstate="08006")
DEATHS = 2
"""At so many deaths alone a batch is held."""

VERDICTS = {
    Instruction.DELIVER: Verdict.DELIVERED,
    Instruction.REJECT: Verdict.REJECTED,
    Instruction.VOID: Verdict.VOID,
}

Question = tuple[Any, ...]


def counts_of(span: Range, verdict: Verdict) -> Counts:
    """One record a position; the one at 1 is bad, the one at 2 is filtered out."""
    size = span.end - span.start
    if verdict is Verdict.VOID:
        return Counts()
    if verdict is Verdict.REJECTED:
        return Counts(size, 0, 0, size)
    bad, filtered = int(span.start <= 1 < span.end), int(span.start <= 2 < span.end)
    return Counts(size, size - bad - filtered, filtered, bad)


def receipt_of(key: BatchKey, span: Range, verdict: Verdict, *, epoch: int, attempt: int) -> Receipt:
    """The receipt that a lane claims."""
    return Receipt(key, span, verdict, epoch, attempt, counts_of(span, verdict), NOW)


# What a run does


def plan(partition: Partition, start: int, end: int) -> list[Event]:
    """Plan one batch."""
    return partition.plan(Range(start, end), records=end - start)


def begin(partition: Partition, seq: int, epoch: int, at_most_once: bool) -> list[Event]:
    """Open an attempt when its time has come."""
    return partition.begin(partition.planned_ticket(seq), epoch=epoch, now=LATER, at_most_once=at_most_once)[1]


def begin_early(partition: Partition, seq: int, epoch: int) -> list[Event]:
    """Open an attempt at once."""
    return partition.begin(partition.planned_ticket(seq), epoch=epoch, now=NOW)[1]


def take(partition: Partition, receipt: Receipt) -> list[Event]:
    """Hear of a receipt: acknowledge it, or import it if its range is not the batch's."""
    batch = partition.batches.get(receipt.key.seq) if receipt.key.generation == partition.generation else None
    if batch is not None and batch.started and batch.receipt is None and batch.range != receipt.range:
        return import_receipts(partition, [receipt])
    return partition.ack(receipt)


def fail(partition: Partition, seq: int, counts: bool, next_round: bool, wait: bool) -> list[Event]:
    """Hear of a failure."""
    not_before = LATER if wait else None
    ticket = partition.in_flight_ticket(seq)
    return partition.fail(ticket, BROKEN, not_before=not_before, counts=counts, next_round=next_round)[1]


def not_attempted(partition: Partition, seq: int) -> list[Event]:
    """Hear that the lane never came to it."""
    return partition.not_attempted(partition.in_flight_ticket(seq))[1]


def abandon(partition: Partition, seq: int) -> list[Event]:
    """Lose the lane."""
    return partition.abandon(partition.in_flight_ticket(seq))[1]


def cancel(partition: Partition, seq: int) -> list[Event]:
    """Cancel the open attempt."""
    return partition.cancel(partition.in_flight_ticket(seq))[1]


def died_alone(partition: Partition, seq: int) -> list[Event]:
    """Lose the executor of a batch that ran alone."""
    return partition.died_alone(partition.in_flight_ticket(seq), limit=DEATHS)


def run_alone(partition: Partition, seq: int) -> list[Event]:
    """Suspect a batch."""
    return partition.run_alone(partition.planned_ticket(seq))


def instruct(partition: Partition, seq: int, instruction: Instruction) -> list[Event]:
    """Give a batch up, by policy."""
    return partition.instruct(ticket_of(partition, seq), instruction, reason="policy")


def hold(partition: Partition, seq: int) -> list[Event]:
    """Put a batch aside, by policy."""
    return partition.hold(ticket_of(partition, seq), reason="policy")[1]


def reconcile(partition: Partition, receipts: tuple[Receipt, ...], epoch: int) -> list[Event]:
    """Agree with the sink behind the fence of an epoch."""
    return reconciling.reconcile(partition, receipts, epoch=epoch)


# What must be refused, or change nothing


def end_again(partition: Partition, seq: int, ending: Callable[..., Any]) -> list[Event]:
    """Speak for an attempt before the open one."""
    batch = partition.batches[seq]
    found = ending(partition, InFlightTicket(batch.key, batch.attempts - 1, max((batch.epoch or 1) - 1, 0)))
    return list(found[1])


def end_closed(partition: Partition, seq: int) -> list[Event]:
    """Speak for an attempt that is over."""
    batch = partition.batches[seq]
    return partition.abandon(InFlightTicket(batch.key, batch.attempts, batch.epoch or 1))[1]


def skip_begun(partition: Partition, seq: int) -> list[Event]:
    """Let a batch that was begun go in the ledger alone."""
    return partition.skip(PlannedTicket(partition.batches[seq].key), reason="test")


def supersede_resolved(partition: Partition, seq: int) -> list[Event]:
    """Take a resolved batch out."""
    return partition.supersede(seq)


def ticket_of(partition: Partition, seq: int) -> PlannedTicket | InFlightTicket:
    """The ticket of a batch that is planned or in flight."""
    batch: Batch | None = partition.batches.get(seq)
    if batch is not None and batch.state is BatchState.IN_FLIGHT:
        return partition.in_flight_ticket(seq)
    return partition.planned_ticket(seq)
