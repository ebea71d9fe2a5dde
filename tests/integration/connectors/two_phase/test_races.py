"""Two-phase sinks write to a table while others write to the same table."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import SinkError
from airflow_provider_ckpt.core.wave_messages import Outcome
from tests.integration.connectors.batches import LEDGER, expected
from tests.integration.connectors.interruptions import before, once
from tests.integration.connectors.two_phase.harness import Run, TableHarness
from tests.services.contender import contender

RACES = 15


def is_delivered(outcome: Outcome) -> bool:
    return outcome.outcome is AttemptOutcome.DELIVERED and not outcome.receipt_existed


class TestOurOwn:
    def test_two_committers_of_one_epoch_deliver_once(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, two = Run(table).fence(), Run(table)
        one.send(9)
        mine, theirs = one.stage(0, 1), two.stage(1, 2)
        commit = table.steps["commit"]
        with monkeypatch.context() as patch:
            patch.setattr(*commit, before(commit.real, once(lambda: two.commit(*theirs))))
            outcomes = one.commit(*mine)

        assert [outcome.receipt_existed for outcome in outcomes] == [False, True]
        assert one.receipted == [0, 1, 2, 9]
        assert table.ids() == expected(0, 1, 2, 9)
        assert len(table.files() - table.known_files()) == 1  # a commit named it once, so it may be part of one

    @pytest.mark.parametrize("ledger", [LEDGER, "another"])
    def test_two_that_create_the_table_at_once_make_one(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch, ledger: str
    ) -> None:
        one, two = Run(table), Run(table, ledger=ledger)
        create = table.steps["create"]
        with monkeypatch.context() as patch:
            patch.setattr(*create, before(create.real, once(lambda: two.fence().send(1))))
            one.fence().send(0)

        assert table.ids() == expected(0, 1)
        assert (one.receipted, two.receipted) == (([0], [1]) if ledger != LEDGER else ([0, 1], [0, 1]))

    @pytest.mark.parametrize("ledger", [LEDGER, "another"])
    def test_two_that_commit_the_first_rows_at_once_both_deliver(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch, ledger: str
    ) -> None:
        one, two = Run(table).fence(), Run(table, ledger=ledger).fence()
        mine, theirs = one.stage(0), two.stage(1)
        commit = table.steps["commit"]
        with monkeypatch.context() as patch:
            patch.setattr(*commit, before(commit.real, once(lambda: two.commit(*theirs))))
            one.commit(*mine)

        assert table.ids() == expected(0, 1)
        assert (one.receipted, two.receipted) == (([0], [1]) if ledger != LEDGER else ([0, 1], [0, 1]))


class TestOthers:
    def test_one_in_between_costs_a_turn_and_keeps_its_rows(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(table).fence()
        run.send(0)
        commit = table.steps["commit"]

        monkeypatch.setattr(*commit, before(commit.real, once(lambda: table.append(0))))

        assert run.send(1)[0].outcome is AttemptOutcome.DELIVERED
        assert table.ids() == sorted([0, *expected(0, 1)])
        assert run.sink.target_rows() == 21

    def test_one_is_not_held_up_by_ours(self, table: TableHarness) -> None:
        run = Run(table).fence()
        run.send(0)
        append = table.open_writer()
        run.send(1)

        append(0)  # retries by itself, since we leave the table's own settings alone

        assert table.ids() == sorted([0, *expected(0, 1)])

    def test_a_column_that_comes_in_between_fails_the_batch_and_is_named(self, table: TableHarness) -> None:
        run = Run(table).fence()
        run.send(0)
        staged = run.stage(1)
        table.add_column("note")

        (outcome,) = run.commit(*staged)

        assert outcome.error is not None
        assert "note is missing (string)" in outcome.error.message
        assert table.files() == table.known_files()

    def test_a_table_that_is_never_quiet_is_an_outage_once_the_time_budget_is_over(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(table, time_budget="1s").fence()
        run.send(0)
        commit = table.steps["commit"]

        monkeypatch.setattr(*commit, before(commit.real, table.commit_nothing))
        (outcome,) = run.send(1)

        assert outcome.outcome is AttemptOutcome.FAILED
        assert outcome.error is not None
        assert (outcome.error.recoverable, outcome.error.is_outage) == (True, True)
        with pytest.raises(SinkError, match="other writers committed first"):
            Run(table, epoch=2, time_budget="1s").fence()

    def test_any_number_of_lost_races_is_no_failure(self, table: TableHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        run = Run(table).fence()
        run.send(0)
        commit = table.steps["commit"]
        lost: list[None] = []

        def race() -> None:
            if len(lost) < RACES:
                lost.append(None)
                table.commit_nothing()

        monkeypatch.setattr(*commit, before(commit.real, race))
        (outcome,) = run.send(1)
        assert is_delivered(outcome)
        lost.clear()
        Run(table, epoch=2).fence()

        assert len(lost) == RACES
        assert table.ids() == expected(0, 1)

    @pytest.mark.parametrize(("table", "batches", "rate"), [("delta", 20, 15), ("iceberg", 5, 5)], indirect=["table"])
    def test_every_batch_is_delivered_beside_a_busy_one(self, table: TableHarness, batches: int, rate: int) -> None:
        """An Iceberg commit takes longer.

        :param rate: commits a second of the other writer
        """
        run = Run(table).fence()
        run.send(0)
        with contender(*table.contender(rate)):
            first = table.version
            outcomes = [run.send(seq)[0] for seq in range(1, batches)]
            Run(table, epoch=2).fence()
            commits = table.version - first

        assert all(map(is_delivered, outcomes))
        assert table.ids() == expected(*range(batches))
        assert commits > batches  # the writer was at work all the time
