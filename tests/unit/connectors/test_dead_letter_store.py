"""A sink with a separate dead letter store: letters are stored before the receipt, and never reach the sink."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from airflow_provider_ckpt.config.delivery import DeadLetterQueue
from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter, StoredDeadLetter
from airflow_provider_ckpt.connectors.dead_letter_store import WriterWithDeadLetterStore
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, Refused
from airflow_provider_ckpt.connectors.sum_identity import checked_counts
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import (
    CkptError,
    DeadLetterQueueError,
    ErrorInfo,
    ErrorType,
    FencedError,
    IoError,
    SinkError,
)
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome
from airflow_provider_ckpt.testing.lane_writer import LaneWriter

TASK = BatchTask(BatchKey(1, "p", 0), Range(0, 10), 1)
BAD = ErrorInfo(ErrorType.SINK, "too long", sqlstate="22001")
QUEUE = DeadLetterQueue()
WRONG = ErrorInfo(ErrorType.MESSAGE_DESERIALIZATION, "no JSON")


class Journal:
    """A box and a sink's writer that write down what they were given, in one list.

    :param fails: so many letters cannot be kept at first
    :param refuses: positions of rows that the sink finds bad
    """

    def __init__(self, fails: int = 0, refuses: Sequence[int] = (), error: CkptError | None = None) -> None:
        self.events: list[tuple[str, list[int]]] = []
        self.fails = fails
        self.refuses = refuses
        self.error = error
        self.claimed: Counts | None = None
        self.found = False

    def check(self) -> None:
        raise NotImplementedError

    def store(self, task: BatchTask, dead_letters: Sequence[DeadLetter], first: int) -> None:
        if self.fails:
            self.fails -= 1
            raise self.error or IoError("the place is gone.")
        self.events.append(("kept", [dead_letter.position for dead_letter in dead_letters[first:]]))

    def dead_letters(self, sources: Iterable[AttemptKey]) -> Iterator[StoredDeadLetter]:
        raise NotImplementedError

    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        assert content.dead_letters == []
        bad = [at for at in content.rows.column(ROW_NUMBER).to_pylist() if at in self.refuses]
        if bad:
            return Refused(dict.fromkeys(bad, BAD))
        self.claimed = checked_counts(content, task, QUEUE)
        self.events.append(("claimed", content.rows.column(ROW_NUMBER).to_pylist()))
        receipt = Receipt(
            task.key, task.range, Verdict.DELIVERED, 1, task.attempt, self.claimed, datetime(2026, 1, 1, tzinfo=UTC)
        )
        return Outcome(task.key, task.attempt, AttemptOutcome.DELIVERED, receipt, receipt_existed=self.found)

    def close(self) -> None:
        self.events.append(("closed", []))


def content(rows: int = 4, dead_letters: Sequence[int] = (8, 9)) -> BatchContent:
    """Rows from position 0, and letters of the transform."""
    table = pa.table({ROW_NUMBER: pa.array(range(rows), pa.int64())})
    wrong = [DeadLetter(position, None, b"{", WRONG) for position in dead_letters]
    return BatchContent(table, wrong, rows + len(dead_letters) + 1, 1)


def originals(errors: Mapping[int, ErrorInfo]) -> list[DeadLetter]:
    """As a lane makes them of refused rows."""
    return [DeadLetter(position, None, b"row", error) for position, error in errors.items()]


def deliver(journal: Journal, content: BatchContent) -> Outcome:
    """Deliver a batch as a lane does."""
    return LaneWriter(WriterWithDeadLetterStore(journal, journal, QUEUE), originals).deliver(TASK, content)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, none of which takes time."""
    found: list[float] = []
    monkeypatch.setattr("time.sleep", found.append)
    return found


def test_letters_are_kept_before_the_claim_and_the_sink_gets_their_number() -> None:
    journal = Journal()

    outcome = deliver(journal, content())

    assert journal.events == [("kept", [8, 9]), ("claimed", [0, 1, 2, 3])]
    assert journal.claimed == Counts(7, 4, 1, 2)
    assert outcome.dead_letters == {"MessageDeserialization": 2}


def test_a_batch_without_letters_does_not_touch_the_box() -> None:
    journal = Journal(fails=99)

    outcome = deliver(journal, content(dead_letters=()))

    assert journal.events == [("claimed", [0, 1, 2, 3])]
    assert outcome.dead_letters == {}


def test_what_the_sink_refuses_is_kept_too_and_the_rest_is_claimed_after_that() -> None:
    journal = Journal(refuses=[1, 3])

    outcome = deliver(journal, content())

    assert journal.events == [("kept", [8, 9]), ("kept", [1, 3]), ("claimed", [0, 2])]
    assert journal.claimed == Counts(7, 2, 1, 4)
    assert outcome.dead_letters == {"MessageDeserialization": 2, "Sink": 2}


def test_a_letter_that_cannot_be_kept_is_tried_again_a_second_apart(pauses: list[float]) -> None:
    journal = Journal(fails=3)

    outcome = deliver(journal, content())

    assert pauses == [1.0, 1.0, 1.0]
    assert outcome.outcome is AttemptOutcome.DELIVERED


@pytest.mark.parametrize(
    "error", [IoError("full.", is_outage=True), SinkError("gone", sqlstate="08006", recoverable=True)]
)
def test_one_that_cannot_be_kept_at_all_halts_and_nothing_is_claimed(error: CkptError, pauses: list[float]) -> None:
    journal = Journal(fails=4, error=error)

    with pytest.raises(DeadLetterQueueError, match="could not be stored, so nothing of it was sent") as caught:
        deliver(journal, content())

    assert caught.value.info.type is ErrorType.DEAD_LETTER_QUEUE
    assert (caught.value.batch, caught.value.position) == ("p#0", 8)
    assert not caught.value.is_outage
    assert journal.events == []
    assert len(pauses) == 3


def test_a_receipt_that_was_there_before_says_nothing_of_this_attempts_letters() -> None:
    journal = Journal()
    journal.found = True

    assert deliver(journal, content()).dead_letters == {}


def test_a_fence_is_passed_on() -> None:
    class Fenced(Journal):
        def deliver(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
            raise FencedError("a newer epoch")

    journal = Fenced()
    with pytest.raises(FencedError):
        deliver(journal, content())


def test_closing_lets_go_of_both() -> None:
    writer, box = Journal(), Journal()

    WriterWithDeadLetterStore(writer, box, QUEUE).close()

    assert (writer.events, box.events) == ([("closed", [])], [("closed", [])])
