"""Decisions of the delivery policy: the action on an error, the time of the next attempt, and a run's outcome."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_ckpt.core.batch import Batch, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.error_policy import default_action
from airflow_provider_ckpt.core.errors import ErrorAction, ErrorInfo, ErrorType
from airflow_provider_ckpt.core.failed_attempt import decide
from airflow_provider_ckpt.core.failure_decisions import FailRun, HaltRun, HoldBatch, RejectBatch, RetryBatch, SkipBatch
from airflow_provider_ckpt.core.on_exhausted import OnExhausted
from airflow_provider_ckpt.core.partition import Partition
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy, RetryPolicy
from tests.unit.core.machines import BROKEN, NOW

BATCH = Batch(BatchKey(1, "p", 0), Range(0, 10), attempts=1)
ERRORS = st.builds(
    ErrorInfo,
    st.sampled_from(ErrorType),
    st.just("broken"),
    recoverable=st.booleans(),
    sqlstate=st.sampled_from([None, "22003", "23505", "40001", "08006", "28P01", "42P01"]),
    is_outage=st.booleans(),
)


def decision(batch: Batch, error: ErrorInfo, policy: DeliveryPolicy | None = None, unit: float = 0.0) -> object:
    return decide(batch, error, policy or DeliveryPolicy(), now=NOW, deviation=unit)


# delays


def test_delays_double_from_100_milliseconds() -> None:
    delays = [RetryPolicy().delay(finished, 0) for finished in (1, 2, 3)]

    assert delays == [timedelta(milliseconds=100), timedelta(milliseconds=200), timedelta(milliseconds=400)]


def test_no_delay_is_longer_than_the_longest_before_jitter() -> None:
    assert RetryPolicy().delay(50, 0) == timedelta(seconds=30)
    assert RetryPolicy().delay(100_000, 1) == timedelta(seconds=33)


@given(st.integers(1, 40), st.floats(-1, 1))
def test_jitter_moves_a_delay_by_ten_percent_at_most(finished: int, unit: float) -> None:
    exact = RetryPolicy(jitter=0).delay(finished, unit)

    delay = RetryPolicy().delay(finished, unit)

    assert exact * 0.9 - timedelta(microseconds=1) <= delay <= exact * 1.1 + timedelta(microseconds=1)


# attempts and rounds


def test_a_batch_is_tried_three_times_a_round_in_three_rounds_and_then_rejected() -> None:
    batch, decisions = BATCH, []
    for _ in range(9):
        made = decision(batch, BROKEN)
        decisions.append(made)
        next_round = isinstance(made, RetryBatch) and made.next_round
        batch = replace(
            batch,
            failures=0 if next_round else batch.failures + 1,
            finished=batch.finished + 1,
            round=batch.round + next_round,
        )

    assert [getattr(made, "next_round", made) for made in decisions] == [
        *(False, False, True),
        *(False, False, True),
        *(False, False, RejectBatch()),
    ]


def test_the_delay_counts_the_attempts_that_ended_this_one_included() -> None:
    assert decision(BATCH, BROKEN) == RetryBatch(NOW + timedelta(milliseconds=100))
    assert decision(replace(BATCH, failures=1, finished=1), BROKEN) == RetryBatch(NOW + timedelta(milliseconds=200))


@pytest.mark.parametrize(
    ("on_exhausted", "expected"),
    [(OnExhausted.DLQ, RejectBatch()), (OnExhausted.HOLD, HoldBatch()), (OnExhausted.FAIL, FailRun())],
)
def test_what_becomes_of_an_exhausted_batch_is_the_pipelines_choice(
    on_exhausted: OnExhausted, expected: object
) -> None:
    policy = DeliveryPolicy(RetryPolicy(max_attempts=1, rounds=1, on_exhausted=on_exhausted))

    assert decision(BATCH, BROKEN, policy) == expected


def test_an_exhausted_batch_is_not_dropped_where_dead_letters_are_off() -> None:
    assert (
        decision(BATCH, BROKEN, DeliveryPolicy(RetryPolicy(max_attempts=1, rounds=1), dead_letters=False)) == FailRun()
    )


@pytest.mark.parametrize("kind", [ErrorType.OFFSET_COMMIT, ErrorType.LEDGER_UNAVAILABLE])
def test_errors_that_are_not_about_the_batch_halt_when_exhausted(kind: ErrorType) -> None:
    policy = DeliveryPolicy(RetryPolicy(max_attempts=1, rounds=1))

    assert decision(BATCH, ErrorInfo(kind, "gone", recoverable=True), policy) == HaltRun()


@given(ERRORS, st.integers(0, 5), st.integers(1, 5))
def test_an_outage_of_the_whole_sink_or_source_exhausts_nothing(error: ErrorInfo, failures: int, round_: int) -> None:
    batch = replace(BATCH, failures=failures, finished=failures, round=round_)

    assert decision(batch, replace(error, is_outage=True)) == FailRun()


# actions


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (ErrorInfo(ErrorType.IO, ""), ErrorAction.RETRY),
        (ErrorInfo(ErrorType.SINK, "", recoverable=True, sqlstate="40001"), ErrorAction.RETRY),
        (ErrorInfo(ErrorType.SINK, "", sqlstate="23514"), ErrorAction.DEAD_LETTER),
        (ErrorInfo(ErrorType.SINK, "", sqlstate="22P02"), ErrorAction.DEAD_LETTER),
        (ErrorInfo(ErrorType.SINK, "", sqlstate="28P01"), ErrorAction.HALT),
        (ErrorInfo(ErrorType.SINK, ""), ErrorAction.HALT),
        (ErrorInfo(ErrorType.MESSAGE_DESERIALIZATION, ""), ErrorAction.DEAD_LETTER),
        (ErrorInfo(ErrorType.CONFIG, ""), ErrorAction.HALT),
        (ErrorInfo(ErrorType.DEAD_LETTER_QUEUE, ""), ErrorAction.HALT),
        (ErrorInfo(ErrorType.FENCED, ""), ErrorAction.HALT),
        (ErrorInfo(ErrorType.GENERIC, ""), ErrorAction.HALT),
    ],
)
def test_every_error_has_one_action_and_what_no_rule_names_halts(error: ErrorInfo, action: ErrorAction) -> None:
    assert default_action(error) is action


def test_a_pipeline_may_choose_another_action() -> None:
    policy = DeliveryPolicy(
        overrides={ErrorType.SERIALIZATION: ErrorAction.HALT, ErrorType.IO: ErrorAction.DEAD_LETTER}
    )

    assert policy.action(ErrorInfo(ErrorType.SERIALIZATION, "")) is ErrorAction.HALT
    assert policy.action(ErrorInfo(ErrorType.IO, "")) is ErrorAction.DEAD_LETTER


@example(ErrorInfo(ErrorType.CONFIG, "no such column"), ErrorAction.RETRY, 5, 5)
@given(ERRORS, st.sampled_from(ErrorAction), st.integers(0, 5), st.integers(1, 5))
def test_no_override_turns_a_halt_into_a_drop(
    error: ErrorInfo, chosen: ErrorAction, failures: int, round_: int
) -> None:
    batch = replace(BATCH, failures=failures, finished=failures, round=round_)
    made = decision(batch, error, DeliveryPolicy(overrides={error.type: chosen}))

    if default_action(error) is ErrorAction.HALT:
        assert isinstance(made, HaltRun | FailRun | RetryBatch)


def test_a_batch_whose_error_is_no_records_is_let_go_where_the_pipeline_skips_it() -> None:
    policy = DeliveryPolicy(overrides={ErrorType.IO: ErrorAction.SKIP_AND_LOG})

    assert decision(BATCH, ErrorInfo(ErrorType.IO, "gone"), policy) == SkipBatch()
    assert decision(replace(BATCH, instruction=Instruction.VOID), ErrorInfo(ErrorType.IO, "gone"), policy) == HaltRun()


@pytest.mark.parametrize(("dead_letters", "expected"), [(True, RejectBatch()), (False, HaltRun())])
def test_a_batch_is_not_let_go_for_a_record_that_nobody_could_tell(dead_letters: bool, expected: object) -> None:
    policy = DeliveryPolicy(dead_letters=dead_letters, overrides={ErrorType.SINK: ErrorAction.SKIP_AND_LOG})

    assert decision(BATCH, ErrorInfo(ErrorType.SINK, "", sqlstate="23514"), policy) == expected


RECORD = ErrorInfo(ErrorType.JSON_PATH_NOT_FOUND, "no email")


@pytest.mark.parametrize("action", ErrorAction)
def test_a_records_error_has_the_action_that_the_pipeline_chooses(action: ErrorAction) -> None:
    assert DeliveryPolicy(overrides={RECORD.type: action}).record_action(RECORD, is_last_attempt=False) is action
    assert DeliveryPolicy().record_action(RECORD, is_last_attempt=False) is ErrorAction.DEAD_LETTER


def test_a_record_that_is_retried_costs_itself_when_the_attempts_are_used_up() -> None:
    policy = DeliveryPolicy(overrides={RECORD.type: ErrorAction.RETRY})

    assert [policy.record_action(RECORD, is_last_attempt=last) for last in (False, True)] == [
        ErrorAction.RETRY,
        ErrorAction.DEAD_LETTER,
    ]
    assert (
        DeliveryPolicy(dead_letters=False, overrides=policy.overrides).record_action(RECORD, is_last_attempt=True)
        is ErrorAction.RETRY
    )
    held = DeliveryPolicy(RetryPolicy(on_exhausted=OnExhausted.HOLD), overrides=policy.overrides)
    assert held.record_action(RECORD, is_last_attempt=True) is ErrorAction.RETRY


def test_a_records_attempts_are_those_of_its_batch_and_an_attempt_that_never_ran_is_none() -> None:
    partition, policy, asked = Partition("p"), DeliveryPolicy(overrides={RECORD.type: ErrorAction.RETRY}), []
    partition.plan(Range(0, 1))

    while True:
        for _ in range(8):
            partition.not_attempted(partition.begin(partition.planned_ticket(0), epoch=1, now=NOW)[0])
        ticket, _ = partition.begin(partition.planned_ticket(0), epoch=1, now=NOW)
        asked.append(policy.record_action(RECORD, is_last_attempt=policy.is_last_attempt(partition.batches[0])))
        found = decide(partition.batches[0], RECORD, policy, now=NOW, deviation=0)
        if not isinstance(found, RetryBatch):
            break
        partition.fail(ticket, RECORD, not_before=None, next_round=found.next_round)

    assert asked == [ErrorAction.RETRY] * 8 + [ErrorAction.DEAD_LETTER]


@given(ERRORS, st.sampled_from(ErrorAction), st.booleans())
def test_no_override_turns_a_halt_into_a_drop_of_a_record(error: ErrorInfo, chosen: ErrorAction, last: bool) -> None:
    made = DeliveryPolicy(overrides={error.type: chosen}).record_action(error, is_last_attempt=last)

    if default_action(error) is ErrorAction.HALT:
        assert made in (ErrorAction.HALT, ErrorAction.RETRY)


@given(ERRORS)
def test_with_dead_letters_off_an_error_that_calls_for_one_halts(error: ErrorInfo) -> None:
    action = DeliveryPolicy(dead_letters=False).action(error)

    assert action is not ErrorAction.DEAD_LETTER
    if default_action(error) is ErrorAction.DEAD_LETTER:
        assert action is ErrorAction.HALT
