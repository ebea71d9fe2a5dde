"""Every named invariant rejects a state or step that violates it, and accepts a valid one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_ckpt.core.batch import Batch, BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.invariants import (
    STALE_EPOCH,
    STATE_CHECKS,
    STEP_CHECKS,
    Violation,
    state_violations,
    step_violations,
)
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.core.range_receipts import RangeReceipt
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.reconcile import import_receipts
from tests.unit.core.machines import NOW, ack, begin, begin_all, partition_of


def batch(seq: int, start: int, end: int, state: BatchState, **fields: Any) -> Batch:
    """A batch of partition ``p``; one that is resolved carries its receipt."""
    made = Batch(BatchKey(1, "p", seq), Range(start, end), state, **fields)
    verdicts = {BatchState.DELIVERED: Verdict.DELIVERED, BatchState.REJECTED: Verdict.REJECTED}
    if state not in verdicts or "receipt" in fields:
        return made
    return replace(made, attempts=1, receipt=receipt(made, verdicts[state]))


def receipt(of: Batch, verdict: Verdict, **fields: Any) -> Receipt:
    """The sink's receipt of a batch."""
    size = of.range.end - of.range.start
    counts = Counts(size, size) if verdict is Verdict.DELIVERED else Counts(size, 0, 0, size)
    return replace(Receipt(of.key, of.range, verdict, 1, 1, counts, NOW), **fields)


def part(*batches: Batch, committed: int = 0, planned_end: int = 30, next_seq: int = 9, **fields: Any) -> Partition:
    """A state as it may stand in a damaged ledger."""
    return Partition("p", committed=committed, planned_end=planned_end, next_seq=next_seq, batches=batches, **fields)


def passed(start: int, end: int, **fields: Any) -> RangeReceipt:
    """Return the receipt of a range that the checkpoint has passed."""
    return RangeReceipt(1, "p", Range(start, end), fields.pop("counts", Counts(end - start, end - start)), 1, **fields)


P, F, H, D = BatchState.PLANNED, BatchState.IN_FLIGHT, BatchState.HELD, BatchState.DELIVERED
GOOD = part(
    batch(1, 10, 20, F, attempts=1, epoch=2),
    batch(2, 20, 30, D),
    batch(3, 30, 40, P, attempts=1, cancelled=True),
    batch(4, 40, 50, H),
    batch(5, 15, 45, BatchState.SUPERSEDED),
    committed=10,
    planned_end=50,
)
KEY = BatchKey(1, "p", 0)
ODD = Counts(10, 8, 1, 0)

