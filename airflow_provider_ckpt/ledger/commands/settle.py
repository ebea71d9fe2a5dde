"""Settle a wave: resolve batches by their receipts, and end the attempts that got none; also cancel open attempts.

Only a receipt resolves a batch. After any other outcome the attempt ends, and the batch is planned again, held, or
given another instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from airflow_provider_ckpt.core.batch import AttemptOutcome, Batch, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.failed_attempt import decide
from airflow_provider_ckpt.core.failure_decisions import (
    Decision,
    FailRun,
    HaltRun,
    HoldBatch,
    RejectBatch,
    RetryBatch,
    SkipBatch,
)
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.reconcile import import_receipts
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
from airflow_provider_ckpt.core.tickets import Event
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.ledger.store import bulk_sql, dead_letter_index, low_watermark, partitions, tables
from airflow_provider_ckpt.ledger.store import events as event_store
from airflow_provider_ckpt.ledger.types import Settlement
from airflow_provider_ckpt.ledger.unit_of_work import UnitOfWork

NO_ERROR_REPORTED = ErrorInfo(ErrorType.GENERIC, "the lane reported that the batch failed, but not with which error")
"""Error that is stored for a failed attempt whose lane reported no error; its type halts the run by default."""

NewReceipts = list[tuple[Receipt, dict[str, int]]]


def apply_receipt(work: UnitOfWork, receipt: Receipt) -> bool:
    """Resolve the batch of a receipt.

    If the ranges of the receipt and the batch differ, the receipt prevails and is imported; the parts of the batch's
    range that it does not cover are planned again. A receipt of a side partition that was garbage-collected is ignored.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param receipt: a receipt of the sink
    :return: True if the receipt was new to the ledger
    """
    if receipt.key.is_side_partition and receipt.key.partition not in work.stored:
        return False  # the receipt's side partition was garbage-collected
    item = work.item(receipt.key.partition)
    if item.confirm(receipt):
        return True
    partition = item.partition
    batch = partition.batches.get(receipt.key.seq) if receipt.key.generation == partition.generation else None
    if batch is not None and batch.started and batch.range != receipt.range and batch.receipt is None:
        partitions.load_all_batches(work.connection, work.lease.pipeline, item)
        work.events += import_receipts(partition, [receipt], advance=False)
        return True
    events = partition.ack(receipt, advance=False)
    work.events += events
    return any(event.kind == "acked" for event in events)


def settle(
    work: UnitOfWork,
    outcomes: Sequence[Outcome],
    *,
    policy: DeliveryPolicy,
    deviation: Callable[[], float],
    window: timedelta | None = None,
) -> Settlement:
    """End the attempts of a wave according to their outcomes, and move checkpoints (semantics, sections 1 and 7).

    An outcome with a receipt resolves its batch. On a failed attempt the delivery policy decides: retry, reject, skip
    or hold the batch, or end the run. After any other outcome the batch is planned again. The outcome of an attempt
    that is no longer open is ignored and recorded as an event.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param outcomes: outcomes of the wave's attempts
    :param policy: delivery policy, which decides about failed batches
    :param deviation: function that returns a random number in [-1, 1], which determines the jitter of a retry's delay
    :param window: the recovery window, by which the low watermark follows the checkpoint; None or zero moves the low
        watermark to the checkpoint
    :return: the receipts that were new to the ledger, the decision about each failed batch, the first error that halts
        or fails the run (None if there is none), and the checkpoints
    """
    fresh: NewReceipts = []
    decisions: dict[BatchKey, Decision] = {}
    errors: dict[type[Decision], ErrorInfo] = {}
    for outcome in outcomes:
        if outcome.receipt is not None:
            if apply_receipt(work, outcome.receipt):
                fresh.append((outcome.receipt, dict(outcome.dead_letters)))
            continue
        batch = work.batch_in_flight(outcome.key)
        if batch is None or batch.attempts != outcome.attempt:
            work.events.append(_ignored_outcome(outcome))
        elif outcome.outcome is AttemptOutcome.FAILED:
            error = _storable(outcome.error or NO_ERROR_REPORTED)
            decision = decide(batch, error, policy, now=work.now, deviation=deviation())
            _apply_decision(work, batch, error, decision)
            decisions[outcome.key] = decision
            errors.setdefault(type(decision), error)
        else:
            _return_to_planned(work, batch, outcome.outcome)
    work.advance()
    store_result(work, "settled", fresh, window)
    return Settlement(
        [receipt for receipt, _ in fresh], decisions, errors.get(HaltRun), errors.get(FailRun), work.checkpoint
    )


def _storable(error: ErrorInfo) -> ErrorInfo:
    """Return an error whose message and stack trace contain no characters that databases refuse.

    A message may quote the failed record, and thus contain NUL characters or lone surrogates, which are replaced.
    """
    message = _without_nul(error.message)
    trace = error.trace and _without_nul(error.trace)
    return error if (message, trace) == (error.message, error.trace) else replace(error, message=message, trace=trace)


def _without_nul(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


def _apply_decision(work: UnitOfWork, batch: Batch, error: ErrorInfo, decision: Decision) -> None:
    partition = work.partition(batch.key)
    planned, events = partition.fail(
        partition.in_flight_ticket(batch.key.seq),
        error,
        not_before=decision.not_before if isinstance(decision, RetryBatch) else None,
        next_round=isinstance(decision, RetryBatch) and decision.next_round,
        counts=not isinstance(decision, FailRun | HaltRun),
    )
    if isinstance(decision, RejectBatch):
        events += partition.instruct(planned, Instruction.REJECT, reason=error.message)
    elif isinstance(decision, SkipBatch):
        events += partition.instruct(planned, Instruction.VOID, reason=error.message)
    elif isinstance(decision, HoldBatch):
        events += partition.hold(planned, reason=error.message)[1]
    work.ended(batch.key, AttemptOutcome.FAILED, error.type)
    work.events += events


def _return_to_planned(work: UnitOfWork, batch: Batch, outcome: AttemptOutcome) -> None:
    """Return a batch to ``planned`` after an attempt without a verdict, which is not counted against ``max_attempts``.

    :param work: partitions of the pipeline, in which the batch and its attempt are changed
    :param batch: the batch, in flight
    :param outcome: outcome of the attempt
    """
    partition = work.partition(batch.key)
    back: Mapping[AttemptOutcome, Callable[..., tuple[object, list[Event]]]] = {
        AttemptOutcome.NOT_ATTEMPTED: partition.not_attempted,
        AttemptOutcome.CANCELLED: partition.cancel,
        AttemptOutcome.FENCED: partition.fence,
    }
    known = outcome if outcome in back else AttemptOutcome.ABANDONED
    work.events += back.get(known, partition.abandon)(partition.in_flight_ticket(batch.key.seq))[1]
    work.ended(batch.key, known)


def _ignored_outcome(outcome: Outcome) -> Event:
    key = outcome.key
    detail: dict[str, Any] = {"outcome": outcome.outcome.value, "attempt": outcome.attempt}
    if outcome.error:
        detail["error"] = _storable(outcome.error).to_json()
    return Event("outcome_ignored", key.partition, key.generation, key.seq, detail)


def cancel_open_attempts(work: UnitOfWork) -> list[BatchKey]:
    """Cancel every attempt that is open under the lease's epoch, and return the batches concerned.

    Until these batches are started again or resolved, the checkpoint does not pass the first of them.
    """
    cancelled: list[BatchKey] = []
    for partition in touched_partitions(work):
        for seq, batch in partition.in_flight.items():
            if batch.epoch == work.lease.epoch:
                work.events += partition.cancel(partition.in_flight_ticket(seq))[1]
                work.ended(batch.key, AttemptOutcome.CANCELLED)
                cancelled.append(batch.key)
    work.write("cancel", {"batches": len(cancelled)})
    return cancelled


def touched_partitions(work: UnitOfWork) -> list[Partition]:
    """Return the partitions that the current command may change, with the batches that it has loaded."""
    return [item.partition for item in work.touched_partitions]


def move_low_watermark(work: UnitOfWork, window: timedelta | None) -> None:
    """Move the low watermark of all partitions after a command has written its changes.

    Unlike a settlement, this function also moves it for partitions whose positions the command has not changed.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param window: the recovery window, by which the low watermark follows the checkpoint; None or zero moves the low
        watermark to the checkpoint
    """
    events = _move_low_watermark(work, window, idle=True)
    work.store()
    bulk_sql.insert(work.connection, tables.event, event_store.event_rows(work.lease, work.now, events))


def _move_low_watermark(work: UnitOfWork, window: timedelta | None, *, idle: bool = False) -> list[Event]:
    return low_watermark.move_low_watermarks(
        work.connection, work.lease.pipeline, work.touched_partitions, window, work.now, idle=idle
    )


def store_result(work: UnitOfWork, kind: str, fresh: NewReceipts, window: timedelta | None) -> None:
    """Store a settlement: changed partitions, low watermarks, new dead letters, and an event with the new receipts.

    :param work: the partitions, with the outcomes already applied
    :param kind: kind of the event: ``settled``, or ``lost`` if Spark was lost before it could report outcomes
    :param fresh: the receipts that were new to the ledger, each with its dead letters counted by error type
    :param window: the recovery window, by which the low watermark follows the checkpoint; None or zero moves the low
        watermark to the checkpoint
    """
    work.events += _move_low_watermark(work, window)
    dead_letter_index.update_index(work.connection, work.lease.pipeline, fresh, work.replays)
    receipts = [receipt for receipt, _ in fresh]
    detail = {
        "receipts": event_store.merged_ranges(receipts),
        "counts": event_store.sum_counts(receipt.counts for receipt in receipts),
        "transitions": event_store.count_kinds(work.events),
    }
    work.write(kind, detail)
