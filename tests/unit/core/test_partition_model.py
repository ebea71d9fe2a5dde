"""Random sequences of operations, compared with a brute-force model without prefixes or watermarks.

The model has one label for each position, from which the expected checkpoint is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from airflow_provider_ckpt.core.batch import BLOCKING, Batch, BatchState, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Verdict
from airflow_provider_ckpt.core.reconcile import import_receipts
from airflow_provider_ckpt.core.tickets import InFlightTicket, PlannedTicket
from tests.unit.core.machines import NOW, begin, fail, receipt_of

ENDINGS: dict[str, Callable[[Partition, InFlightTicket], tuple[PlannedTicket, object]]] = {
    "abandon": Partition.abandon,
    "fence": Partition.fence,
    "not_attempted": Partition.not_attempted,
}


class Interleavings(RuleBasedStateMachine):
    """Plans, begins, ends and resolves in any order that the state machine allows."""

    def __init__(self) -> None:
        super().__init__()
        self.partition = Partition("p")
        self.resolved: set[int] = set()
        self.cancelled: dict[int, Range] = {}
        self.committed_before = 0
        self.verdicts: dict[int, Verdict] = {}

    def pick(self, data: st.DataObject, state: BatchState) -> Batch:
        return data.draw(st.sampled_from([b for b in self.partition.batches.values() if b.state is state]))

    def has(self, *states: BatchState) -> bool:
        return any(b.state in states for b in self.partition.batches.values())

    def resolve(self, batch: Batch) -> None:
        self.resolved |= set(range(batch.range.start, batch.range.end))
        self.cancelled.pop(batch.key.seq, None)

    @rule(size=st.integers(1, 4))
    def plan(self, size: int) -> None:
        end = self.partition.planned_end
        self.partition.plan(Range(end, end + size))

    @precondition(lambda self: self.partition.gaps())
    @rule(data=st.data())
    def plan_a_gap_again(self, data: st.DataObject) -> None:
        gap = data.draw(st.sampled_from(self.partition.gaps()))
        self.partition.plan(gap)

    @precondition(lambda self: self.has(BatchState.PLANNED))
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        batch = self.pick(data, BatchState.PLANNED)
        begin(self.partition, batch.key.seq)
        self.cancelled.pop(batch.key.seq, None)

    @precondition(lambda self: self.has(BatchState.PLANNED))
    @rule(data=st.data())
    def begin_at_most_once(self, data: st.DataObject) -> None:
        batch = self.pick(data, BatchState.PLANNED)
        self.resolve(batch)
        self.partition.begin(PlannedTicket(batch.key), epoch=1, now=NOW, at_most_once=True)

    @precondition(lambda self: self.has(BatchState.IN_FLIGHT))
    @rule(data=st.data(), verdict=st.sampled_from(Verdict))
    def ack(self, data: st.DataObject, verdict: Verdict) -> None:
        batch = self.pick(data, BatchState.IN_FLIGHT)
        self.resolve(batch)
        self.verdicts[batch.key.seq] = verdict
        self.partition.ack(receipt_of(batch, verdict))

    @precondition(lambda self: self.has(BatchState.IN_FLIGHT))
    @rule(data=st.data(), ending=st.sampled_from(sorted(ENDINGS)))
    def end_without_verdict(self, data: st.DataObject, ending: str) -> None:
        batch = self.pick(data, BatchState.IN_FLIGHT)
        ENDINGS[ending](self.partition, self.partition.in_flight_ticket(batch.key.seq))

    @precondition(lambda self: self.has(BatchState.IN_FLIGHT))
    @rule(data=st.data(), next_round=st.booleans())
    def fail(self, data: st.DataObject, next_round: bool) -> None:
        batch = self.pick(data, BatchState.IN_FLIGHT)
        fail(self.partition, self.partition.in_flight_ticket(batch.key.seq), next_round=next_round)

    @precondition(lambda self: self.has(BatchState.IN_FLIGHT))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        batch = self.pick(data, BatchState.IN_FLIGHT)
        self.partition.cancel(self.partition.in_flight_ticket(batch.key.seq))
        self.cancelled[batch.key.seq] = batch.range

    @precondition(lambda self: self.has(BatchState.PLANNED))
    @rule(data=st.data())
    def late_ack(self, data: st.DataObject) -> None:
        batch = self.pick(data, BatchState.PLANNED)
        if batch.started:
            self.resolve(batch)
        events = self.partition.ack(receipt_of(batch))
        assert (events[0].kind == "acked") == batch.started

    @precondition(lambda self: self.has(BatchState.PLANNED))
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        self.partition.hold(PlannedTicket(self.pick(data, BatchState.PLANNED).key), reason="test")

    @precondition(lambda self: self.has(BatchState.HELD))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        self.partition.release(self.partition.held_ticket(self.pick(data, BatchState.HELD).key.seq))

    @precondition(lambda self: self.has(BatchState.PLANNED))
    @rule(data=st.data())
    def skip_or_void(self, data: st.DataObject) -> None:
        batch = self.pick(data, BatchState.PLANNED)
        if batch.started:
            self.partition.instruct(PlannedTicket(batch.key), Instruction.VOID, reason="test")
        else:
            self.resolve(batch)
            self.partition.skip(PlannedTicket(batch.key), reason="test")

    @rule(start=st.integers(0, 6), size=st.integers(1, 5), ahead=st.integers(0, 2))
    def import_a_receipt(self, start: int, size: int, ahead: int) -> None:
        """A ledger restored from a backup meets a receipt of a batch that it has not planned yet."""
        span = Range(self.partition.committed + start, self.partition.committed + start + size)
        settled = [b for b in self.partition.batches.values() if b.state not in BLOCKING and b.range.overlaps(span)]
        if any(b.state is not BatchState.SUPERSEDED for b in settled):
            return
        for seq, batch in self.partition.batches.items():
            if batch.state in BLOCKING and batch.range.overlaps(span):
                self.cancelled.pop(seq, None)
        key = BatchKey(1, "p", self.partition.next_seq + ahead)
        foreign = Batch(key, span, attempts=1)
        self.resolve(foreign)
        import_receipts(self.partition, [receipt_of(foreign)])

    @rule()
    def restart(self) -> None:
        """A new run loads what the ledger kept."""
        old = self.partition
        self.partition = Partition(
            "p",
            committed=old.committed,
            next_seq=old.next_seq,
            planned_end=old.planned_end,
            batches=[replace(b) for b in old.batches.values()],
        )

    @invariant()
    def checkpoint_is_the_first_position_that_is_unresolved(self) -> None:
        expected = next(n for n in range(self.partition.planned_end + 1) if n not in self.resolved)
        if not self.cancelled:
            assert self.partition.committed == expected
        assert self.partition.committed <= expected

    @invariant()
    def cancellation_watermark_blocks(self) -> None:
        assert self.partition.cancellation_watermark == min(self.cancelled, default=None)
        if self.cancelled:
            assert self.partition.committed <= self.cancelled[min(self.cancelled)].start

    @invariant()
    def committed_is_monotonic_and_never_ahead_of_the_plan(self) -> None:
        assert self.committed_before <= self.partition.committed <= self.partition.planned_end
        self.committed_before = self.partition.committed

    @invariant()
    def ranges_and_gaps_tile_the_source(self) -> None:
        partition = self.partition
        live = [b.range for b in partition.batches.values() if b.state is not BatchState.SUPERSEDED]
        pieces = sorted([*live, *partition.gaps()])
        assert all(left.end == right.start for left, right in pairwise(pieces))
        if pieces:
            assert pieces[0].start <= partition.committed
            assert pieces[-1].end == partition.planned_end
        else:
            assert partition.committed == partition.planned_end

    @invariant()
    def a_batch_keeps_its_one_verdict(self) -> None:
        for seq, batch in self.partition.batches.items():
            if seq in self.verdicts:
                assert batch.receipt is not None
                assert batch.receipt.verdict is self.verdicts[seq]


Interleavings.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestInterleavings = Interleavings.TestCase
