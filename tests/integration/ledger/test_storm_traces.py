"""Traces that the storm has found, each as short as it could be made; see ``tests/chaos/ledger_storm.py``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow_provider_ckpt.core.actions import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from tests.integration.ledger.ledger_driver import NOW, Acts, delivered, receipt_of


def test_acts_applied_together_merge_each_receipt_once(acts: Acts) -> None:
    first, second, third = acts.plan(10, 20, 30)
    acts.settle(*map(delivered, acts.begin([second])))
    for batch in (first, third):
        acts.ledger.action(
            "orders", Action(ActionKind.SKIP, batches=(batch.key,)), actor="a person", reason="not needed"
        )

    results = acts.ledger.apply_stored_actions(acts.lease, now=NOW)

    assert [result.applied for result in results] == [True, True]
    assert sum(batches for *_, batches, _ in acts.receipts()) == 3
    assert sum(records for *_, records in acts.receipts()) == 10


def test_an_act_after_a_rewind_in_the_same_command_counts_nothing_again(acts: Acts) -> None:
    first, second, third = acts.plan(10, 20, 30)
    acts.settle(*map(delivered, acts.begin([first, third])))
    acts.ledger.action("orders", Action(ActionKind.REWIND, positions={"t": 5}), actor="a person", reason="again")
    acts.ledger.action("orders", Action(ActionKind.DRAIN), actor="a person", reason="enough")

    results = acts.ledger.apply_stored_actions(acts.lease, now=NOW, behind_fence=True)

    assert [result.applied for result in results] == [True, True]
    assert acts.receipts() == [(0, 10, 1, 10), (20, 30, 1, 10)]
    assert acts.partition().committed == 5
    assert second.key.seq not in acts.partition().batches


def test_a_skipped_batch_in_flight_keeps_its_open_attempt(acts: Acts) -> None:
    [batch] = acts.send(10)

    acts.ledger.act_under_lease(
        acts.lease, Action(ActionKind.SKIP, batches=(batch.key,)), actor="a person", reason="not needed"
    )

    assert acts.ledger.audit("orders")["violations"] == []


def test_skipping_a_batch_twice_that_was_begun_is_one_skip(acts: Acts) -> None:
    [batch] = acts.send(10)
    skip = Action(ActionKind.SKIP, batches=(batch.key,))
    acts.ledger.act_under_lease(acts.lease, skip, actor="a person", reason="not needed")

    result = acts.ledger.act_under_lease(acts.lease, skip, actor="another", reason="not needed")

    assert result.applied
    assert result.before == result.after


def test_what_was_sent_at_most_once_and_never_confirmed_is_accounted_for(acts: Acts) -> None:
    acts.begin(acts.plan(10, 20), at_most_once=True)

    assert acts.partition().committed == 20
    assert acts.ledger.audit("orders")["violations"] == []
    assert acts.ledger.audit("orders", quick=True)["violations"] == []
    assert acts.ledger.recovery_plan("orders", settle_lag=timedelta(0)) == []


def test_a_quick_audit_does_not_miss_what_lies_between_unconfirmed_batches(acts: Acts) -> None:
    batches = acts.begin(acts.plan(10, 20, 30, 40, 50), at_most_once=True)
    acts.settle(delivered(batches[2]), delivered(batches[4]))

    assert acts.ledger.audit("orders", quick=True)["violations"] == []


def test_a_loss_passes_over_receipts_of_a_side_partition_that_was_collected(acts: Acts) -> None:
    acts.settle(*map(delivered, acts.send(10)))
    replay = Action(ActionKind.REPLAY, ranges=(("t", Range(0, 10)),))
    acts.ledger.act_under_lease(acts.lease, replay, actor="a person", reason="once more")
    side = "replay:2:t"
    [again] = acts.begin(acts.plan(10, name=side, start=0))
    acts.settle(delivered(again))
    acts.ledger.garbage_collect(
        "orders", keep=timedelta(0), actor="a person", now=datetime.now(UTC) + timedelta(hours=1)
    )
    assert side not in acts.ledger.partitions("orders")
    [flying] = acts.send(20)

    settlement = acts.lost([flying], receipts=[receipt_of(again)])

    assert settlement.acked == []
    assert acts.batch(BatchKey(1, "t", flying.key.seq)).attempts == 1
