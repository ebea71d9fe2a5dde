"""Conformance tests of a sink's fence, and of the state of the sink that a run reads before it raises the fence."""

from __future__ import annotations

import re

import pytest

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import FencedError
from airflow_provider_ckpt.core.receipt import KnownReceipts
from airflow_provider_ckpt.testing.sink_harness import (
    LEDGER,
    OTHER_LEDGER,
    SIZE,
    Run,
    SinkHarness,
    content,
    ids,
    task,
)


class FenceConformance:
    """Conformance tests of fence, claims and the lookup of receipts; a part of :class:`SinkConformance`."""

    def test_a_new_sink_holds_no_claims(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.sink.check()

            assert run.sink.claims().epoch == 0
            assert run.sink.claims().ledgers == frozenset()
            assert run.receipts() == []

    def test_receipts_below_the_checkpoint_are_left_out(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over()
            for seq in range(4):
                run.send(task(seq), content(seq))
            run.send(task(0, partition="other"), content(9))

            found = run.receipts({"main": KnownReceipts(1, 2 * SIZE)})

            assert [(receipt.key.partition, receipt.key.seq) for receipt in found] == [
                ("main", 2),
                ("main", 3),
                ("other", 0),
            ]

    def test_a_receipt_across_the_checkpoint_is_not_left_out(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over().send(task(0), content(0))

            assert [receipt.key.seq for receipt in run.receipts({"main": KnownReceipts(1, SIZE - 1)})] == [0]

    def test_receipts_of_newer_generations_are_news_and_those_of_older_ones_are_not(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over()
            for generation, seq in ((1, 3), (2, 1), (2, 2), (3, 0)):
                run.send(task(seq, generation=generation), content(seq))

            found = run.receipts({"main": KnownReceipts(2, 2 * SIZE)})

            assert [(receipt.key.generation, receipt.key.seq) for receipt in found] == [(2, 2), (3, 0)]

    def test_nothing_is_delivered_before_a_fence_was_raised(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.sink.check()
            run.sink.create_bookkeeping()

            outcome = run.send(task(0), content(0))

            assert outcome.outcome is AttemptOutcome.FAILED
            assert outcome.error is not None
            assert "is at no epoch, not at this run's epoch 1" in outcome.error.message
            assert outcome.key == task(0).key
            assert harness.target() == []

    def test_a_fence_refuses_whoever_has_an_older_epoch(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as old, Run(harness, 2) as new:
            old.take_over().send(task(0), content(0))
            new.take_over()

            with pytest.raises(FencedError) as refusal:
                old.send(task(1), content(1))

            refused = (
                rf"\[Fenced\] pipeline \S+, batch {task(1).key}: the fence in .* is at epoch 2, so epoch 1 may not"
            )
            assert re.match(refused, str(refusal.value))
            assert harness.target() == ids(0)
            assert [receipt.key.seq for receipt in new.receipts()] == [0]

    def test_a_fence_is_never_lowered(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as old, Run(harness, 2) as new:
            new.take_over()

            with pytest.raises(FencedError, match=r"pipeline \S+: .* is at epoch 2, so epoch 1 may not write"):
                old.sink.fence(1)

            assert new.sink.claims().epoch == 2

    def test_raising_the_same_fence_twice_changes_nothing(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over().take_over()

            assert run.send(task(0), content(0)).outcome is AttemptOutcome.DELIVERED

    def test_receipts_read_after_the_fence_are_all_that_will_ever_be(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as old, Run(harness, 5) as new:
            old.take_over().send(task(0), content(0))
            new.take_over()
            before = new.receipts()

            with pytest.raises(FencedError):
                old.send(task(1), content(1))

            assert new.receipts() == before

    def test_claims_name_the_highest_epoch(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over()
        with Run(harness, 7) as run:
            run.take_over()

            assert run.sink.claims().epoch == 7
            assert run.sink.claims().ledgers == frozenset({LEDGER})

    def test_another_ledger_s_claims_show(self, harness: SinkHarness) -> None:
        with Run(harness, 1, ledger=OTHER_LEDGER) as other:
            other.take_over().send(task(0), content(0))
        with Run(harness, 1) as run:
            run.sink.check()

            assert run.sink.claims().ledgers == frozenset({OTHER_LEDGER})
            assert run.receipts() == []

    def test_another_pipeline_s_receipts_are_its_own(self, harness: SinkHarness) -> None:
        with Run(harness, 9, pipeline="invoices") as other, Run(harness, 1) as run:
            other.take_over().send(task(0), content(0))

            outcome = run.take_over().send(task(0), content(1))

            assert not outcome.receipt_existed
            assert harness.target() == ids(0, 1)
            assert [len(one.receipts()) for one in (run, other)] == [1, 1]
            assert run.sink.claims().epoch == 1

    def test_a_sink_that_nobody_touched_is_as_it_was_left(self, harness: SinkHarness) -> None:
        keys = [task(seq).key for seq in range(2)]
        with Run(harness, 1) as run:
            run.take_over().send(task(0), content(0))
            left, location = run.sink.claims(), run.sink.location
        with Run(harness, 2) as run:
            run.sink.check()

            assert (run.sink.location, run.sink.claims()) == (location, left)
            assert left.loss_evidence is None
            assert list(run.sink.batches_without_receipt(keys)) == keys[1:]
            run.take_over().send(task(1), content(1))
            assert (run.sink.claims().target, run.sink.claims().loss_evidence) == (left.target, None)
            assert list(run.sink.batches_without_receipt(keys)) == []

    def test_receipts_of_others_do_not_stand_for_ours(self, harness: SinkHarness) -> None:
        with Run(harness, 1, ledger=OTHER_LEDGER) as other, Run(harness, 1, pipeline="invoices") as another:
            other.take_over().send(task(0), content(0))
            another.take_over().send(task(1), content(1))
        with Run(harness, 1) as run:
            run.sink.check()

            assert list(run.sink.batches_without_receipt([task(seq).key for seq in range(2)])) == [
                task(seq).key for seq in range(2)
            ]

    def test_bookkeeping_can_be_created_twice(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as one, Run(harness, 1) as two:
            one.sink.create_bookkeeping()
            two.sink.create_bookkeeping()

            assert one.take_over().send(task(0), content(0)).outcome is AttemptOutcome.DELIVERED
