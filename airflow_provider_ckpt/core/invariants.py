"""Check the named invariants on the state of a partition, and on one step between two states.

An invariant is a rule that every state of the ledger must obey, such as ``CheckpointNeverAheadOfTerminalizedPrefix``:
the checkpoint never passes a batch without a verdict. ``airflow ckpt audit``, the exhaustive search and the property
tests use these checks. The names are those of semantics, section 2, and of the TLA+ specification. A check yields all
violations instead of raising at the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from airflow_provider_ckpt.core.acknowledgements import AcknowledgingPartition
from airflow_provider_ckpt.core.batch import BLOCKING, RESOLVED, VERDICT_STATE, Batch, BatchState
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.ranges import Range, contiguous_end
from airflow_provider_ckpt.core.receipt import Verdict
from airflow_provider_ckpt.core.refresh import RefreshExtent

PUBLISHED_COMPLETE = "PublishedGenerationIsComplete"
"""Invariant: a refresh is published only when all of its rows are staged, filtered or dead letters.

The publishing batch must not be started before the checkpoint has reached the end of the positions of the rows.
"""


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation of an invariant by a partition.

    :param name: name of the invariant, such as ``CommittedMonotonic``
    :param partition: the partition's id
    :param message: description of the state that violates the invariant
    :param position: the source position at which the invariant is violated; None if there is no single one
    """

    name: str
    partition: str
    message: str
    position: int | None = None


Findings = Iterator[tuple[str, int | None]]
"""Pairs of a message and a source position, one for each violation of an invariant.

The position is None if the violation has no single position.
"""

StateCheck = Callable[[AcknowledgingPartition, list[RangeReceipt]], Findings]
"""Function that checks one invariant on a partition.

It receives the partition and the range receipts of its generation, in order of ranges.
"""

StepCheck = Callable[[AcknowledgingPartition, AcknowledgingPartition], Findings]
"""Function that checks one invariant on a partition before and after one step."""


def state_violations(
    partition: AcknowledgingPartition, passed: Iterable[RangeReceipt], *, epoch: int
) -> list[Violation]:
    """Return the violations of all invariants that concern one state of a partition.

    :param partition: the partition
    :param passed: the range receipts of the partition's generation
    :param epoch: the newest epoch that the ledger granted to this pipeline
    """
    receipts = sorted(passed, key=lambda receipt: receipt.range)
    found = [(name, check(partition, receipts)) for name, check in STATE_CHECKS.items()]
    found.append((STALE_EPOCH, _stale_epoch(partition, epoch)))
    return [Violation(name, partition.id, *what) for name, several in found for what in several]


def step_violations(before: AcknowledgingPartition, after: AcknowledgingPartition) -> list[Violation]:
    """Return the violations of all invariants that compare a partition before and after one step.

    :param before: the partition before the step
    :param after: the partition after the step
    """
    return [Violation(name, after.id, *what) for name, check in STEP_CHECKS.items() for what in check(before, after)]


def refresh_violations(partition: AcknowledgingPartition, state: Mapping[str, Any]) -> list[Violation]:
    """Return a violation of :data:`PUBLISHED_COMPLETE` if a refresh's publishing batch was started too early.

    :param partition: the partition
    :param state: values that the ledger stores for the partition; for a refresh they include its
        :class:`.RefreshExtent`, without which the partition's generation is no refresh and the result is empty
    """
    extent = RefreshExtent.of(state)
    if extent is None or partition.committed >= extent.rows_end:
        return []
    return [
        Violation(
            PUBLISHED_COMPLETE,
            partition.id,
            f"{batch.key} publishes the refresh and was started, but committed is {partition.committed}, before "
            f"the end of the rows, {extent.rows_end}",
            partition.committed,
        )
        for batch in partition.batches.values()
        if batch.range.end > extent.rows_end and batch.started
    ]


# Invariants of a state


def _terminalized_prefix(p: AcknowledgingPartition, passed: list[RangeReceipt]) -> Findings:
    reached = contiguous_end(p.base, [receipt.range for receipt in passed] + _resolved(p))
    if reached < p.committed:
        yield f"committed is {p.committed}, but receipts reach from {p.base} to {reached} only", reached


