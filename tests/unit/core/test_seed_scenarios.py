"""Scenarios of the projects whose rules are used here: FastForward, the cancellation watermark, KurrentDB, Wave.

Positions are half-open here: the checkpoint is the next position to read, where such a project may name the last
position that was done.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.partition_history import PartitionSnapshot
from airflow_provider_ckpt.core.phases import Phase, PipelineState
from airflow_provider_ckpt.core.range_receipts import RangeReceipt, merge_receipts
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Verdict
from airflow_provider_ckpt.core.reconcile import reconcile
from airflow_provider_ckpt.core.recovery import PartitionAccount, find_missing
from tests.unit.core.machines import NOW, ack, begin, begin_all, fail, partition_of, receipt_of


class TestFastForward:
    """Checkpoint ordering: what is acknowledged ahead of earlier work waits for it."""

    def test_the_collector_answers_batch_3_before_batch_1(self) -> None:
        partition = partition_of(100, 200, 300)
        begin_all(partition)

        assert ack(partition, 2) == ["acked"]
        assert (partition.committed, set(partition.in_flight), set(partition.pending_acks)) == (0, {0, 1}, {2})

        assert ack(partition, 0) == ["acked", "checkpoint"]
        assert (partition.committed, set(partition.in_flight), set(partition.pending_acks)) == (100, {1}, {2})

        assert ack(partition, 1) == ["acked", "checkpoint"]
        assert (partition.committed, partition.in_flight, partition.pending_acks) == (300, {}, {})

    def test_a_permanent_rejection_advances_so_that_one_batch_does_not_freeze_its_source(self) -> None:
        partition = partition_of(100, 200)
        begin_all(partition)

        ack(partition, 0, Verdict.REJECTED)
        ack(partition, 1)

        assert partition.committed == 200

    def test_a_transient_failure_freezes_the_checkpoint_until_a_retry_succeeds(self) -> None:
        partition = partition_of(100, 200)
        begin_all(partition)
        ack(partition, 1)

        for _ in range(3):
            fail(partition, partition.in_flight_ticket(0))
            assert partition.committed == 0
            begin(partition, 0)
        ack(partition, 0)

        assert partition.committed == 200

    def test_a_ticket_resolves_its_batch_once(self) -> None:
        partition = partition_of(100)
        sending = begin(partition, 0)
        fail(partition, sending)

        with pytest.raises(LedgerStateError, match="it is planned, not in_flight"):
            partition.abandon(sending)

    def test_sources_have_checkpoints_of_their_own(self) -> None:
        one, other = partition_of(100, 200), Partition("q")
        other.plan(Range(0, 50))
        machine = PipelineState([one, other])
        for seq in (0, 1):
            begin(one, seq)
        begin(other, 0)

        ack(one, 1)
        ack(other, 0)

        assert {name: p.committed for name, p in machine.partitions.items()} == {"p": 0, "q": 50}

    def test_stop_cannot_be_reached_before_everything_sent_is_resolved(self) -> None:
        partition = partition_of(100, 200)
        machine = PipelineState([partition])
        begin_all(partition)
        machine.drain(reason="deploy")

        for seq in (1, 0):
            with pytest.raises(LedgerStateError, match="in flight"):
                machine.stop(reason="deploy")
            ack(partition, seq)
        machine.stop(reason="deploy")

        assert (machine.phase, partition.committed) == (Phase.STOPPED, 200)

    def test_a_drained_pipeline_creates_and_sends_nothing_new(self) -> None:
        partition = partition_of(100)
        PipelineState([partition]).drain(reason="deploy")

        with pytest.raises(LedgerStateError):
            partition.plan(Range(100, 200))
        with pytest.raises(LedgerStateError):
            begin(partition, 0)

    def test_a_forced_stop_abandons_all_in_flight_and_commits_none_of_it(self) -> None:
        partition = partition_of(100, 200, 300)
        begin_all(partition)
        ack(partition, 1)
        machine = PipelineState([partition])

        events = machine.force_stop(reason="deploy")

        assert [event.seq for event in events if event.kind == "abandoned"] == [0, 2]
        assert (machine.in_flight, partition.committed, set(partition.pending_acks)) == (0, 0, {1})


class TestCancellationWatermark:
    def test_cancellation_watermark_trace_9_to_13(self) -> None:
        """9 done, 10 cancelled, 11 and 12 done; then 13 done. A restart reads 10 to 13 again."""
        partition = Partition("p", base=9, next_seq=9)
        for position in range(9, 13):
            partition.plan(Range(position, position + 1))
        begin_all(partition)

        ack(partition, 9)
        partition.cancel(partition.in_flight_ticket(10))
        ack(partition, 11)
        ack(partition, 12)
        assert (partition.committed, partition.cancellation_watermark) == (10, 10)

        partition.plan(Range(13, 14))
        begin(partition, 13)
        ack(partition, 13)
        assert (partition.committed, partition.cancellation_watermark) == (10, 10)

        kept = partition.batches.values()
        restarted = Partition("p", base=9, committed=10, next_seq=14, planned_end=14, batches=kept)
        assert (restarted.committed, restarted.cancellation_watermark) == (10, 10)
        assert sorted(batch.range.start for batch in restarted.batches.values()) == [10, 11, 12, 13]

        begin(restarted, 10)
        ack(restarted, 10)
        assert (restarted.committed, restarted.cancellation_watermark) == (14, None)

    def test_the_earliest_of_several_cancellations_is_the_watermark(self) -> None:
        partition = partition_of(1, 2, 3, 4)
        begin_all(partition)

        for seq in (2, 1, 3):
            partition.cancel(partition.in_flight_ticket(seq))

        watermarks = [partition.cancellation_watermark]
        for seq in (1, 3, 2):
            begin(partition, seq)
            watermarks.append(partition.cancellation_watermark)

        assert watermarks == [1, 2, 2, None]

    def test_a_takeover_does_not_clear_it(self) -> None:
        """The seed's listener clears it when a partition is revoked; here it goes only with the work itself."""
        partition = partition_of(1, 2)
        begin_all(partition)
        partition.cancel(partition.in_flight_ticket(0))

        reconcile(partition, [receipt_of(partition.batches[1])], epoch=2)

        assert (partition.committed, partition.cancellation_watermark) == (0, 0)


