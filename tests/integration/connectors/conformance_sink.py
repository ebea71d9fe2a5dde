"""Conformance suite of sinks; a connector's tests subclass :class:`SinkConformance` and give it a harness.

A two-phase sink's batches are committed by the committer that the harness opens; the tests see no difference.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Any, Self
from unittest.mock import Mock

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter
from airflow_provider_ckpt.connectors.dead_letter_lookup import read_dead_letters
from airflow_provider_ckpt.connectors.file_lists import FileList
from airflow_provider_ckpt.connectors.row_filter import without_refused
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, Committer, Refused, Sink, SinkContext, Writer
from airflow_provider_ckpt.connectors.source_protocol import SourceFile
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letter_replay import Replay
from airflow_provider_ckpt.core.dead_letters import AttemptKey, DeadLetters
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType, FencedError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, KnownReceipts, Receipt, Verdict
from airflow_provider_ckpt.core.wave import BatchTask, Outcome
from airflow_provider_ckpt.spark import columns as c
from tests.integration.connectors import shared_position as shared
from tests.lane_writer import LaneWriter

LEDGER = "7a1f9c1e-0000-4000-8000-000000000001"
OTHER_LEDGER = "7a1f9c1e-0000-4000-8000-000000000002"
SIZE = 10
NOT_UTF8 = b"\xff\x00 not text"
BAD = ErrorInfo(ErrorType.MESSAGE_DESERIALIZATION, "not JSON: \x00")


@dataclass(frozen=True)
class StoredDeadLetter:
    """A dead letter, as someone who looks for it finds it."""

    seq: int
    position: int
    key: bytes | None
    value: bytes | None
    error_type: str


class SinkHarness(ABC):
    """A sink with an empty target that has one integer column, ``id``.

    :ivar refused: an id that the target does not take, if there is one
    """

    refused: Sequence[int | None] = ()

    @abstractmethod
    def sink(self, context: SinkContext) -> Sink:
        """The controlling half."""

    @abstractmethod
    def writer(self, context: SinkContext) -> Writer:
        """The writing half."""

    def committer(self, context: SinkContext) -> Committer | None:
        """The second phase, of a two-phase sink."""
        return None

    @abstractmethod
    def target(self) -> list[int]:
        """The ids in the target, sorted, with repetitions."""

    @abstractmethod
    def dead_letters(self, context: SinkContext) -> list[StoredDeadLetter]:
        """The pipeline's dead letters that count, by position."""


class OutOfMemory(Mapping[str, str]):
    """A dead letter's headers that take the last memory when they are looked at, in the middle of the batch."""

    def __getitem__(self, name: str) -> str:
        raise MemoryError

    def __iter__(self) -> Iterator[str]:
        raise MemoryError

    def __len__(self) -> int:
        raise MemoryError


class Run:
    """A process that holds an epoch of a pipeline."""

    def __init__(self, harness: SinkHarness, epoch: int, ledger: str = LEDGER, pipeline: str = "orders") -> None:
        self._closing = ExitStack()
        self.context = SinkContext(ledger, pipeline, epoch)
        self.sink = self._closing.enter_context(closing(harness.sink(self.context)))
        self.writer = self._closing.enter_context(closing(harness.writer(self.context)))
        self._committer = harness.committer(self.context)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def take_over(self) -> Self:
        """Check the sink, create its bookkeeping and raise its fence."""
        self.sink.check()
        self.sink.create_bookkeeping()
        self.sink.fence(self.context.epoch)
        return self

    def send(self, task: BatchTask, content: BatchContent) -> Outcome:
        """Deliver one batch, to its verdict."""
        return self.commit(LaneWriter(self.writer, originals).deliver(task, content))

    def commit(self, outcome: Outcome) -> Outcome:
        """The outcome of a batch, after the second phase if there is one."""
        if outcome.outcome is not AttemptOutcome.STAGED:
            return outcome
        assert self._committer is not None
        (final,) = self._committer.commit([outcome])
        return final

    def receipts(self, known: Mapping[str, KnownReceipts] | None = None) -> list[Receipt]:
        """The sink's receipts."""
        return list(self.sink.receipts(known or {}))


def task(
    seq: int,
    *,
    attempt: int = 1,
    generation: int = 1,
    partition: str = "main",
    instruction: Instruction = Instruction.DELIVER,
) -> BatchTask:
    """Batch ``seq``: ten positions."""
    error = ErrorInfo(ErrorType.RETRY_EXHAUSTED, "given up") if instruction is Instruction.REJECT else None
    span = Range(seq * SIZE, (seq + 1) * SIZE)
    return BatchTask(BatchKey(generation, partition, seq), span, attempt, instruction, 1000, error=error)


