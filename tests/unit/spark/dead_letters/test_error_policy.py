"""Tests of ``error_policy`` for single records; with at-most-once delivery, no record is sent twice."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.batch_content import DeadLetter
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorAction, ErrorInfo, ErrorType
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.retry_policy import DeliveryPolicy
from airflow_provider_ckpt.core.wave_messages import BatchTask
from airflow_provider_ckpt.spark.dead_letters.error_policy import RecordError, without_skipped
from airflow_provider_ckpt.spark.job import Job
from airflow_provider_ckpt.spark.lane import deliver
from airflow_provider_ckpt.spark.lane.deliver import Lane
from airflow_provider_ckpt.spark.lane.gather import GatheredBatch

TASK = BatchTask(BatchKey(1, "p", 3), Range(0, 10), 1)
MISSING = ErrorInfo(ErrorType.JSON_PATH_NOT_FOUND, "no email")
WRONG = ErrorInfo(ErrorType.MESSAGE_DESERIALIZATION, "no JSON")
LETTERS = [DeadLetter(4, None, b"{}", MISSING), DeadLetter(4, None, b"{", WRONG), DeadLetter(6, None, b"{}", MISSING)]


def test_without_overrides_every_letter_remains_one() -> None:
    assert without_skipped(LETTERS, TASK, DeliveryPolicy()) is LETTERS


def test_what_is_skipped_leaves_no_letter_and_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        left = without_skipped(LETTERS, TASK, DeliveryPolicy(overrides={MISSING.type: ErrorAction.SKIP_AND_LOG}))

    assert left == [LETTERS[1]]
    assert caplog.messages == [
        "p#3: 2 records are skipped by error_policy; the first is at position 4: [JsonPathNotFound] no email"
    ]


@pytest.mark.parametrize("action", [ErrorAction.HALT, ErrorAction.RETRY])
def test_what_halts_or_is_retried_fails_its_batch_and_says_where(action: ErrorAction) -> None:
    with pytest.raises(RecordError) as caught:
        without_skipped(LETTERS, TASK, DeliveryPolicy(overrides={WRONG.type: action}))

    assert caught.value.info == ErrorInfo(WRONG.type, "position 4: no JSON")


@pytest.mark.parametrize(("guarantee", "sent"), [("at_most_once", False), ("at_least_once", True)])
def test_a_task_that_spark_executes_once_more_sends_nothing_at_most_once(
    guarantee: str, sent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = {
        "name": "orders",
        "source": {"type": "postgres", "connection": "c", "table": "t", "cursor": "id"},
        "sink": {"type": "postgres", "connection": "c", "table": "t"},
        "delivery": guarantee,
    }
    opened: list[str] = []

    def writer(_: Job) -> object:
        opened.append("writer")
        raise ConnectionError("not here")

    monkeypatch.setattr(deliver, "is_task_retry", lambda: True)
    monkeypatch.setattr(Job, "writer", writer)
    job = Job(document, SinkContext("ledger", "orders", 1), RecordShape(False, [("id", "bigint")]), {})

    outcome = Lane(job, transformed=False).deliver(TASK, GatheredBatch.of(pa.table({POSITION: [1], "id": [1]}), 1))

    assert outcome.outcome is AttemptOutcome.FAILED
    assert opened == (["writer"] if sent else [])
    assert outcome.error is not None
    assert ("nothing of the batch is sent again" in outcome.error.message) is not sent