BAD_STATES: list[tuple[str, Partition, list[RangeReceipt]]] = [
    ("CheckpointNeverAheadOfTerminalizedPrefix", part(committed=10, planned_end=10), []),
    ("CheckpointNeverAheadOfTerminalizedPrefix", part(committed=20, planned_end=20), [passed(0, 10), passed(12, 20)]),
    ("CheckpointOrderingInvariant", part(batch(0, 0, 10, P, attempts=1), committed=10), [passed(0, 10)]),
    ("UnresolvedWorkNotCommittedPast", part(batch(0, 0, 10, F, attempts=1, epoch=1), committed=10), [passed(0, 10)]),
    ("PlannedWorkVisibleToCheckpoint", part(batch(0, 0, 10, P), committed=5), [passed(0, 5)]),
    ("CommittedNeverAheadOfPlanned", part(committed=10, planned_end=5), [passed(0, 10)]),
    ("HeldTransitionsDoNotCommit", part(batch(0, 0, 10, H), committed=10), [passed(0, 10)]),
    ("CancellationWatermarkBlocks", part(batch(0, 0, 9, P, cancelled=True), committed=9), [passed(0, 9)]),
    ("RangesTileTheSource", part(batch(0, 0, 10, P), batch(1, 8, 20, P)), []),
    ("RangesTileTheSource", part(batch(0, 0, 10, P), batch(1, 8, 20, D)), []),
    ("RangesTileTheSource", part(batch(0, 5, 20, P), committed=10), [passed(0, 10)]),
    ("RangesTileTheSource", part(batch(0, 0, 10, P), planned_end=5), []),
    ("RangesTileTheSource", part(batch(4, 0, 10, P), next_seq=4), []),
    ("ReceiptMatchesBatch", part(batch(0, 0, 9, D, receipt=receipt(batch(0, 0, 8, P), Verdict.DELIVERED))), []),
    ("ReceiptMatchesBatch", part(batch(0, 0, 9, D, receipt=receipt(batch(1, 0, 9, P), Verdict.DELIVERED))), []),
    ("SumIdentity", part(batch(0, 0, 9, D, receipt=receipt(batch(0, 0, 9, P), Verdict.DELIVERED, counts=ODD))), []),
    ("SumIdentity", part(committed=10, planned_end=10), [passed(0, 10, counts=ODD)]),
    ("AtMostOneVerdictPerBatch", part(batch(0, 0, 9, D, receipt=receipt(batch(0, 0, 9, P), Verdict.REJECTED))), []),
    ("AtMostOneVerdictPerBatch", part(batch(0, 0, 9, D, receipt=None)), []),
    ("AtMostOneVerdictPerBatch", part(batch(0, 0, 9, BatchState.REJECTED, receipt=None)), []),
    ("AtMostOneVerdictPerBatch", part(batch(0, 0, 9, BatchState.SKIPPED, attempts=1)), []),
    (
        "NeverDeliveredAndDeadLettered",
        part(
            batch(
                0, 0, 9, BatchState.REJECTED, receipt=receipt(batch(0, 0, 9, P), Verdict.REJECTED, counts=Counts(9, 9))
            )
        ),
        [],
    ),
    ("DrainCompleteness", part(batch(0, 0, 9, F, attempts=1, epoch=1), phase=Phase.STOPPED), []),
    ("QuiescenceHasNoSilentStrandedWork", part(batch(0, 0, 10, D), planned_end=10), []),
    (STALE_EPOCH, part(batch(0, 0, 9, F, attempts=1, epoch=4)), []),
    (STALE_EPOCH, part(batch(0, 0, 9, D, receipt=receipt(batch(0, 0, 9, P), Verdict.DELIVERED, epoch=4))), []),
]


def names(violations: list[Violation]) -> set[str]:
    return {violation.name for violation in violations}


class TestStates:
    @pytest.mark.parametrize(("name", "partition", "receipts"), BAD_STATES)
    def test_a_bad_state_is_reported_by_name(
        self, name: str, partition: Partition, receipts: list[RangeReceipt]
    ) -> None:
        found = state_violations(partition, receipts, epoch=3)

        assert name in names(found)
        assert all(violation.partition == "p" and violation.message for violation in found)

    def test_every_invariant_of_a_state_has_a_bad_state_here(self) -> None:
        assert {name for name, _, _ in BAD_STATES} == {*STATE_CHECKS, STALE_EPOCH}

    def test_a_good_state_is_not_reported(self) -> None:
        assert state_violations(GOOD, [passed(0, 10)], epoch=2) == []

    def test_every_finding_is_reported_not_just_the_first(self) -> None:
        broken = part(batch(0, 0, 10, P), batch(1, 10, 20, P), committed=20)

        found = state_violations(broken, [passed(0, 20)], epoch=1)

        assert [v.position for v in found if v.name == "PlannedWorkVisibleToCheckpoint"] == [0, 10]

    def test_receipts_that_were_imported_may_overlap(self) -> None:
        assert state_violations(part(batch(0, 5, 20, D), batch(1, 15, 30, D), batch(2, 0, 5, P)), [], epoch=1) == []

    def test_a_gap_that_an_import_left_is_no_stranded_work(self) -> None:
        assert state_violations(part(batch(0, 10, 30, D)), [], epoch=1) == []

    def test_what_was_skipped_before_it_was_begun_needs_no_receipt(self) -> None:
        state = part(batch(0, 0, 9, P), batch(1, 9, 30, BatchState.SKIPPED))

        assert state_violations(state, [], epoch=1) == []


def changed(change: Callable[[Partition], object], *ends: int) -> tuple[Partition, Partition]:
    """A partition before and after a change."""
    before, after = partition_of(*ends or (10, 20)), partition_of(*ends or (10, 20))
    for one in (before, after):
        begin_all(one)
        ack(one, 1)
    change(after)
    return before, after


def put(seq: int, **fields: Any) -> Callable[[Partition], None]:
    """A change of one batch that no transition makes."""

    def change(partition: Partition) -> None:
        partition.batches[seq] = replace(partition.batches[seq], **fields)

    return change


def both(**fields: Any) -> tuple[Partition, Partition]:
    """Two equal states that differ in some fields."""
    before, after = changed(lambda _: None)
    vars(after).update(fields)
    return before, after