def _ordering(p: AcknowledgingPartition, _: list[RangeReceipt]) -> Findings:
    for batch in p.batches.values():
        if batch.started and batch.state in BLOCKING and batch.range.end <= p.committed:
            yield (
                f"{batch.key} was started, is {batch.state.value}, and lies below committed {p.committed}",
                batch.range.start,
            )


def _unresolved_not_passed(p: AcknowledgingPartition, _: list[RangeReceipt]) -> Findings:
    for batch in p.batches.values():
        if batch.state in BLOCKING and batch.range.start < p.committed:
            yield (
                f"{batch.key} is {batch.state.value} at {batch.range}, behind committed {p.committed}",
                batch.range.start,
            )


def _planned_visible(p: AcknowledgingPartition, _: list[RangeReceipt]) -> Findings:
    for batch in p.batches.values():
        if not batch.started and batch.state in BLOCKING and batch.range.start < p.committed:
            yield (
                f"{batch.key} was planned and never sent, and committed {p.committed} has passed it",
                batch.range.start,
            )


def _not_ahead_of_planned(p: AcknowledgingPartition, _: list[RangeReceipt]) -> Findings:
    if p.committed > p.planned_end:
        yield f"committed is {p.committed}, but nothing beyond {p.planned_end} was ever planned", p.planned_end


def _watermark_blocks(p: AcknowledgingPartition, _: list[RangeReceipt]) -> Findings:
    watermark = p.cancellation_watermark
    if watermark is not None and p.committed > p.batches[watermark].range.start:
        yield f"committed is {p.committed}, beyond the cancelled {p.batches[watermark].key}", p.committed


def _held_not_passed(p: AcknowledgingPartition, _: list[RangeReceipt]) -> Findings:
    for batch in p.batches.values():
        if batch.state is BatchState.HELD and batch.range.start < p.committed:
            yield f"{batch.key} is held, and committed {p.committed} has passed it", batch.range.start


def _tiles(p: AcknowledgingPartition, passed: list[RangeReceipt]) -> Findings:
    valid = [b for b in p.batches.values() if b.state is not BatchState.SUPERSEDED and b.range.end > p.committed]
    owners = sorted([(b.range, str(b.key)) for b in valid] + [(r.range, "a receipt") for r in passed])
    for (one, owner), (other, next_owner) in pairwise(owners):
        if one.overlaps(other) and not _both_resolved(p, one, other):
            yield f"{owner} {one} and {next_owner} {other} overlap", other.start
    for batch in valid:
        if batch.range.end > p.planned_end:
            yield f"{batch.key} {batch.range} reaches beyond what is planned, {p.planned_end}", p.planned_end
        if batch.key.seq >= p.next_seq:
            yield f"{batch.key} has a number that was never assigned; {p.next_seq} is next", batch.range.start


def _receipt_matches(p: AcknowledgingPartition, _: list[RangeReceipt]) -> Findings:
    for batch in p.batches.values():
        receipt = batch.receipt
        if receipt is not None and (receipt.key, receipt.range) != (batch.key, batch.range):
            yield f"{batch.key} {batch.range} carries the receipt of {receipt.key} {receipt.range}", batch.range.start


def _sum_identity(p: AcknowledgingPartition, passed: list[RangeReceipt]) -> Findings:
    sums = [(str(b.key), b.receipt.counts, b.range) for b in p.batches.values() if b.receipt is not None]
    sums += [(f"range {item.range}", item.counts, item.range) for item in passed]
    for name, counts, span in sums:
        if not counts.is_balanced:
            yield f"the counts of {name} do not add up: {counts.to_json()}", span.start


def _one_verdict(p: AcknowledgingPartition, _: list[RangeReceipt]) -> Findings:
    for batch in p.batches.values():
        expected = None if batch.receipt is None else VERDICT_STATE[batch.receipt.verdict]
        if expected is not None and batch.state is not expected:
            yield f"{batch.key} is {batch.state.value}, but its receipt says {expected.value}", batch.range.start
        if expected is None and batch.state in (BatchState.DELIVERED, BatchState.REJECTED):
            yield f"{batch.key} is {batch.state.value} without a receipt", batch.range.start
        if expected is None and batch.state is BatchState.SKIPPED and batch.started:
            yield f"{batch.key} was started and is skipped without a receipt", batch.range.start


