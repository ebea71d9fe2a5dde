"""The delta sink's commit under attack: interruptions at every step, and races."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.delta.version import DeltaVersion
from airflow_provider_ckpt.connectors.two_phase import receipts
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import FencedError, SinkError
from tests.integration.connectors.delta.delta_support import (
    Killed,
    Run,
    after,
    before,
    data_files,
    expected,
    ids,
    kill,
    logged_files,
    once,
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "flights"


# Where a committing process can die: the module, the name, and whether its effect has happened by then.
STEPS = [
    (delta_table, "create", False),
    (delta_table, "create", True),
    (receipts, "write_durably", False),
    (receipts, "write_durably", True),
    (delta_table, "commit", False),
    (delta_table, "commit", True),
    (DeltaVersion, "refuse_unless_current", False),
    (DeltaVersion, "refuse_unless_current", True),
]


class TestInterruptions:
    @pytest.mark.parametrize(
        ("module", "name", "done", "existing"),
        [(*step, existing) for step in STEPS for existing in (False, True) if not (existing and step[1] == "create")],
    )
    def test_a_commit_killed_anywhere_is_settled_by_the_next_run(
        self, table: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, done: bool, existing: bool
    ) -> None:
        first = Run(table, epoch=1).fence()
        if existing:
            first.send(0)
        staged = first.stage(1, 2)
        with monkeypatch.context() as patch:
            real = getattr(module, name)
            patch.setattr(module, name, after(real, kill) if done else kill)
            with pytest.raises(Killed):
                first.committer.commit(staged)

        second = Run(table, epoch=2).fence()
        known = set(second.receipted)
        again = second.send(1, 2)

        assert known - {0} in (set(), {1, 2})  # a wave is committed whole or not at all
        assert [outcome.found for outcome in again] == [seq in known for seq in (1, 2)]
        assert set(second.receipted) == {1, 2} | ({0} if existing else set())
        assert ids(table) == expected(1, 2, *([0] if existing else []))

    def test_an_error_after_the_commit_is_a_commit(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = Run(table).fence()
        run.send(0)

        def fail() -> None:
            raise DeltaError("the checkpoint could not be written")

        monkeypatch.setattr(delta_table, "commit", after(delta_table.commit, fail))
        (outcome,) = run.send(1)

        assert (outcome.outcome, outcome.found) == (AttemptOutcome.DELIVERED, False)
        assert ids(table) == expected(0, 1)

    def test_an_error_instead_of_the_commit_fails_the_batch_and_keeps_its_files(
        self, table: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(table).fence()
        run.send(0)

        def fail(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(delta_table, "commit", fail)
            (outcome,) = run.send(1)
        orphans = data_files(table) - logged_files(table)
        (again,) = run.send(1)

        assert outcome.outcome is AttemptOutcome.FAILED
        assert outcome.error is not None
        assert outcome.error.whole
        assert len(orphans) == 1  # its fate was unknown
        assert again.outcome is AttemptOutcome.DELIVERED
        assert ids(table) == expected(0, 1)

    def test_committing_the_same_outcomes_twice_commits_once(self, table: Path) -> None:
        run = Run(table).fence()
        staged = run.stage(0, 1)
        run.committer.commit(staged)

        again = run.committer.commit(staged)

        assert [(outcome.outcome, outcome.found) for outcome in again] == [(AttemptOutcome.DELIVERED, True)] * 2
        assert ids(table) == expected(0, 1)
        assert data_files(table) == logged_files(table)

    def test_twins_of_one_batch_in_one_wave_deliver_once(self, table: Path) -> None:
        run = Run(table).fence()

        outcomes = run.committer.commit([*run.stage(0, 1), *run.stage(0)])

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.DELIVERED] * 3
        assert [outcome.found for outcome in outcomes] == [False, False, True]
        assert ids(table) == expected(0, 1)
        assert data_files(table) == logged_files(table)

    def test_a_staged_file_that_is_gone_fails_its_batch_alone(self, table: Path) -> None:
        run = Run(table).fence()
        staged = run.stage(0, 1)
        (table / staged[0].staged["files"][0]["path"]).unlink()  # type: ignore[index]

        outcomes = run.committer.commit(staged)

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.FAILED, AttemptOutcome.DELIVERED]
        assert ids(table) == expected(1)


class TestRaces:
    def test_two_committers_of_one_epoch_deliver_once(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one, two = Run(table).fence(), Run(table)
        one.send(9)
        mine, theirs = one.stage(0, 1), two.stage(1, 2)
        with monkeypatch.context() as patch:
            rival = once(lambda: two.committer.commit(theirs))
            patch.setattr(delta_table, "commit", before(delta_table.commit, rival))
            outcomes = one.committer.commit(mine)

        assert [outcome.found for outcome in outcomes] == [False, True]
        assert one.receipted == [0, 1, 2, 9]
        assert ids(table) == expected(0, 1, 2, 9)
        assert len(data_files(table) - logged_files(table)) == 1  # a commit named it once, so it may be part of one

    def test_two_creators_make_one_table(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one, two = Run(table).fence(), Run(table)
        mine, theirs = one.stage(0), two.stage(1)
        with monkeypatch.context() as patch:
            rival = once(lambda: two.committer.commit(theirs))
            patch.setattr(delta_table, "create", before(delta_table.create, rival))
            one.committer.commit(mine)

        assert ids(table) == expected(0, 1)
        assert one.receipted == [0, 1]

    def test_a_foreign_writer_in_between_costs_a_turn(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = Run(table).fence()
        run.send(0)

        def foreign() -> None:
            handle = DeltaTable(table)
            handle.create_write_transaction([], "append", handle.schema())

        monkeypatch.setattr(delta_table, "commit", before(delta_table.commit, once(foreign)))

        assert run.send(1)[0].outcome is AttemptOutcome.DELIVERED
        assert ids(table) == expected(0, 1)

    def test_a_table_that_is_never_quiet_is_an_outage_once_the_time_budget_is_over(
        self, table: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(table, time_budget="1s").fence()
        run.send(0)

        def foreign() -> None:
            handle = DeltaTable(table)
            handle.create_write_transaction([], "append", handle.schema())

        monkeypatch.setattr(delta_table, "commit", before(delta_table.commit, foreign))
        (outcome,) = run.send(1)

        assert outcome.outcome is AttemptOutcome.FAILED
        assert outcome.error is not None
        assert (outcome.error.recoverable, outcome.error.whole) == (True, True)
        with pytest.raises(SinkError, match="other writers took every version"):
            run.sink.fence(2)


class TestFilesOfCommits:
    def test_a_commit_whose_answer_was_lost_keeps_its_files_when_the_table_is_made_anew(
        self, table: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The commit takes effect, its log is set aside, and a newer run takes over a table made anew."""
        run = Run(table).fence()
        run.send(0)
        aside = table.with_name("log")
        real = delta_table.commit

        def lost(*arguments: Any) -> None:
            real(*arguments)
            monkeypatch.setattr(delta_table, "commit", real)
            schema = DeltaTable(table).schema()
            (table / "_delta_log").rename(aside)
            DeltaTable.create(table, schema)
            newer = Run(table, epoch=2).fence()
            newer.send(2)
            newer.send(3)
            raise DeltaError("timed out")

        staged = run.stage(1)
        monkeypatch.setattr(delta_table, "commit", lost)
        with pytest.raises(FencedError):
            run.committer.commit(staged)

        shutil.rmtree(table / "_delta_log")
        aside.rename(table / "_delta_log")
        assert ids(table) == expected(0, 1)
