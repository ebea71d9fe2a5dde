"""A lane whose sink refuses rows: each becomes a dead letter or is skipped, and the others are delivered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.config.delivery import DeadLetterQueue
from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, Refused, SinkContext
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape
from airflow_provider_ckpt.connectors.sum_identity import checked_counts
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome
from airflow_provider_ckpt.spark.job import Job
from airflow_provider_ckpt.spark.lane.deliver import Lane
from airflow_provider_ckpt.spark.lane.gather import GatheredBatch

TASK = BatchTask(BatchKey(1, "p", 0), Range(100, 106), 1)
UNFIT = ErrorInfo(ErrorType.SERIALIZATION, "too long")
WRONG = ErrorInfo(ErrorType.SINK, "not above 0", sqlstate="23514")


class Writer:
    """Refuses rows, and writes down what it was given.

    :param refusals: what each delivery in turn refuses; the ones after that refuse nothing
    """

    def __init__(self, *refusals: Mapping[int, ErrorInfo]) -> None:
        self.refusals = list(refusals)
        self.given: list[BatchContent] = []
        self.closed = 0

    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        self.given.append(content)
        if self.refusals:
            return Refused(self.refusals.pop(0))
        counts = checked_counts(content, task, DeadLetterQueue())
        receipt = Receipt(task.key, task.range, Verdict.DELIVERED, 1, task.attempt, counts, datetime.now(UTC))
        return Outcome(task.key, task.attempt, AttemptOutcome.DELIVERED, receipt)

    def close(self) -> None:
        self.closed += 1


class Reader:
    """Says where records are from; nothing is read again."""

    def read(self, _: BatchTask) -> Iterator[pa.RecordBatch]:
        raise AssertionError

    def origin(self, _: BatchTask, position: int) -> Mapping[str, str]:
        return {"source-position": str(position)}

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class RefusingJob(Job):
    """A job whose writer refuses rows."""

    sink: Writer = field(kw_only=True)

    def reader(self) -> Reader:
        return Reader()

    def writer(self) -> Writer:
        return self.sink


def opened(writer: Writer, **policy: str) -> closing[Lane]:
    """A lane to the writer, with an ``error_policy``."""
    document: dict[str, Any] = {
        "name": "orders",
        "source": {"type": "postgres", "connection": "c", "table": "t", "cursor": "id"},
        "sink": {"type": "postgres", "connection": "c", "table": "t"},
        "error_policy": policy,
    }
    shape = RecordShape(False, [("id", "bigint")])
    job = RefusingJob(document, SinkContext("ledger", "orders", 1), shape, {}, sink=writer)
    return closing(Lane(job, transformed=False))


def batch() -> GatheredBatch:
    """Six rows at positions 100 to 105."""
    return GatheredBatch.of(pa.table({POSITION: range(100, 106), "id": range(6)}), 6)


def deliver(writer: Writer, **policy: str) -> Outcome:
    """Deliver the batch."""
    with opened(writer, **policy) as lane:
        return lane.deliver(TASK, batch())


def numbers(content: BatchContent) -> Sequence[int]:
    return list(content.rows.column(ROW_NUMBER).to_pylist())


def test_each_becomes_a_dead_letter_and_the_others_are_delivered() -> None:
    writer = Writer({1: WRONG, 4: UNFIT})

    outcome = deliver(writer)

    assert [numbers(content) for content in writer.given] == [[0, 1, 2, 3, 4, 5], [0, 2, 3, 5]]
    found = [(dead_letter.position, dead_letter.error) for dead_letter in writer.given[1].dead_letters]
    assert found == [(101, WRONG), (104, UNFIT)]
    assert writer.given[1].dead_letters[0].value == b'{"id": 1}'
    assert outcome.receipt is not None
    assert outcome.receipt.counts == Counts(6, 4, 0, 2)


def test_what_the_error_policy_skips_is_filtered_in_the_same_pass() -> None:
    writer = Writer({1: WRONG, 4: UNFIT})

    outcome = deliver(writer, Sink="skip_and_log")

    assert [numbers(content) for content in writer.given] == [[0, 1, 2, 3, 4, 5], [0, 2, 3, 5]]
    assert [dead_letter.position for dead_letter in writer.given[1].dead_letters] == [104]
    assert outcome.receipt is not None
    assert outcome.receipt.counts == Counts(6, 4, 1, 1)


def test_it_goes_on_until_the_sink_takes_what_is_left() -> None:
    writer = Writer({5: WRONG}, {0: WRONG}, dict.fromkeys((1, 2, 3, 4), WRONG))

    outcome = deliver(writer)

    assert [numbers(content) for content in writer.given[1:]] == [[0, 1, 2, 3, 4], [1, 2, 3, 4], []]
    assert outcome.receipt is not None
    assert outcome.receipt.counts == Counts(6, 0, 0, 6)


@pytest.mark.parametrize("action", ["halt", "retry"])
def test_an_error_that_fails_the_batch_ends_its_transaction(action: str) -> None:
    writer = Writer({1: UNFIT, 4: WRONG})

    with opened(writer, Sink=action) as lane:
        outcome = lane.deliver(TASK, batch())

        assert (outcome.outcome, len(writer.given), writer.closed) == (AttemptOutcome.FAILED, 1, 1)
    assert outcome.error is not None
    assert outcome.error.message == "position 104: not above 0"


def test_a_refusal_of_no_row_is_a_defect_of_the_writer() -> None:
    with pytest.raises(ValueError, match="at least one refused row"):
        Refused({})