def drained(change: Callable[[Partition], object]) -> tuple[Partition, Partition]:
    """A change while the pipeline drains."""
    before, after = changed(change)
    before.phase = after.phase = Phase.DRAINING
    return before, after


def add(partition: Partition) -> None:
    """Plan, whatever the phase."""
    partition.batches[2] = Batch(BatchKey(1, "p", 2), Range(20, 30))
    partition.next_seq = 3


def cancelled(change: Callable[[Partition], object]) -> tuple[Partition, Partition]:
    """A change after batch 0 was cancelled."""
    before, after = changed(lambda _: None)
    for one in (before, after):
        one.cancel(one.in_flight_ticket(0))
    change(after)
    return before, after


def moved(partition: Partition) -> None:
    """End the attempt, and move the checkpoint for no reason."""
    partition.abandon(partition.in_flight_ticket(0))
    partition.committed = 10


BAD_STEPS: list[tuple[str, tuple[Partition, Partition]]] = [
    ("CommittedMonotonic", both(committed=-1)),
    ("NoDoubleComplete", changed(put(1, state=BatchState.REJECTED))),
    ("NoDoubleComplete", changed(put(1, state=BatchState.PLANNED))),
    ("NoPlanAfterDrain", drained(add)),
    ("DrainMeansNoNewSending", drained(put(0, attempts=2))),
    ("ForceStopAbandonsAllInFlight", both(phase=Phase.STOPPED)),
    ("FailureTerminalizationPreservesCheckpoint", changed(moved)),
    ("CancellationWatermarkBlocks", cancelled(put(0, cancelled=False))),
    ("PartitionOrderKept", changed(put(0, range=Range(0, 9)))),
    ("PartitionOrderKept", both(next_seq=1)),
]


class TestSteps:
    @pytest.mark.parametrize(("name", "step"), BAD_STEPS)
    def test_a_bad_step_is_reported_by_name(self, name: str, step: tuple[Partition, Partition]) -> None:
        assert name in names(step_violations(*step))

    def test_every_invariant_of_a_step_has_a_bad_step_here(self) -> None:
        assert {name for name, _ in BAD_STEPS} == set(STEP_CHECKS)

    @pytest.mark.parametrize(
        "change",
        [
            lambda partition: ack(partition, 0),
            lambda partition: partition.cancel(partition.in_flight_ticket(0)),
            lambda partition: partition.plan(Range(20, 30)),
            lambda partition: partition.hold(partition.in_flight_ticket(0), reason="a person looks"),
        ],
        ids=["ack", "cancel", "plan", "hold"],
    )
    def test_what_the_machine_does_is_not_reported(self, change: Callable[[Partition], object]) -> None:
        assert step_violations(*changed(change)) == []

    def test_beginning_a_cancelled_batch_again_lifts_the_watermark(self) -> None:
        assert step_violations(*cancelled(lambda partition: begin(partition, 0))) == []

    def test_releasing_a_cancelled_batch_keeps_the_watermark(self) -> None:
        def hold_and_release(partition: Partition) -> None:
            partition.release(partition.hold(partition.planned_ticket(0), reason="a person looks")[0])

        before, after = cancelled(hold_and_release)

        assert after.cancellation_watermark == 0
        assert step_violations(before, after) == []

    def test_the_sink_may_confirm_what_the_ledger_resolved_alone(self) -> None:
        before, after = changed(lambda _: None)
        told = replace(after.batches[1], state=D)
        for state in (BatchState.SENT, BatchState.SKIPPED):
            before.batches[1] = replace(before.batches[1], state=state, receipt=None)
            after.batches[1] = told
            assert step_violations(before, after) == []

    def test_a_receipt_that_is_imported_while_draining_is_no_new_sending(self) -> None:
        """A run of a draining pipeline still reconciles; a ledger behind the sink never began what it imports."""
        before, after = partition_of(10, 20), partition_of(10, 20)
        before.phase = after.phase = Phase.DRAINING
        sent = before.batches[1]

        import_receipts(after, [receipt(sent, Verdict.DELIVERED)])

        assert step_violations(before, after) == []

    def test_a_rewind_starts_anew(self) -> None:
        before, after = changed(lambda _: None)
        after.generation, after.next_seq, after.committed, after.batches = 2, 0, 0, {}
        before.committed = 10

        assert step_violations(before, after) == []