class TestKurrentDB:
    def test_events_that_the_pinned_strategy_skips_are_visible_to_the_checkpoint(self) -> None:
        """Six messages of two streams; the client of the first takes one at a time. Checkpoints 0, 0, 1, 5."""
        partition = partition_of(1, 2, 3, 4, 5, 6)
        for pushed in (0, 3, 4, 5):  # 1 and 2 are skipped: their client is busy
            begin(partition, pushed)
        done: list[int] = [partition.committed]

        ack(partition, 0)
        done.append(partition.committed)
        for seq in (3, 4, 5):
            ack(partition, seq)
        done.append(partition.committed)
        for seq in (1, 2):
            begin(partition, seq)
            ack(partition, seq)
            done.append(partition.committed)

        assert done == [0, 1, 1, 2, 6]
        assert [committed - 1 for committed in done[1:]] == [0, 0, 1, 5]

    def test_a_skipped_event_keeps_the_number_that_it_got_when_it_was_read(self) -> None:
        partition = partition_of(1, 2, 3)
        begin(partition, 2)
        begin(partition, 1)

        assert [(seq, batch.range.start) for seq, batch in sorted(partition.batches.items())] == [
            (0, 0),
            (1, 1),
            (2, 2),
        ]
        assert partition.next_seq == 3

    def test_what_a_lane_had_no_capacity_for_is_neither_lost_nor_renumbered(self) -> None:
        partition = partition_of(1, 2)
        begin_all(partition)
        partition.not_attempted(partition.in_flight_ticket(0))

        ack(partition, 1)
        assert partition.committed == 0
        begin(partition, 0)
        ack(partition, 0)

        assert (partition.committed, partition.next_seq) == (2, 2)


