"""Tests of the reconciliation of a partition: with receipts at the beginning of a run, and after a rewind."""

from __future__ import annotations

import time

from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.reconcile import LOST_REWIND, matches_batch, reconcile
from tests.unit.core.machines import NOW, ack, begin, begin_all, fail, partition_of, receipt_of


def stranger(seq: int, start: int, end: int, *, generation: int = 1) -> Receipt:
    """A receipt that the sink holds and this ledger may not know."""
    counts = Counts(end - start, end - start)
    return Receipt(BatchKey(generation, "p", seq), Range(start, end), Verdict.DELIVERED, 1, 1, counts, NOW)


def kinds(partition: Partition, *receipts: Receipt, epoch: int = 2) -> list[str]:
    """Reconcile; the kinds of the events."""
    return [event.kind for event in reconcile(partition, receipts, epoch=epoch)]


class TestReconcile:
    def test_a_receipt_settles_its_batch_and_what_has_none_is_fenced(self) -> None:
        partition = partition_of(10, 20)
        begin_all(partition)

        assert kinds(partition, receipt_of(partition.batches[0])) == ["acked", "fenced", "checkpoint"]
        assert (partition.committed, partition.batches[1].state) == (10, BatchState.PLANNED)

    def test_attempts_of_its_own_epoch_stay_open(self) -> None:
        partition = partition_of(10)
        begin(partition, 0, epoch=2)

        assert kinds(partition, epoch=2) == []
        assert partition.in_flight.keys() == {0}

    def test_a_batch_that_waits_after_an_attempt_is_settled_too(self) -> None:
        partition = partition_of(10)
        fail(partition, begin(partition, 0))

        assert kinds(partition, receipt_of(partition.batches[0])) == ["acked", "checkpoint"]

    def test_many_receipts_that_it_has_forgotten_are_imported_in_linear_time(self) -> None:
        partition = partition_of(*range(10, 50_001, 10))
        many = [stranger(seq, 5 * seq, 5 * seq + 5) for seq in range(1, 10_000, 2)]
        began = time.process_time()

        found = kinds(partition, *many)

        assert (found.count("receipt_imported"), found.count("superseded")) == (5000, 5000)
        assert partition.gaps()[:2] == [Range(0, 5), Range(10, 15)]
        assert time.process_time() - began < 2

    def test_a_held_batch_is_settled_too(self) -> None:
        partition = partition_of(10)
        partition.hold(begin(partition, 0), reason="a person looks")

        assert kinds(partition, receipt_of(partition.batches[0])) == ["acked", "checkpoint"]

    def test_doing_it_again_changes_nothing(self) -> None:
        partition = partition_of(10, 20)
        begin_all(partition)
        receipt = receipt_of(partition.batches[1])
        reconcile(partition, [receipt], epoch=2)
        before = dict(partition.batches)

        assert kinds(partition, receipt) == ["ack_duplicate"]
        assert partition.batches == before

    def test_the_checkpoint_moves_once_however_many_receipts_there_are(self) -> None:
        partition = partition_of(10, 20, 30)
        begin_all(partition)

        events = reconcile(partition, [receipt_of(batch) for batch in partition.batches.values()], epoch=2)

        assert [event.detail for event in events if event.kind == "checkpoint"] == [{"before": 0, "after": 30}]

    def test_the_order_of_receipts_does_not_matter(self) -> None:
        ends = []
        for order in ([0, 1], [1, 0]):
            partition = partition_of()
            reconcile(partition, [[stranger(0, 0, 10), stranger(1, 10, 30)][n] for n in order], epoch=2)
            ends.append((partition.committed, partition.next_seq, partition.planned_end, partition.batches))
        assert ends[0] == ends[1] == (30, 2, 30, {})