def _not_delivered_and_dead_lettered(p: AcknowledgingPartition, _: list[RangeReceipt]) -> Findings:
    for batch in p.batches.values():
        receipt = batch.receipt
        if receipt is not None and receipt.verdict is not Verdict.DELIVERED and receipt.counts.delivered:
            yield f"{batch.key} is {receipt.verdict.value} and delivered {receipt.counts.delivered}", batch.range.start


def _drain_complete(p: AcknowledgingPartition, _: list[RangeReceipt]) -> Findings:
    if p.phase is Phase.STOPPED:
        for batch in p.in_flight.values():
            yield f"the pipeline is stopped, and {batch.key} is in flight", batch.range.start


def _nothing_stranded(p: AcknowledgingPartition, _: list[RangeReceipt]) -> Findings:
    if p.blocking or p.gaps():
        return
    if p.committed < p.planned_end:
        yield (
            f"no batch is unresolved, but committed {p.committed} is before the end of the plan, {p.planned_end}",
            p.committed,
        )


def _stale_epoch(p: AcknowledgingPartition, epoch: int) -> Findings:
    for batch in p.batches.values():
        claimed = batch.epoch if batch.receipt is None else batch.receipt.epoch
        if claimed is not None and claimed > epoch:
            yield f"{batch.key} names epoch {claimed}, and {epoch} is the newest ever granted", batch.range.start


STATE_CHECKS: Mapping[str, StateCheck] = {
    "CheckpointNeverAheadOfTerminalizedPrefix": _terminalized_prefix,
    "CheckpointOrderingInvariant": _ordering,
    "UnresolvedWorkNotCommittedPast": _unresolved_not_passed,
    "PlannedWorkVisibleToCheckpoint": _planned_visible,
    "CommittedNeverAheadOfPlanned": _not_ahead_of_planned,
    "CancellationWatermarkBlocks": _watermark_blocks,
    "HeldTransitionsDoNotCommit": _held_not_passed,
    "RangesTileTheSource": _tiles,
    "ReceiptMatchesBatch": _receipt_matches,
    "SumIdentity": _sum_identity,
    "AtMostOneVerdictPerBatch": _one_verdict,
    "NeverDeliveredAndDeadLettered": _not_delivered_and_dead_lettered,
    "DrainCompleteness": _drain_complete,
    "QuiescenceHasNoSilentStrandedWork": _nothing_stranded,
}
"""The checks of a single state, by the name of the invariant."""

STALE_EPOCH = "NoCommitByStaleEpoch"
"""Name of the invariant that no receipt or open attempt has an epoch which the ledger never granted.

Its check is not in :data:`STATE_CHECKS`, because it also needs the newest granted epoch.
"""


# Invariants of a step


def _monotonic(before: AcknowledgingPartition, after: AcknowledgingPartition) -> Findings:
    if before.generation == after.generation and after.committed < before.committed:
        yield f"committed went back from {before.committed} to {after.committed}", after.committed


def _no_double_complete(before: AcknowledgingPartition, after: AcknowledgingPartition) -> Findings:
    for seq, batch in _batches_in_both(before, after):
        now = after.batches[seq]
        # A batch that was sent at most once, or skipped in the ledger alone, may still get a receipt from the sink.
        newly_known = batch.receipt is None and now.receipt is not None
        if batch.state in RESOLVED and now.state is not batch.state and not newly_known:
            yield f"{batch.key} was {batch.state.value} and became {now.state.value}", batch.range.start


def _no_plan_after_drain(before: AcknowledgingPartition, after: AcknowledgingPartition) -> Findings:
    if before.phase is after.phase is not Phase.RUNNING and before.generation == after.generation:
        for batch in after.batches.values():
            if batch.key.seq >= before.next_seq and batch.state is BatchState.PLANNED:
                yield f"{batch.key} was planned while {after.phase.value}", batch.range.start