def ids(*seqs: int) -> list[int]:
    """The ids of whole batches."""
    return [number for seq in seqs for number in range(seq * SIZE, (seq + 1) * SIZE)]


def dead_letter(position: int, error: ErrorInfo = BAD) -> DeadLetter:
    """A dead letter whose bytes are no text."""
    return DeadLetter(position, b"k\x00", NOT_UTF8 + str(position).encode(), error, {"source-file": "a\x00b"})


def content(seq: int, *, rejected: int = 0, filtered: int = 0) -> BatchContent:
    """The ten records of a batch: the first ones rejected, then some filtered, the rest to deliver."""
    positions = ids(seq)
    rows = pa.array(positions[rejected + filtered :], pa.int64())
    dead_letters = [dead_letter(position) for position in positions[:rejected]]
    return BatchContent(pa.table({ROW_NUMBER: rows, "id": rows}), dead_letters, SIZE, filtered)


def all_rejected(seq: int) -> BatchContent:
    """All records of a batch as dead letters."""
    return content(seq, rejected=SIZE)


def nothing() -> BatchContent:
    """No record at all."""
    empty = pa.array([], pa.int64())
    return BatchContent(pa.table({ROW_NUMBER: empty, "id": empty}), [], 0, 0)


def originals(errors: Mapping[int, ErrorInfo]) -> list[DeadLetter]:
    return [dead_letter(position, error) for position, error in errors.items()]


