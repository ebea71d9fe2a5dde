"""Tests of the end of attempts: receipts, failures under the delivery policy, a lost Spark, a cancelled run."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from functools import partial

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.core.batch import AttemptOutcome, BatchState, Instruction
from airflow_provider_ckpt.core.errors import ErrorAction, ErrorInfo, ErrorType, LedgerUnavailableError
from airflow_provider_ckpt.core.failure_decisions import FailRun, HaltRun, HoldBatch, RejectBatch, RetryBatch, SkipBatch
from airflow_provider_ckpt.core.on_exhausted import OnExhausted
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Verdict
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy, RetryPolicy
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.ledger.store.database import create_engine, parse_url
from tests.integration.ledger.ledger_driver import (
    BAD_DATA,
    NOW,
    OUTAGE,
    TRANSIENT,
    UNNAMED,
    LedgerDriver,
    delivered,
    ended,
    failed,
    receipt_of,
)

ONCE = RetryPolicy(max_attempts=1, rounds=1)


def test_delivered_batches_move_the_checkpoint(driver: LedgerDriver) -> None:
    settlement = driver.settle(*map(delivered, driver.send(10, 20)))
    assert settlement.checkpoint == {"t": 20}
    assert (driver.partition().committed, driver.states(), driver.receipts()) == (20, {}, [(0, 20, 2, 20)])


def test_a_receipt_beyond_a_gap_is_a_pending_acknowledgement(driver: LedgerDriver) -> None:
    first, second = driver.send(10, 20)
    driver.settle(delivered(second))
    stored = driver.batch(second.key)
    assert (driver.partition().committed, stored.state, stored.receipt) == (0, BatchState.DELIVERED, receipt_of(second))
    driver.settle(delivered(first))
    assert (driver.partition().committed, driver.states()) == (20, {})


def test_a_second_report_changes_nothing(driver: LedgerDriver) -> None:
    batches = driver.send(10, 20)
    driver.settle(delivered(batches[0]))
    assert driver.settle(delivered(batches[0])).acked == []
    assert driver.receipts() == [(0, 10, 1, 10)]


def test_receipts_merge_whatever_the_order_in_which_they_come(driver: LedgerDriver) -> None:
    batches = driver.send(*range(10, 110, 10))
    for index in (3, 9, 0, 5, 4, 8, 1, 7, 6):
        driver.settle(delivered(batches[index]))
    assert driver.receipts() == [(0, 20, 2, 20)]
    driver.settle(delivered(batches[2]))
    assert (driver.receipts(), driver.states()) == ([(0, 100, 10, 100)], {})


def test_a_failed_batch_waits_as_long_as_the_policy_says(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    settlement = driver.settle(failed(batch))
    stored = driver.batch(batch.key)
    assert settlement.decisions == {batch.key: RetryBatch(NOW + timedelta(milliseconds=100))}
    assert (stored.state, stored.failures, stored.error) == (BatchState.PLANNED, 1, TRANSIENT)
    assert stored.not_before == NOW + timedelta(milliseconds=100)


def test_a_rounds_last_failure_leaves_the_batch_to_the_next_round(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    driver.settle(failed(batch), policy=DeliveryPolicy(RetryPolicy(max_attempts=1, rounds=2)))
    stored = driver.batch(batch.key)
    assert (stored.round, stored.failures, stored.finished) == (2, 0, 1)


def test_an_exhausted_batch_is_told_to_claim_rejected(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    settlement = driver.settle(failed(batch), policy=DeliveryPolicy(ONCE))
    stored = driver.batch(batch.key)
    assert settlement.decisions == {batch.key: RejectBatch()}
    assert (stored.state, stored.instruction, stored.error) == (BatchState.PLANNED, Instruction.REJECT, TRANSIENT)


def test_a_batch_that_is_to_be_rejected_after_its_last_attempt_has_attempts_of_its_own_for_that(
    driver: LedgerDriver,
) -> None:
    policy = DeliveryPolicy(RetryPolicy(max_attempts=2, rounds=1))
    (batch,) = driver.send(10)
    driver.settle(failed(batch), policy=policy)
    (again,) = driver.wait(seconds=60).begin([batch])
    given_up = driver.settle(failed(again), policy=policy)
    (rejecting,) = driver.begin([batch])

    first = driver.settle(failed(rejecting), policy=policy)
    (rejecting,) = driver.wait(seconds=60).begin([batch])
    second = driver.settle(failed(rejecting), policy=policy)

    assert given_up.decisions == {batch.key: RejectBatch()}
    assert isinstance(first.decisions[batch.key], RetryBatch)
    assert second.decisions == {batch.key: HaltRun()}


def test_a_batch_that_cannot_even_be_rejected_halts_the_run(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    driver.settle(failed(batch, BAD_DATA))
    settlement = driver.settle(failed(driver.begin([batch])[0], BAD_DATA))
    assert (settlement.decisions[batch.key], settlement.halted) == (HaltRun(), BAD_DATA)


def test_an_exhausted_batch_is_held_where_the_policy_says_so(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    policy = DeliveryPolicy(RetryPolicy(max_attempts=1, rounds=1, on_exhausted=OnExhausted.HOLD))
    assert driver.settle(failed(batch), policy=policy).decisions == {batch.key: HoldBatch()}
    assert driver.states() == {0: BatchState.HELD}
    assert driver.events("held")[0]["detail"] == {"reason": TRANSIENT.message}


def test_an_outage_of_the_sink_fails_the_run_and_counts_against_no_batch(driver: LedgerDriver) -> None:
    batches = driver.send(10, 20)
    settlement = driver.settle(*(failed(batch, OUTAGE) for batch in batches), policy=DeliveryPolicy(ONCE))
    assert (settlement.failed, settlement.halted) == (OUTAGE, None)
    assert set(settlement.decisions.values()) == {FailRun()}
    assert {(b.state, b.failures, b.finished) for b in driver.partition().batches.values()} == {
        (BatchState.PLANNED, 0, 0)
    }


def test_an_error_that_no_rule_names_halts(driver: LedgerDriver) -> None:
    first, second = driver.send(10, 20)
    settlement = driver.settle(failed(first, UNNAMED), delivered(second))
    assert settlement.halted == UNNAMED
    assert driver.states() == {0: BatchState.PLANNED, 1: BatchState.DELIVERED}


def test_a_failure_without_a_reason_halts(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    settlement = driver.settle(ended(batch, AttemptOutcome.FAILED))
    assert settlement.halted is not None
    assert driver.batch(batch.key).error == settlement.halted


@pytest.mark.parametrize(
    ("outcome", "event"),
    [
        (AttemptOutcome.NOT_ATTEMPTED, None),
        (AttemptOutcome.ABANDONED, "abandoned"),
        (AttemptOutcome.FENCED, "fenced"),
        (AttemptOutcome.CANCELLED, "cancelled"),
        (AttemptOutcome.STAGED, "abandoned"),
    ],
)
def test_what_ends_without_a_verdict_goes_back_and_counts_nothing(
    driver: LedgerDriver, outcome: AttemptOutcome, event: str | None
) -> None:
    (batch,) = driver.send(10)
    settlement = driver.settle(ended(batch, outcome))
    stored = driver.batch(batch.key)
    assert (stored.state, stored.failures, settlement.decisions) == (BatchState.PLANNED, 0, {})
    assert [e["kind"] for e in driver.events("abandoned", "fenced", "cancelled")] == ([event] if event else [])


def test_an_outcome_of_an_attempt_that_is_not_open_is_ignored_and_told(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    late = Outcome(batch.key, 7, AttemptOutcome.FAILED, error=TRANSIENT)
    assert driver.settle(late).decisions == {}
    assert driver.states() == {0: BatchState.IN_FLIGHT}
    assert driver.events("outcome_ignored")[0]["detail"]["attempt"] == 7


def test_a_receipt_settles_a_batch_that_was_given_back_meanwhile(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    driver.settle(failed(batch))
    assert len(driver.settle(delivered(batch)).acked) == 1
    assert driver.partition().committed == 10


def test_a_rejected_batch_is_resolved_and_its_dead_letters_are_indexed(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    receipt = receipt_of(batch, Verdict.REJECTED)
    driver.settle(Outcome(batch.key, 1, AttemptOutcome.REJECTED, receipt, dead_letters={"Sink": 10}))
    (found,) = driver.ledger.receipts("orders")
    assert (found.range, found.rejected, found.counts.dead_lettered) == (Range(0, 10), 1, 10)
    assert driver.ledger.status("orders")["dead_letters"] == {"Sink": 10}
    assert [event["seq"] for event in driver.events("rejected")] == [0]


def test_a_void_batch_is_skipped(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    driver.settle(Outcome(batch.key, 1, AttemptOutcome.VOID, receipt_of(batch, Verdict.VOID)))
    assert (driver.partition().committed, driver.ledger.receipts("orders")[0].skipped) == (10, 1)


def test_dead_letters_whose_type_was_not_reported_are_indexed_as_unknown(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    driver.settle(delivered(batch, dead=3, dead_letters={"Serialization": 2}))
    assert driver.ledger.status("orders")["dead_letters"] == {"Serialization": 2, "unknown": 1}


def test_an_error_that_quotes_bytes_no_database_takes_is_stored_without_them(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    driver.settle(failed(batch, ErrorInfo(ErrorType.SINK, "bad: \x00 \udcff", recoverable=True)))
    error = driver.batch(batch.key).error
    assert error is not None
    assert error.message == "bad: \ufffd ?"


def test_receipts_of_one_settlement_move_several_partitions(driver: LedgerDriver) -> None:
    driver.start("u", base=100)
    batches = [*driver.send(10), *driver.send(110, 120, name="u")]
    assert driver.settle(*map(delivered, batches)).checkpoint == {"t": 10, "u": 120}
    assert [event["partition"] for event in driver.events("checkpoint")] == ["t", "u"]


def test_a_lost_wave_keeps_what_has_a_receipt_and_suspects_the_first_of_each_lane(driver: LedgerDriver) -> None:
    batches = driver.send(10, 20, 30, 40, 50)
    settlement = driver.lost(batches[:3], batches[3:], receipts=[receipt_of(batches[0])])
    assert settlement.checkpoint == {"t": 10}
    alone = {seq: batch.alone for seq, batch in driver.partition().batches.items()}
    assert alone == {1: True, 2: False, 3: True, 4: False}
    assert set(driver.states().values()) == {BatchState.PLANNED}


def test_a_batch_that_dies_alone_too_often_is_held(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    driver.lost([batch])
    for death in (1, 2):
        driver.begin([batch])
        settlement = driver.lost([batch], alone=True, limit=2)
        assert driver.batch(batch.key).deaths == death
    assert settlement.decisions == {batch.key: HoldBatch()}
    assert driver.states() == {0: BatchState.HELD}


def test_cancel_gives_back_every_open_attempt_and_sets_the_watermark(driver: LedgerDriver) -> None:
    batches = driver.send(10, 20, 30)
    driver.settle(delivered(batches[1]))
    assert driver.ledger.cancel(driver.lease, now=NOW) == [batches[0].key, batches[2].key]
    assert driver.partition().cancellation_watermark == 0
    assert driver.ledger.cancel(driver.lease, now=NOW) == []


def test_the_cancellation_watermark_survives_a_takeover(driver: LedgerDriver) -> None:
    batches = driver.send(10, 20)
    driver.ledger.cancel(driver.lease, now=NOW)
    driver.again("second").reconcile(receipt_of(batches[1]))
    assert (driver.partition().committed, driver.partition().cancellation_watermark) == (0, 0)
    driver.settle(delivered(driver.begin([batches[0]])[0]))
    assert driver.partition().committed == 20


def test_a_batch_that_the_policy_drops_is_to_be_voided_in_the_sink(driver: LedgerDriver) -> None:
    (batch,) = driver.send(10)
    policy = DeliveryPolicy(overrides={ErrorType.IO: ErrorAction.SKIP_AND_LOG})

    settlement = driver.settle(failed(batch, ErrorInfo(ErrorType.IO, "it is gone")), policy=policy)

    assert settlement.decisions == {batch.key: SkipBatch()}
    stored = driver.batch(batch.key)
    assert (stored.state, stored.instruction) == (BatchState.PLANNED, Instruction.VOID)
    assert driver.partition().committed == 0


def test_a_settlement_waits_no_longer_for_another_command_than_it_is_told_to(
    driver: LedgerDriver, ledger_url: str
) -> None:
    (batch,) = driver.send(10)
    other = create_engine(parse_url(ledger_url))
    settle = partial(
        driver.ledger.settle,
        driver.lease,
        [delivered(batch)],
        now=driver.now,
        policy=DeliveryPolicy(),
        deviation=lambda: 0.0,
    )

    with closing(other.connect()) as connection, connection.begin():
        connection.execute(sa.update(tables.lease).values(owner=tables.lease.c.owner))
        with pytest.raises(LedgerUnavailableError) as caught:
            settle(patience=timedelta(milliseconds=50))
    other.dispose()

    assert caught.value.recoverable
    assert settle(patience=timedelta(seconds=30)).checkpoint == {"t": 10}