def _no_new_sending(before: AcknowledgingPartition, after: AcknowledgingPartition) -> Findings:
    if before.phase is after.phase is not Phase.RUNNING:
        for seq, batch in _batches_in_both(before, after):
            now = after.batches[seq]
            if now.attempts > batch.attempts and now.receipt is None:  # an imported receipt may set attempts
                yield f"{batch.key} was started while {after.phase.value}", batch.range.start


def _force_stop_abandons(before: AcknowledgingPartition, after: AcknowledgingPartition) -> Findings:
    if before.phase is not Phase.STOPPED and after.phase is Phase.STOPPED:
        for batch in after.in_flight.values():
            yield f"the stop left {batch.key} in flight", batch.range.start


def _failure_keeps_checkpoint(before: AcknowledgingPartition, after: AcknowledgingPartition) -> Findings:
    ended = [seq for seq in before.in_flight if seq in after.batches and after.batches[seq].state in BLOCKING]
    if ended and after.committed != before.committed and not _explains_checkpoint(before, after):
        yield f"no verdict arrived, but committed moved from {before.committed} to {after.committed}", after.committed


def _watermark_kept(before: AcknowledgingPartition, after: AcknowledgingPartition) -> Findings:
    for seq, batch in _batches_in_both(before, after):
        now = after.batches[seq]
        if batch.cancelled and not now.cancelled and now.state in BLOCKING and now.attempts == batch.attempts:
            yield (
                f"{batch.key} was cancelled, not started again, and is no longer marked as cancelled",
                batch.range.start,
            )


def _order_kept(before: AcknowledgingPartition, after: AcknowledgingPartition) -> Findings:
    for seq, batch in _batches_in_both(before, after):
        now = after.batches[seq]
        if now.range != batch.range and now.receipt is None:
            yield f"{batch.key} changed its range from {batch.range} to {now.range}", batch.range.start
    if before.generation == after.generation and after.next_seq < before.next_seq:
        yield f"the next number went back from {before.next_seq} to {after.next_seq}", after.planned_end


STEP_CHECKS: Mapping[str, StepCheck] = {
    "CommittedMonotonic": _monotonic,
    "NoDoubleComplete": _no_double_complete,
    "NoPlanAfterDrain": _no_plan_after_drain,
    "DrainMeansNoNewSending": _no_new_sending,
    "ForceStopAbandonsAllInFlight": _force_stop_abandons,
    "FailureTerminalizationPreservesCheckpoint": _failure_keeps_checkpoint,
    "CancellationWatermarkBlocks": _watermark_kept,
    "PartitionOrderKept": _order_kept,
}
"""The checks that compare the states before and after one step, by the name of the invariant."""


def _resolved(p: AcknowledgingPartition) -> list[Range]:
    return [batch.range for batch in p.batches.values() if batch.state in RESOLVED]


def _both_resolved(p: AcknowledgingPartition, one: Range, other: Range) -> bool:
    """Return whether two overlapping ranges are both resolved, so that the overlap is allowed.

    Receipts that were imported from the sink may overlap; the checkpoint moves over their union.
    """
    blocking = {batch.range for batch in p.batches.values() if batch.state in BLOCKING}
    return one not in blocking and other not in blocking


def _batches_in_both(before: AcknowledgingPartition, after: AcknowledgingPartition) -> Iterator[tuple[int, Batch]]:
    if before.generation == after.generation:
        yield from ((seq, batch) for seq, batch in before.batches.items() if seq in after.batches)


def _explains_checkpoint(before: AcknowledgingPartition, after: AcknowledgingPartition) -> bool:
    """Return whether a step contains a reason for the checkpoint to move.

    Such a reason is a batch that was resolved or superseded, or a changed cancellation watermark.

    :param before: the partition before the step
    :param after: the partition after the step
    """
    known = before.pending_acks
    fresh = [seq for seq in after.pending_acks if seq not in known]
    removed = [seq for seq, batch in before.batches.items() if seq not in after.batches and batch.state not in RESOLVED]
    return bool(fresh or removed or before.cancellation_watermark != after.cancellation_watermark)
