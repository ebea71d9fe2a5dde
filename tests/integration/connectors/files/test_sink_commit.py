"""The files sink survives kills between stage, marker and rename, two writers at once, and writers of older epochs."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from airflow_provider_ckpt.connectors.files import fence as files_gate
from airflow_provider_ckpt.connectors.files import receipts as files_receipts
from airflow_provider_ckpt.connectors.files import sink as files_sink
from airflow_provider_ckpt.connectors.files import staging as files_staged
from airflow_provider_ckpt.connectors.files.layout import parse_file_name
from airflow_provider_ckpt.connectors.files.sink import FilesSink
from airflow_provider_ckpt.connectors.files.writer import FilesWriter
from airflow_provider_ckpt.connectors.sink_protocol import Claims, SinkContext
from airflow_provider_ckpt.connectors.storage.filesystem import make_private_directory
from airflow_provider_ckpt.connectors.storage.local import LocalLocation
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import FencedError
from airflow_provider_ckpt.core.receipt import KnownReceipts
from airflow_provider_ckpt.core.wave_messages import Outcome
from tests.integration.connectors.batches import LEDGER, SIZE, content, expected, task
from tests.integration.connectors.files.files_sink_support import Run, ids, own, pipeline, visible
from tests.integration.connectors.interruptions import Killed, after, before, kill, once


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "out"


# Where a delivering process can die: whose name, and whether its effect has happened by then.
DELIVERING = [
    (module, name, done)
    for module, name in [
        (LocalLocation, "write"),
        (files_staged, "write_rows"),
        (files_staged, "sync_directory"),
        (files_receipts, "_write_new"),
        (os, "link"),
        (files_receipts, "sync_directory"),
        (Path, "unlink"),
        (Path, "rename"),
    ]
    for done in (False, True)
]
TAKING_OVER = [
    (module, name, done)
    for module, name in [
        (files_gate, "make_private_directory"),
        (files_gate, "_remove_directory"),
        (files_sink, "fence"),
        (Path, "rename"),
        (files_staged, "discard"),
        (files_sink, "sweep"),
        (files_receipts, "write_durably"),
        (Path, "unlink"),
        (files_staged, "sync_directory"),
    ]
    for done in (False, True)
]


def die_at(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, *, done: bool) -> None:
    real = getattr(module, name)
    monkeypatch.setattr(module, name, after(real, kill) if done else kill)


class TestInterruptions:
    @pytest.mark.parametrize(("module", "name", "done"), DELIVERING)
    def test_a_batch_killed_anywhere_is_settled_by_the_next_run(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, done: bool
    ) -> None:
        first = Run(directory, epoch=1).fence()
        first.send(0)
        with monkeypatch.context() as patch:
            die_at(patch, module, name, done=done)
            with pytest.raises(Killed):
                first.send(1, bad=2)
        seen = ids(directory)

        second = Run(directory, epoch=2).fence()
        known = second.receipted()
        told = ids(directory)
        (again,) = second.send(1, attempt=2, bad=2)

        claimed = DELIVERING.index((module, name, done)) >= DELIVERING.index((os, "link", True))
        assert (1 in known) == claimed
        assert seen in (expected(0), expected(0, 1)[:SIZE] + expected(1)[2:])
        assert told == expected(0) + (expected(1)[2:] if 1 in known else [])
        assert again.outcome is AttemptOutcome.DELIVERED
        assert again.receipt_existed == (1 in known)
        assert again.receipt is not None
        assert len(list(second.sink.dead_letters([_source(again)]))) == 2
        assert ids(directory) == expected(0) + expected(1)[2:]
        assert (second.receipted(), own(directory, "staged")) == ([0, 1], [])
        assert len(visible(directory)) == 2

    @pytest.mark.parametrize(("module", "name", "done"), TAKING_OVER)
    def test_a_takeover_killed_anywhere_is_finished_by_the_next(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, done: bool
    ) -> None:
        first = Run(directory, epoch=1).fence()
        first.send(0)
        for step in ((os, "link", False), (os, "link", True)):  # one batch staged in vain, one claimed and not renamed
            with monkeypatch.context() as patch:
                die_at(patch, *step[:2], done=step[2])
                with pytest.raises(Killed):
                    first.send(2 if step[2] else 1)
        with monkeypatch.context() as patch:
            die_at(patch, module, name, done=done)
            with pytest.raises(Killed):
                Run(directory, epoch=2).sink.fence(2)

        third = Run(directory, epoch=3).fence()

        assert (third.receipted(), ids(directory)) == ([0, 2], expected(0, 2))
        assert (own(directory, "staged"), own(directory, "receipts"), own(directory, "epochs")) == ([], [], ["3"])
        assert [outcome.receipt_existed for outcome in third.send(0, 1, 2, attempt=2)] == [True, False, True]
        assert ids(directory) == expected(0, 1, 2)

    def test_what_a_dead_lane_claimed_is_visible_once_its_receipt_is_read(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(directory).fence()
        with monkeypatch.context() as patch:
            die_at(patch, os, "link", done=True)
            with pytest.raises(Killed):
                run.send(0)
        assert ids(directory) == []

        assert run.receipted() == [0]
        assert ids(directory) == expected(0)

    def test_what_a_lane_is_about_to_claim_is_left_alone_by_who_reads_receipts(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(directory).fence()
        monkeypatch.setattr(os, "link", before(os.link, once(run.receipted)))

        assert run.send(0)[0].outcome is AttemptOutcome.DELIVERED
        assert ids(directory) == expected(0)

    def test_rows_that_a_reader_took_away_are_not_missed(self, directory: Path) -> None:
        run = Run(directory, files_may_go=True).fence()
        run.send(0)
        (file,) = visible(directory)
        file.unlink()

        assert run.sink.claims().loss_evidence is None
        second = Run(directory, epoch=2, files_may_go=True).fence()
        assert (second.receipted(), second.send(0)[0].receipt_existed, ids(directory)) == ([0], True, [])

    def test_rows_that_went_though_nobody_may_take_them_are_told_and_can_be_sent_again(self, directory: Path) -> None:
        run = Run(directory).fence()
        run.send(0, 1, 2)
        first, second, third = (task(number).key for number in range(3))
        for file in visible(directory)[:2]:
            file.unlink()

        assert "2 files of delivered batches, such as ckpt-" in (run.sink.claims().loss_evidence or "")
        assert run.sink.batches_without_receipt([first, second, third]) == [first, second]
        assert run.receipted() == [2]
        later = Run(directory, epoch=2).fence()
        assert (later.sink.claims().loss_evidence, later.receipted()) == (None, [2])
        assert [outcome.receipt_existed for outcome in later.send(0, 1, 2)] == [False, False, True]
        assert ids(directory) == expected(0, 1, 2)

    def test_rows_of_an_ended_epoch_that_went_are_told_too(self, directory: Path) -> None:
        Run(directory).fence().send(0, 1)
        Run(directory, epoch=2).fence()
        visible(directory)[0].unlink()
        idle = Run(directory, epoch=3)

        assert "the file of delivered batches" in (idle.sink.claims().loss_evidence or "")
        assert idle.sink.batches_without_receipt([task(0).key, task(1).key]) == [task(0).key]
        idle.fence()
        assert (idle.sink.claims().loss_evidence, idle.receipted()) == (None, [1])
        assert [outcome.receipt_existed for outcome in idle.send(0, 1)] == [False, True]

    def test_what_is_cleaned_between_claim_and_rename_is_never_called_delivered(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(directory).fence()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", before(Path.rename, once(lambda: _clean(directory))))
            (outcome,) = run.send(0)

        assert outcome.outcome is AttemptOutcome.FAILED
        assert outcome.error is not None
        assert outcome.error.is_outage
        assert "was removed as soon as it was written" in outcome.error.message
        assert (run.receipted(), run.sink.batches_without_receipt([task(0).key])) == ([], [task(0).key])
        assert run.sink.claims().lost_batches == {task(0).key}
        second = Run(directory, epoch=2).fence()
        assert [outcome.receipt_existed for outcome in second.send(0)] == [False]
        assert ids(directory) == expected(0)

    def test_what_is_cleaned_after_a_lane_died_is_not_taken_for_delivered(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(directory).fence()
        run.send(0)
        with monkeypatch.context() as patch:
            die_at(patch, Path, "rename", done=False)
            with pytest.raises(Killed):
                run.send(1)
        assert run.sink.batches_without_receipt([task(1).key]) == []  # whoever reads receipts finishes it
        _clean(directory)

        assert "the file of delivered batches" in (run.sink.claims().loss_evidence or "")
        assert run.receipted() == [0]
        assert Run(directory, epoch=2).fence().send(1)[0].receipt_existed is False
        assert ids(directory) == expected(0, 1)


class TestIdentity:
    def test_a_directory_keeps_its_id_and_one_made_anew_has_another(self, directory: Path) -> None:
        run = Run(directory)
        assert run.sink.claims().target is None
        first = run.fence().sink.claims().target
        assert first is not None
        assert Run(directory, epoch=2).fence().sink.claims().target == first

        shutil.rmtree(directory)

        assert run.sink.claims() == Claims()
        assert Run(directory, epoch=3).fence().sink.claims().target not in (None, first)

    def test_pipelines_with_names_that_look_alike_share_nothing_but_the_directory(self, directory: Path) -> None:
        names = ("a.b", "a_b", "a-b", "A.b", "_a", "5Fa", "a.b.")
        for name in names:
            context = SinkContext(LEDGER, name, 1)
            declared = pipeline(directory, name=name)
            sink, writer = FilesSink(declared, None, context), FilesWriter(declared, None, context)
            assert sink.claims().epoch == 0
            sink.fence(1)
            assert writer.deliver(task(0), content(0, bad=1)).receipt_existed is False
            assert [receipt.key.seq for receipt in sink.receipts({})] == [0]

        assert len(visible(directory)) == len(names)
        assert len(list(directory.with_name("out.dead_letters").rglob("*.jsonl"))) == len(names)


class TestRaces:
    def test_of_two_writers_at_once_one_wins_and_the_other_s_rows_are_never_seen(self, directory: Path) -> None:
        Run(directory).fence()
        writers = [Run(directory) for _ in range(4)]
        start = Barrier(len(writers))

        def deliver(run: Run) -> list[bool]:
            start.wait(30)
            return [outcome.receipt_existed for outcome in run.send(*range(5))]

        with ThreadPoolExecutor(len(writers)) as pool:
            found = list(pool.map(deliver, writers))

        assert [sum(not late for late in batch) for batch in zip(*found, strict=True)] == [1] * 5
        assert ids(directory) == expected(*range(5))
        assert len(visible(directory)) == 5
        assert own(directory, "staged") == []

    def test_a_rival_that_claims_first_has_the_batch(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one, two = Run(directory).fence(), Run(directory)
        monkeypatch.setattr(os, "link", before(os.link, once(lambda: two.send(0, attempt=2, bad=3))))

        (outcome,) = one.send(0)

        assert outcome.receipt_existed
        assert outcome.receipt is not None
        assert (outcome.receipt.attempt, outcome.receipt.counts.dead_lettered) == (2, 3)
        assert ids(directory) == expected(0)[3:]
        assert own(directory, "staged") == []

    @pytest.mark.parametrize(("module", "name"), [(files_receipts, "_write_new"), (os, "link")])
    def test_a_writer_that_is_held_up_while_another_run_takes_over_claims_nothing(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
    ) -> None:
        old = Run(directory, epoch=1).fence()
        with monkeypatch.context() as patch:
            patch.setattr(module, name, before(getattr(module, name), once(lambda: Run(directory, epoch=2).fence())))
            with pytest.raises(FencedError):
                old.send(0)
        second = Run(directory, epoch=2)

        assert (ids(directory), second.receipted()) == ([], [])
        assert [outcome.receipt_existed for outcome in second.send(0)] == [False]
        assert ids(directory) == expected(0)

    def test_of_two_that_take_over_at_once_the_newer_epoch_stays(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        late, newer = Run(directory, epoch=5), Run(directory, epoch=6)

        def held_up(path: Path) -> None:
            if path.name == "5":
                newer.fence()
            make_private_directory(path)

        monkeypatch.setattr(files_gate, "make_private_directory", held_up)
        with pytest.raises(FencedError):
            late.sink.fence(5)

        assert newer.sink.claims().epoch == 6
        assert own(directory, "epochs") == ["6"]


class TestBundles:
    def test_markers_of_an_ended_epoch_become_one_file_that_is_read_only_for_news(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for epoch, seqs in ((1, (0, 1)), (2, (2,)), (3, ()), (4, (3,))):
            Run(directory, epoch=epoch).fence().send(*seqs)
        run = Run(directory, epoch=5).fence()

        assert (own(directory, "receipts"), own(directory, "bundles")) == ([], ["2.json", "3.json", "5.json"])
        assert run.receipted() == [0, 1, 2, 3]
        assert [outcome.receipt_existed for outcome in run.send(0, 3, 4)] == [True, True, False]
        opened: list[str] = []
        monkeypatch.setattr(Path, "read_bytes", before(Path.read_bytes, lambda: opened.append("")))
        fresh = Run(directory, epoch=5)
        assert fresh.receipted({"files": KnownReceipts(1, 4 * SIZE)}) == [4]
        assert len(opened) == 3  # the newest bundle, and the one marker twice

    def test_a_bundle_tells_how_far_all_before_it_reach(self, directory: Path) -> None:
        for epoch, partition in ((1, "a"), (2, "b")):
            run = Run(directory, epoch=epoch).fence()
            run.writer.deliver(task(0, partition=partition), content(0))
        run = Run(directory, epoch=3).fence()

        assert [r.key.partition for r in run.sink.receipts({"b": KnownReceipts(1, SIZE)})] == ["a"]
        assert run.writer.deliver(task(0, partition="a"), content(0)).receipt_existed

    def test_raising_a_fence_again_keeps_what_it_bundled(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Run(directory, epoch=1).fence().send(0, 1)
        with monkeypatch.context() as patch:
            die_at(patch, Path, "unlink", done=True)
            with pytest.raises(Killed):
                Run(directory, epoch=2).sink.fence(2)
        assert len(own(directory, "receipts")) == 1

        again = Run(directory, epoch=2).fence()

        assert again.receipted() == [0, 1]

    def test_a_name_tells_its_marker_and_epoch(self, directory: Path) -> None:
        run = Run(directory, epoch=7).fence()
        with pytest.MonkeyPatch.context() as patch:
            die_at(patch, Path, "unlink", done=False)
            with pytest.raises(Killed):
                run.send(12)
        (marker,), (staged,) = own(directory, "receipts"), own(directory, "staged")

        assert staged.endswith(".jsonl.tmp")
        assert parse_file_name(staged) == (marker, 7)


def _clean(directory: Path) -> None:
    """Delete temporary files, as a clean-up job does."""
    for file in directory.rglob("*.tmp"):
        file.unlink()


def _source(outcome: Outcome) -> AttemptKey:
    assert outcome.receipt is not None
    return AttemptKey(outcome.key, outcome.receipt.attempt, outcome.receipt.epoch)
