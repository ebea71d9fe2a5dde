"""Conformance tests of a sink's deliveries: a batch takes effect once, and its receipt accounts for every record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Verdict
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.testing.sink_harness import (
    SIZE,
    FailingHeaders,
    Run,
    SinkHarness,
    content,
    ids,
    no_records,
    task,
)


class DeliveryConformance:
    """Conformance tests of deliveries and their receipts; a part of :class:`SinkConformance`."""

    def test_a_batch_is_delivered_with_its_receipt(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            outcome = run.take_over().send(task(0), content(0))

            assert outcome.outcome is AttemptOutcome.DELIVERED
            assert not outcome.receipt_existed
            assert harness.target() == ids(0)
            (receipt,) = run.receipts()
            assert receipt == outcome.receipt
            assert (receipt.key, receipt.range, receipt.verdict) == (task(0).key, Range(0, SIZE), Verdict.DELIVERED)
            assert (receipt.epoch, receipt.attempt, receipt.bound) == (1, 1, 1000)
            assert receipt.counts == Counts(SIZE, SIZE, 0, 0)
            assert receipt.at.utcoffset() is not None

    def test_a_second_delivery_finds_the_receipt_and_has_no_effect(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            first = run.take_over().send(task(0), content(0))

            second = run.send(task(0, attempt=2), content(0))

            assert second.receipt_existed
            assert second.outcome is AttemptOutcome.DELIVERED
            assert second.receipt == first.receipt
            assert second.attempt == 2
            assert harness.target() == ids(0)
            assert len(run.receipts()) == 1

    def test_a_later_run_finds_an_earlier_runs_receipt(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over().send(task(0), content(0, rejected=1))
        with Run(harness, 2) as run:
            outcome = run.take_over().send(task(0, attempt=2), content(0, rejected=1))

            assert outcome.receipt_existed
            assert outcome.receipt is not None
            assert outcome.receipt.epoch == 1
            assert harness.target() == ids(0)[1:]
            assert [stored.position for stored in harness.dead_letters(run.context)] == [0]

    def test_batches_of_several_partitions_do_not_meet(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over()
            run.send(task(0, partition="a"), content(0))
            run.send(task(0, partition="b"), content(1))

            assert harness.target() == ids(0, 1)
            assert [receipt.key.partition for receipt in run.receipts()] == ["a", "b"]

    def test_an_empty_batch_gets_a_receipt(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            outcome = run.take_over().send(task(0), no_records())

            assert outcome.outcome is AttemptOutcome.DELIVERED
            assert [receipt.counts for receipt in run.receipts()] == [Counts()]
            assert harness.target() == []

    def test_counts_tell_every_record_s_fate(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            outcome = run.take_over().send(task(0), content(0, rejected=2, filtered=3))

            (receipt,) = run.receipts()
            assert receipt.counts == Counts(read=10, delivered=5, filtered=3, dead_lettered=2)
            assert outcome.dead_letters == {"MessageDeserialization": 2}
            assert harness.target() == ids(0)[5:]

    def test_counts_that_do_not_add_up_are_refused(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            wrong = content(0)
            wrong.read += 1

            outcome = run.take_over().send(task(0), wrong)

            assert outcome.outcome is AttemptOutcome.FAILED
            assert outcome.error is not None
            assert "SumIdentity" in outcome.error.message
            assert (harness.target(), run.receipts()) == ([], [])

    def test_an_unforeseen_error_leaves_nothing_of_its_batch_not_even_with_the_next_one(
        self, harness: SinkHarness
    ) -> None:
        with Run(harness, 1) as run:
            run.take_over()
            broken = content(0, rejected=1)
            broken.dead_letters[0] = replace(broken.dead_letters[0], headers=FailingHeaders())

            with pytest.raises(MemoryError):
                run.send(task(0), broken)
            after = run.send(task(1, partition="other"), content(1))

            assert after.outcome is AttemptOutcome.DELIVERED
            assert harness.target() == ids(1)
            assert [receipt.key for receipt in run.receipts()] == [after.key]
            assert harness.dead_letters(run.context) == []
            again = run.send(task(0, attempt=2), content(0))
            assert (again.outcome, again.receipt_existed) == (AttemptOutcome.DELIVERED, False)
            assert harness.target() == ids(0, 1)

    def test_many_batches_go_through_one_writer(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over()
            outcomes: Sequence[Outcome] = [run.send(task(seq), content(seq, rejected=seq % 2)) for seq in range(6)]

            assert Counter(outcome.outcome for outcome in outcomes) == {AttemptOutcome.DELIVERED: 6}
            assert harness.target() == [number for number in ids(*range(6)) if number not in (10, 30, 50)]
            assert [receipt.key.seq for receipt in run.receipts()] == list(range(6))
            assert run.sink.target_rows() in (57, None)
