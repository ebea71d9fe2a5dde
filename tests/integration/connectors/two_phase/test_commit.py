"""The commit of two-phase sinks survives interruptions at every step, and lost responses."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.error_policy import default_action
from airflow_provider_ckpt.core.errors import ErrorAction, FencedError
from tests.integration.connectors.batches import expected
from tests.integration.connectors.interruptions import Killed, after, kill, once
from tests.integration.connectors.two_phase.formats import PLACES
from tests.integration.connectors.two_phase.harness import Run, TableHarness

DEATHS = [
    *(
        (kind, step, done, existing)
        for kind in PLACES
        for step in ("check the fence", "write receipts", "commit")
        for done in (False, True)
        for existing in (False, True)
    ),
    ("delta", "create", False, False),
    ("delta", "create", True, False),
    ("iceberg", "write metadata", True, False),
    ("iceberg", "write metadata", True, True),
]
"""Points at which a committing process can die: the step, whether it has taken effect, and whether there are rows."""


class TestInterruptions:
    @pytest.mark.parametrize(("table", "step", "done", "existing"), DEATHS, indirect=["table"])
    def test_a_commit_killed_anywhere_is_settled_by_the_next_run(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch, step: str, done: bool, existing: bool
    ) -> None:
        first = Run(table, epoch=1).fence()
        if existing:
            first.send(0)
        staged = first.stage(1, 2)
        with monkeypatch.context() as patch:
            dies = table.steps[step]
            patch.setattr(*dies, after(dies.real, kill) if done else kill)
            with pytest.raises(Killed):
                first.commit(*staged)

        second = Run(table, epoch=2).fence()
        known = set(second.receipted)
        again = second.send(1, 2)

        assert known - {0} in (set(), {1, 2})  # a wave is committed whole or not at all
        assert [outcome.receipt_existed for outcome in again] == [seq in known for seq in (1, 2)]
        assert set(second.receipted) == {1, 2} | ({0} if existing else set())
        assert table.ids() == expected(1, 2, *([0] if existing else []))

    def test_a_loser_leaves_only_a_node_that_nobody_reads(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(table).fence()
        run.send(0)
        staged = run.stage(1)
        with monkeypatch.context() as patch:
            patch.setattr(*table.steps["commit"], kill)
            with pytest.raises(Killed):
                run.commit(*staged)

        assert len(table.nodes) == 2
        assert Run(table).receipted == [0]
        assert table.dead_letter_lines() == []

    def test_an_error_instead_of_the_commit_fails_the_batch_and_keeps_its_files(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(table).fence()
        run.send(0)

        def fail(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(*table.steps["commit"], fail)
            (outcome,) = run.send(1)
        orphans = table.files() - table.known_files()
        (again,) = run.send(1)

        assert outcome.outcome is AttemptOutcome.FAILED
        assert outcome.error is not None
        assert outcome.error.is_outage
        assert len(orphans) == 1  # its fate was unknown
        assert again.outcome is AttemptOutcome.DELIVERED
        assert table.ids() == expected(0, 1)

    def test_a_staged_file_that_is_gone_fails_its_batch_alone(self, table: TableHarness) -> None:
        run = Run(table).fence()
        staged = run.stage(0, 1)
        (table.place / staged[0].staged["files"][0]["path"]).unlink()  # type: ignore[index]

        outcomes = run.commit(*staged)

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.FAILED, AttemptOutcome.DELIVERED]
        assert table.ids() == expected(1)


class TestLostAnswers:
    @pytest.mark.parametrize("error", ["unknown", "conflict", "failure"])
    def test_an_error_after_the_commit_is_a_commit_and_deletes_nothing(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch, error: str
    ) -> None:
        """Even a conflict: an answer can get lost, and the request be repeated by whatever stands between."""
        run = Run(table).fence()
        run.send(0)
        commit = table.steps["commit"]

        def fail() -> None:
            raise table.errors[error]("the answer was lost")

        with monkeypatch.context() as patch:
            patch.setattr(*commit, after(commit.real, once(fail)))
            (outcome,) = run.send(1)

        assert (outcome.outcome, outcome.receipt_existed) == (AttemptOutcome.DELIVERED, False)
        assert table.ids() == expected(0, 1)
        assert run.send(2)[0].outcome is AttemptOutcome.DELIVERED

    def test_a_request_that_takes_effect_late_is_not_followed_by_a_second(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer is an error, the table looks unchanged, and then the first request gets through after all."""
        run = Run(table).fence()
        run.send(0)
        commit = table.steps["commit"]
        real = commit.real
        pending: list[partial[Any]] = []

        def late(*arguments: Any, **named: Any) -> Any:
            request = partial(real, *arguments, **named)
            pending.append(request)
            if len(pending) == 1:
                raise table.errors["unknown"]("timed out")
            if len(pending) == 2:
                pending[0]()
            return request()

        with monkeypatch.context() as patch:
            patch.setattr(*commit, late)
            staged = run.stage(1)
            (first,) = run.commit(*staged)
            (second,) = run.commit(*staged)

        assert first.outcome is AttemptOutcome.FAILED
        assert (second.outcome, second.receipt is not None) == (AttemptOutcome.DELIVERED, True)
        assert table.ids() == expected(0, 1)
        assert table.files() == table.known_files()

    @pytest.mark.parametrize("fenced", [False, True])
    def test_a_commit_whose_answer_was_lost_keeps_its_files_when_the_table_is_made_anew(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch, fenced: bool
    ) -> None:
        """The commit takes effect, its answer is lost, and the table is made anew before anybody looks.

        :param fenced: whether another run has taken the new table over by then, else one has delivered the batch there
        """
        run = Run(table).fence()
        run.send(0)
        commit = table.steps["commit"]
        real = commit.real
        aside = []

        def lost(*arguments: Any, **named: Any) -> None:
            real(*arguments, **named)
            monkeypatch.setattr(*commit, real)
            aside.append(table.put_aside())
            other = Run(table, epoch=2 if fenced else 1).fence()
            other.send(2 if fenced else 1)
            other.send(3)
            raise table.errors["unknown"]("timed out")

        staged = run.stage(1)
        monkeypatch.setattr(*commit, lost)
        if fenced:
            with pytest.raises(FencedError):
                run.commit(*staged)
        else:
            assert run.commit(*staged)[0].receipt_existed

        assert aside[0]() == expected(0, 1)

    def test_a_table_that_lies_about_a_commit_stops_the_run_at_once(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its answer is that all went well, and the table shows nothing of it."""
        run = Run(table).fence()
        run.send(0)
        asked: list[None] = []

        def lie(*arguments: Any, **named: Any) -> Any:
            asked.append(None)
            return table.fake_commit(*arguments, **named)

        with monkeypatch.context() as patch:
            patch.setattr(*table.steps["commit"], lie)
            (outcome,) = run.send(1)

        assert (outcome.outcome, len(asked)) == (AttemptOutcome.FAILED, 1)
        assert outcome.error is not None
        assert "reported that a commit succeeded, but its newest version does not contain" in outcome.error.message
        assert default_action(outcome.error) is ErrorAction.HALT
        assert table.ids() == expected(0)


class TestRepetitions:
    def test_committing_the_same_outcomes_twice_commits_once(self, table: TableHarness) -> None:
        run = Run(table).fence()
        staged = run.stage(0, 1)
        run.commit(*staged)

        again = run.commit(*staged)

        assert [(outcome.outcome, outcome.receipt_existed) for outcome in again] == [
            (AttemptOutcome.DELIVERED, True)
        ] * 2
        assert table.ids() == expected(0, 1)
        assert table.files() == table.known_files()

    def test_twins_of_one_batch_in_one_wave_deliver_once(self, table: TableHarness) -> None:
        run = Run(table).fence()

        outcomes = run.commit(*run.stage(0, 1), *run.stage(0))

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.DELIVERED] * 3
        assert [outcome.receipt_existed for outcome in outcomes] == [False, False, True]
        assert table.ids() == expected(0, 1)
        assert table.files() == table.known_files()

    def test_snapshots_before_a_rollback_stay_readable(self, table: TableHarness) -> None:
        run = Run(table, epoch=1).fence()
        run.send(0)
        run.send(1)
        read = table.at_this_version()
        table.restore(1)

        accepting = Run(table, epoch=2)
        assert accepting.sink.claims().loss_evidence is not None
        accepting.fence().send(2)
        Run(table, epoch=3).fence()

        assert table.ids() == expected(0, 2)
        assert read() == expected(0, 1)