class TestWave:
    def delivered(self, *seqs: int) -> Partition:
        """Five batches of ten, some of them delivered."""
        partition = partition_of(10, 20, 30, 40, 50)
        for seq in seqs:
            begin(partition, seq)
            ack(partition, seq)
        return partition

    def test_contiguous_receipts_become_one_range_receipt(self) -> None:
        partition = self.delivered(2, 0, 1)

        merged = merge_receipts(map(RangeReceipt.of, partition.passed))

        assert [(r.range, r.batches, r.counts.delivered) for r in merged] == [(Range(0, 30), 3, 30)]

    def test_a_range_receipt_does_not_speak_of_what_lies_before_or_between(self) -> None:
        partition = self.delivered(1, 3)

        merged = merge_receipts(map(RangeReceipt.of, partition.pending_acks.values()))

        assert [r.range for r in merged] == [Range(10, 20), Range(30, 40)]

    def test_ranges_that_overlap_are_merged_into_one(self) -> None:
        one = RangeReceipt.of(self.delivered(0).passed[0])

        merged = merge_receipts([replace(one, range=Range(5, 20)), replace(one, range=Range(0, 10))])

        assert [r.range for r in merged] == [Range(0, 20)]

    def test_submitting_a_receipt_is_idempotent(self) -> None:
        partition = partition_of(10, 20)
        begin_all(partition)
        receipt = receipt_of(partition.batches[1])
        partition.ack(receipt)
        before = dict(partition.batches)

        assert [event.kind for event in partition.ack(receipt)] == ["ack_duplicate"]
        assert partition.batches == before

    def test_a_receipt_for_what_was_never_shared_is_not_believed(self) -> None:
        partition = partition_of(10)

        assert ack(partition, 0) == ["ack_spurious"]
        assert partition.committed == 0

    def test_recovery_lists_each_unreceipted_stretch_once_and_leaves_out_what_is_being_worked_on(self) -> None:
        """Batches own [30, 50); nothing accounts for [10, 20), which a damaged ledger has lost."""
        partition = self.delivered(0, 1, 2)
        receipts = [RangeReceipt.of(batch) for batch in partition.passed if batch.key.seq != 1]
        account = PartitionAccount(partition, 0, receipts, PartitionSnapshot(1, 30, 50))

        found = find_missing([account], before=NOW)

        assert [(item.partition, item.range) for item in found] == [("p", Range(10, 20))]

    def test_what_came_in_very_recently_is_not_listed(self) -> None:
        partition = self.delivered(0)
        account = PartitionAccount(partition, 0, [], PartitionSnapshot(1, 0, 0))

        assert find_missing([account], before=NOW - timedelta(seconds=1)) == []

    def test_a_client_that_cannot_process_an_event_gives_a_negative_receipt_and_goes_on(self) -> None:
        partition = partition_of(10, 20)
        begin_all(partition)
        ack(partition, 0, Verdict.REJECTED)
        ack(partition, 1)

        (merged,) = merge_receipts(map(RangeReceipt.of, partition.passed))
        assert (merged.range, merged.rejected, merged.counts.dead_lettered) == (Range(0, 20), 1, 10)

    def test_a_restarted_client_learns_from_the_receipts_what_it_need_not_do_again(self) -> None:
        partition = partition_of(10, 20, 30)
        begin_all(partition)

        reconcile(partition, [receipt_of(partition.batches[seq]) for seq in (0, 2)], epoch=2)

        states = {seq: batch.state for seq, batch in partition.batches.items()}
        assert states == {1: BatchState.PLANNED, 2: BatchState.DELIVERED}