class TestImport:
    def test_a_ledger_behind_the_sink_learns_what_it_has_forgotten(self) -> None:
        partition = Partition("p")

        assert kinds(partition, stranger(0, 0, 10), stranger(1, 10, 20)) == [
            "receipt_imported",
            "receipt_imported",
            "checkpoint",
        ]
        assert (partition.committed, partition.next_seq, partition.planned_end) == (20, 2, 20)

    def test_numbers_go_on_past_an_imported_receipt(self) -> None:
        partition = Partition("p")
        reconcile(partition, [stranger(4, 40, 50)], epoch=2)

        partition.plan(Range(50, 60))

        assert partition.batches[5].range == Range(50, 60)

    def test_what_an_imported_receipt_leaves_uncovered_is_planned_again(self) -> None:
        partition = partition_of(30)
        begin(partition, 0)

        events = reconcile(partition, [stranger(0, 0, 12)], epoch=2)

        assert [event.kind for event in events] == ["superseded", "receipt_imported", "checkpoint"]
        assert (partition.committed, partition.gaps()) == (12, [Range(12, 30)])

    def test_every_unresolved_batch_that_it_overlaps_gives_way(self) -> None:
        partition = partition_of(10, 20, 30)
        partition.hold(partition.planned_ticket(1), reason="a person looks")
        begin(partition, 2)

        reconcile(partition, [stranger(7, 5, 25)], epoch=2)

        assert {seq: b.state for seq, b in partition.batches.items()} == {
            0: BatchState.SUPERSEDED,
            1: BatchState.SUPERSEDED,
            2: BatchState.SUPERSEDED,
            7: BatchState.DELIVERED,
        }
        assert partition.gaps() == [Range(0, 5), Range(25, 30)]

    def test_a_batch_that_was_planned_and_not_begun_here_is_imported_with_its_own_range(self) -> None:
        """A backup from before ``begin``: the batch is the same, but this ledger never sent it."""
        partition = partition_of(10)

        assert kinds(partition, receipt_of(partition.batches[0])) == ["superseded", "receipt_imported", "checkpoint"]
        assert (partition.committed, partition.batches) == (10, {})

    def test_a_receipt_below_the_checkpoint_is_known(self) -> None:
        partition = partition_of(10)
        begin(partition, 0)
        receipt = receipt_of(partition.batches[0])
        ack(partition, 0)

        assert matches_batch(partition, receipt)
        assert kinds(partition, receipt) == ["ack_duplicate"]

    def test_a_receipt_of_a_batch_that_was_skipped_here_is_believed(self) -> None:
        """A restored ledger let go of a batch that, so says the sink, it had delivered."""
        partition = partition_of(10, 20)
        partition.skip(partition.planned_ticket(1), reason="junk")

        reconcile(partition, [receipt_of(partition.batches[1])], epoch=2)

        assert partition.batches[1].state is BatchState.DELIVERED


def delivered_to_10() -> Partition:
    partition = partition_of(10)
    begin(partition, 0)
    ack(partition, 0)
    return partition


class TestGenerations:
    def test_receipts_of_a_generation_that_has_ended_are_passed_over(self) -> None:
        partition = Partition("p", generation=2)

        assert kinds(partition, stranger(0, 0, 10)) == []
        assert partition.committed == 0

    def test_a_forgotten_rewind_is_made_up_for_from_its_receipts(self) -> None:
        """The backup is from 10; then came 30, a rewind to 20 as generation 3, and 10 of those positions again."""
        partition = delivered_to_10()
        found = [stranger(1, 10, 20), stranger(2, 20, 30), stranger(0, 20, 30, generation=3)]

        events = reconcile(partition, found, epoch=2)

        assert (partition.generation, partition.base, partition.committed) == (3, 20, 30)
        assert (partition.next_seq, partition.planned_end, partition.batches) == (1, 30, {})
        (rewound,) = (event for event in events if event.kind == "rewound")
        assert rewound.detail == {
            "before": {"generation": 1, "committed": 30},
            "after": {"generation": 3, "committed": 20},
            "reason": LOST_REWIND,
        }

    def test_a_rewind_whose_first_batch_is_missing_leaves_out_nothing(self) -> None:
        """Generation 2 began somewhere up to 15, where the one before had ended; its batch before 30 has no receipt."""
        partition = delivered_to_10()

        reconcile(partition, [stranger(1, 10, 15), stranger(1, 30, 40, generation=2)], epoch=2)

        assert (partition.base, partition.committed, partition.planned_end) == (15, 15, 40)
        assert partition.gaps() == [Range(15, 30)]

    def test_several_repeated_rewinds_are_made_up_for_one_after_the_other(self) -> None:
        partition = delivered_to_10()
        found = [stranger(0, 5, 25, generation=2), stranger(0, 20, 40, generation=5), stranger(0, 0, 9, generation=0)]

        events = reconcile(partition, found, epoch=2)

        assert [(e.kind, e.generation) for e in events] == [
            ("rewound", 2),
            ("receipt_imported", 2),
            ("checkpoint", 2),
            ("rewound", 5),
            ("receipt_imported", 5),
            ("checkpoint", 5),
        ]
        assert (partition.generation, partition.base, partition.committed) == (5, 20, 40)

    def test_what_is_open_when_a_forgotten_rewind_is_found_is_superseded(self) -> None:
        partition = delivered_to_10()
        partition.plan(Range(10, 30))
        begin(partition, 1)

        assert kinds(partition, stranger(0, 0, 10, generation=2)) == [
            "fenced",
            "superseded",
            "rewound",
            "receipt_imported",
            "checkpoint",
        ]
        assert partition.planned_end == 10