class SinkConformance(ABC):
    """The suite."""

    @pytest.fixture
    @abstractmethod
    def harness(self, *args: Any) -> SinkHarness:
        """The connector, on an empty target."""

    def test_a_new_sink_holds_no_claims(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.sink.check()

            assert run.sink.claims().epoch == 0
            assert run.sink.claims().ledgers == frozenset()
            assert run.receipts() == []

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
            outcome = run.take_over().send(task(0), nothing())

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
            broken.dead_letters[0] = replace(broken.dead_letters[0], headers=OutOfMemory())

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

    def test_dead_letters_carry_the_original_bytes(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over().send(task(3), content(3, rejected=2))

            assert harness.dead_letters(run.context) == [
                StoredDeadLetter(3, 30, b"k\x00", NOT_UTF8 + b"30", "MessageDeserialization"),
                StoredDeadLetter(3, 31, b"k\x00", NOT_UTF8 + b"31", "MessageDeserialization"),
            ]

    def test_dead_letters_are_read_back_by_the_attempts_that_receipts_name(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over()
            for seq in (0, 1, 2):
                run.send(task(seq, attempt=2), content(seq, rejected=seq))
        with Run(harness, 2) as run:
            sources = [AttemptKey(task(seq).key, 2, 1) for seq in (2, 1, 0)]

            found = list(run.take_over().sink.dead_letters(sources))

            assert [(kept.source, kept.dead_letter.position) for kept in found] == [
                (sources[0], 20),
                (sources[0], 21),
                (sources[1], 10),
            ]
            kept = found[0].dead_letter
            assert (kept.key, kept.value) == (b"k\x00", NOT_UTF8 + b"20")
            assert (kept.error.type, kept.error.sqlstate) == (BAD.type, None)
            assert kept.error.message.startswith("not JSON: ")
            assert "source-file" in kept.headers
            assert found[0].at.utcoffset() is not None

    def test_the_letters_of_several_attempts_are_asked_for_at_once(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over()
            for seq in range(3):
                run.send(task(seq), content(seq, rejected=3))
            asked = Mock(wraps=run.sink)
            runs = [(2, 0, 1), (2, 2, 1), (0, 1, 2), (1, 0, 3)]
            wanted = [DeadLetters(task(seq).key, str(BAD.type), first, records, 1, 1) for seq, first, records in runs]

            found = list(read_dead_letters(asked, wanted))

            assert [dead_letters for dead_letters, _ in found] == wanted
            assert [[item.dead_letter.position for item in items] for _, items in found] == [
                [20],
                [22],
                [1, 2],
                [10, 11, 12],
            ]
            asked.dead_letters.assert_called_once()

    def test_an_attempt_that_no_receipt_names_has_no_letters(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over().send(task(0), content(0, rejected=1))

            assert list(run.sink.dead_letters([AttemptKey(task(0).key, 2, 1), AttemptKey(task(0).key, 1, 9)])) == []
            assert list(run.sink.dead_letters([AttemptKey(task(0, partition="other").key, 1, 1)])) == []

    def test_a_replay_is_kept_for_a_ledger_that_is_lost(self, harness: SinkHarness) -> None:
        dead_letters = DeadLetters(task(0, partition="a/b").key, "Sink", 2, 5, 1, 1)
        kept, forgotten = Replay((dead_letters,)), Replay((dead_letters, dead_letters), newest_first=True)
        with Run(harness, 1) as run:
            assert run.take_over().sink.replays(["dlq:2:a/b"]) == {}
            run.sink.store_replay("dlq:2:a/b", forgotten)
            run.sink.store_replay("dlq:2:a/b", kept)
            run.sink.store_replay("dlq:3:a/b", forgotten)
        with Run(harness, 2) as run, Run(harness, 1, pipeline="invoices") as other:
            assert run.sink.replays(["dlq:2:a/b", "dlq:4:a/b"]) == {"dlq:2:a/b": kept}
            assert other.sink.replays(["dlq:2:a/b"]) == {}

    def test_lists_of_source_files_are_kept_for_a_ledger_that_is_restored(self, harness: SinkHarness) -> None:
        files = tuple(
            SourceFile(number, f"/in/é {number}.jsonl", number * 10, 10, f"{number}-10-7") for number in (0, 1)
        )
        later = SourceFile(2, "/in/\\'\".jsonl", 20, 2**40, "3-4-5")
        first, other, second = FileList(1, files, start=10), FileList(2, files[::-1][:1]), FileList(2, (later,))
        with Run(harness, 1) as run:
            assert run.take_over().sink.stored_file_lists(0) == []
            run.sink.store_file_list(first)
            run.sink.store_file_list(first)
        with Run(harness, 2) as run, Run(harness, 1, pipeline="invoices") as stranger:
            run.take_over()
            run.sink.store_file_list(second)
            run.sink.store_file_list(other)
            assert {kept.name: kept for kept in run.sink.stored_file_lists(0)} == {
                "files:0:1": first,
                "files:1:2": other,
                "files:2:2": second,
            }
            assert run.sink.stored_file_lists(2) == [second]
            assert list(run.sink.stored_file_lists(3)) == list(stranger.sink.stored_file_lists(0)) == []

    def test_of_records_that_share_a_position_each_has_its_own_fate(self, harness: SinkHarness) -> None:
        refused = len(harness.refused)
        verdicts = [None, c.FILTERED, shared.REJECTED, None, None, None]
        ids = {0: 0, 4: harness.refused[0] if refused else 4, 5: 5}
        with Run(harness, 1) as run:
            job = shared.job(harness.sink, harness.writer, run.context, len(verdicts), ids)

            outcome = run.take_over().commit(shared.send(job, task(0), verdicts))

            assert outcome.receipt is not None
            assert outcome.receipt.counts == Counts(6, delivered=3 - refused, filtered=1, dead_lettered=2 + refused)
            assert harness.target() == ([0, 5] if refused else [0, 4, 5])
            left = shared.kept(run.sink, AttemptKey(task(0).key, 1, 1))
            assert left == [(shared.AT, number) for number in (2, 3, 4)[: 2 + refused]]

            again = shared.replay(task(0), outcome.dead_letters, epoch=1)
            whole = replace(job, ids={number: number for number in range(6)})
            outcome = run.commit(shared.send(whole, again, [None] * len(left)))

            assert outcome.receipt is not None
            assert outcome.receipt.counts == Counts(len(left), len(left))
            assert harness.target() == [0, 2, 3, 4, 5]

    def test_a_rejected_batch_is_all_dead_letters(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            outcome = run.take_over().send(task(0, instruction=Instruction.REJECT), all_rejected(0))

            assert outcome.outcome is AttemptOutcome.REJECTED
            (receipt,) = run.receipts()
            assert receipt.verdict is Verdict.REJECTED
            assert receipt.counts == Counts(SIZE, 0, 0, SIZE)
            assert [stored.position for stored in harness.dead_letters(run.context)] == ids(0)
            assert harness.target() == []

    def test_a_void_batch_leaves_a_receipt_alone(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            outcome = run.take_over().send(task(0, instruction=Instruction.VOID), nothing())

            assert outcome.outcome is AttemptOutcome.VOID
            assert [receipt.verdict for receipt in run.receipts()] == [Verdict.VOID]
            assert (harness.target(), harness.dead_letters(run.context)) == ([], [])

    def test_the_first_verdict_stands(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over().send(task(0, instruction=Instruction.VOID), nothing())

            outcome = run.send(task(0, attempt=2), content(0))

            assert outcome.receipt_existed
            assert outcome.outcome is AttemptOutcome.VOID
            assert harness.target() == []

    def test_never_delivered_and_dead_lettered(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over().send(task(0), content(0))

            outcome = run.send(task(0, attempt=2, instruction=Instruction.REJECT), all_rejected(0))

            assert outcome.outcome is AttemptOutcome.DELIVERED
            assert harness.dead_letters(run.context) == []

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

    def test_many_batches_go_through_one_writer(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over()
            outcomes: Sequence[Outcome] = [run.send(task(seq), content(seq, rejected=seq % 2)) for seq in range(6)]

            assert Counter(outcome.outcome for outcome in outcomes) == {AttemptOutcome.DELIVERED: 6}
            assert harness.target() == [number for number in ids(*range(6)) if number not in (10, 30, 50)]
            assert [receipt.key.seq for receipt in run.receipts()] == list(range(6))
            assert run.sink.target_rows() in (57, None)


class RefusingSinkConformance(SinkConformance):
    """The suite for a target that refuses a row: one whose id is the harness's first refused one."""

    def partly_refused(self, harness: SinkHarness, seq: int = 0) -> BatchContent:
        """A batch whose second row is refused."""
        whole = content(seq)
        values = [*ids(seq)[:1], harness.refused[0], *ids(seq)[2:]]
        return replace(whole, rows=whole.rows.set_column(1, "id", pa.array(values, pa.int64())))

    def test_refused_rows_are_named_and_nothing_is_committed(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            refused = run.take_over().writer.deliver(task(0), self.partly_refused(harness))

            assert isinstance(refused, Refused)
            assert [(number, error.type) for number, error in refused.errors.items()] == [(1, ErrorType.SINK)]
            assert (harness.target(), run.receipts()) == ([], [])

    def test_the_others_are_delivered_with_a_dead_letter_of_each(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            outcome = run.take_over().send(task(0), self.partly_refused(harness))

            assert (outcome.outcome, outcome.dead_letters) == (AttemptOutcome.DELIVERED, {"Sink": 1})
            (receipt,) = run.receipts()
            assert (receipt, receipt.counts) == (outcome.receipt, Counts(10, 9, 0, 1))
            assert harness.target() == [0, *ids(0)[2:]]
            assert [stored.position for stored in harness.dead_letters(run.context)] == [1]

    def test_the_others_are_delivered_where_refused_rows_are_skipped(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            given = self.partly_refused(harness)
            refused = run.take_over().writer.deliver(task(0), given)
            assert isinstance(refused, Refused)

            outcome = run.send(task(0), without_refused(given, refused.errors, [], skipped=1))

            assert (outcome.outcome, outcome.dead_letters) == (AttemptOutcome.DELIVERED, {})
            (receipt,) = run.receipts()
            assert (receipt, receipt.counts) == (outcome.receipt, Counts(10, 9, 1, 0))
            assert harness.target() == [0, *ids(0)[2:]]

    def test_a_refused_batch_that_is_given_up_leaves_nothing_with_the_next_one(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            assert isinstance(run.take_over().writer.deliver(task(0), self.partly_refused(harness)), Refused)

            after = run.send(task(1, partition="other"), content(1))

            assert after.outcome is AttemptOutcome.DELIVERED
            assert harness.target() == ids(1)
            assert [receipt.key for receipt in run.receipts()] == [after.key]

    def test_a_refused_batch_that_comes_with_other_rows_than_the_rest_holds_these(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            assert isinstance(run.take_over().writer.deliver(task(0), self.partly_refused(harness)), Refused)

            outcome = run.send(task(0), content(0, filtered=5))

            assert outcome.receipt is not None
            assert outcome.receipt.counts == Counts(10, 5, 5, 0)
            assert harness.target() == ids(0)[5:]

    def test_a_refused_batch_is_rolled_back_when_its_writer_is_closed(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            assert isinstance(run.take_over().writer.deliver(task(0), self.partly_refused(harness)), Refused)

            run.writer.close()

            assert (harness.target(), run.receipts()) == ([], [])
            with Run(harness, 2) as new:
                assert not new.take_over().send(task(0, attempt=2), content(0)).receipt_existed
            assert harness.target() == ids(0)
