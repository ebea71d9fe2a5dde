"""Test a sink's verdicts, dead letters, replays and lists of source files: a part of the conformance suite."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock

from airflow_provider_ckpt.connectors.dead_letter_lookup import read_dead_letters
from airflow_provider_ckpt.connectors.file_lists import FileList
from airflow_provider_ckpt.connectors.source_plan import SourceFile
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.dead_letters import AttemptKey, DeadLetters
from airflow_provider_ckpt.core.receipt import Counts, Verdict
from airflow_provider_ckpt.core.replay_content import Replay
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.testing import shared_position as shared
from airflow_provider_ckpt.testing.sink_harness import (
    BAD,
    NOT_UTF8,
    SIZE,
    Run,
    SinkHarness,
    StoredDeadLetter,
    all_rejected,
    content,
    ids,
    no_records,
    task,
)


class DeadLetterConformance:
    """Conformance tests of verdicts, dead letters, replays and source files; a part of :class:`SinkConformance`."""

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
            outcome = run.take_over().send(task(0, instruction=Instruction.VOID), no_records())

            assert outcome.outcome is AttemptOutcome.VOID
            assert [receipt.verdict for receipt in run.receipts()] == [Verdict.VOID]
            assert (harness.target(), harness.dead_letters(run.context)) == ([], [])

    def test_the_first_verdict_stands(self, harness: SinkHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over().send(task(0, instruction=Instruction.VOID), no_records())

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
