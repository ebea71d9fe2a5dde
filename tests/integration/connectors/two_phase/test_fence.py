"""The fence of two-phase sinks as a barrier, with and without a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.connectors.sink_protocol import Claims
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import FencedError
from tests.integration.connectors.batches import LEDGER, expected
from tests.integration.connectors.interruptions import Killed, after, before, kill, once
from tests.integration.connectors.two_phase.formats import PLACES
from tests.integration.connectors.two_phase.harness import Run, TableHarness

MOMENTS = [
    *((kind, step, order) for kind in PLACES for step in ("create", "commit") for order in (before, after)),
    *(("iceberg", "prepare the commit", order) for order in (before, after)),
]
"""Points at which a newer epoch can come in between: right before or after a step of a stale one's fence or commit."""

DEATHS = [
    *(("delta", "open to fence", done, existing) for done in (False, True) for existing in (False, True)),
    *(("delta", "commit", done, True) for done in (False, True)),
    *(("iceberg", "commit", done, existing) for done in (False, True) for existing in (False, True)),
    ("iceberg", "create", True, False),
]
"""Points at which a fence can die: the step, whether its effect has happened by then, and whether there are rows."""


def claimed(run: Run) -> Claims:
    """Return the sink's claims without the table's own id."""
    return replace(run.sink.claims(), target=None)


class TestFence:
    def test_a_stale_epoch_commits_nothing_and_its_files_go(self, table: TableHarness) -> None:
        stale = Run(table, epoch=1).fence()
        stale.send(0)
        staged = stale.stage(1)
        Run(table, epoch=2).fence()

        with pytest.raises(FencedError, match=r"pipeline flights, batch files#1: .* is at epoch 2, so epoch 1 may not"):
            stale.commit(*staged)
        with pytest.raises(FencedError):
            stale.stage(2)
        assert table.ids() == expected(0)
        assert table.files() == table.known_files()

    def test_a_stale_epoch_leaves_what_a_dead_lane_of_its_own_staged(self, table: TableHarness) -> None:
        """A run removes what it has been told of, and a table's own clean-up the rest."""
        stale = Run(table, epoch=1).fence()
        stale.send(0)
        left, staged = stale.stage(1), stale.stage(2)
        Run(table, epoch=2).fence()

        with pytest.raises(FencedError):
            stale.commit(*staged)

        names = {Path(file["path"]).name for outcome in left if outcome.staged for file in outcome.staged["files"]}
        assert table.files() == table.known_files() | names

    @pytest.mark.parametrize("empty", [True, False])
    def test_a_commit_prepared_before_the_fence_is_refused(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch, empty: bool
    ) -> None:
        stale, new = Run(table, epoch=1).fence(), Run(table, epoch=2)
        if not empty:
            stale.send(0)
        staged = stale.stage(1)
        commit = table.steps["commit"]
        with monkeypatch.context() as patch:
            patch.setattr(*commit, before(commit.real, once(new.fence)))
            with pytest.raises(FencedError):
                stale.commit(*staged)

        assert new.receipted == ([] if empty else [0])
        assert table.ids() == ([] if empty else expected(0))
        assert new.sink.claims().epoch == 2

    @pytest.mark.parametrize(("table", "step", "order"), MOMENTS, indirect=["table"])
    def test_what_a_fence_showed_is_final(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch, step: str, order: Callable[..., Any]
    ) -> None:
        """The new epoch fences while there is no row and, as far as a format has no table without rows, no table."""
        stale, new = Run(table, epoch=1), Run(table, epoch=2)
        seen: list[list[int]] = []

        def take_over() -> None:
            new.fence()
            seen.append(new.receipted)

        with monkeypatch.context() as patch:
            if step != "create":
                stale.fence()
            interrupted = table.steps[step]
            patch.setattr(*interrupted, order(interrupted.real, once(take_over)))
            if step == "commit" and order is after:
                stale.send(0)
            else:
                with pytest.raises(FencedError):
                    stale.fence().send(0)

        assert seen == [new.receipted]
        new.send(0)
        assert table.ids() == expected(0)

    @pytest.mark.parametrize(("table", "step", "done", "existing"), DEATHS, indirect=["table"])
    def test_a_fence_killed_anywhere_is_raised_by_the_next_run(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch, step: str, done: bool, existing: bool
    ) -> None:
        if existing:
            Run(table, epoch=1).fence().send(9)
        with monkeypatch.context() as patch:
            dies = table.steps[step]
            patch.setattr(*dies, after(dies.real, kill) if done else kill)
            with pytest.raises(Killed):
                Run(table, epoch=2).fence()

        run = Run(table, epoch=3).fence()

        assert claimed(run) == Claims(3, frozenset({LEDGER}))
        assert [outcome.receipt_existed for outcome in run.send(0)] == [False]

    def test_a_fence_survives_the_process_without_a_row(self, table: TableHarness) -> None:
        Run(table, epoch=5).fence()

        assert claimed(Run(table)) == Claims(5, frozenset({LEDGER}))
        with pytest.raises(FencedError):
            Run(table, epoch=4).fence()
        with pytest.raises(FencedError):
            Run(table, epoch=4).stage(0)

    def test_a_fence_is_repeatable(self, table: TableHarness) -> None:
        Run(table, epoch=1).fence().send(0)
        run = Run(table, epoch=2).fence()
        state = table.state

        run.fence()

        assert table.state == state
        assert run.sink.claims().epoch == 2

    def test_a_table_that_was_dropped_takes_the_fence_with_it(self, table: TableHarness) -> None:
        run = Run(table).fence()
        run.send(0)
        staged = run.stage(1)
        table.drop()

        (outcome,) = run.commit(*staged)

        assert outcome.error is not None
        assert "is at no epoch, not at this run's epoch 1" in outcome.error.message
        assert run.stage(2)[0].outcome is AttemptOutcome.FAILED

    def test_claims_name_every_ledger(self, table: TableHarness) -> None:
        assert Run(table).sink.claims() == Claims(0, frozenset())
        Run(table, epoch=2).fence()
        Run(table, epoch=7, ledger="other/../ledger").fence().send(0)

        assert claimed(Run(table)) == Claims(2, frozenset({LEDGER, "other/../ledger"}))
        assert Run(table).receipted == []
