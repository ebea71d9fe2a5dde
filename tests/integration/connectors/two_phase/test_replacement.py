"""Refreshes of two-phase sinks: batches are staged, and one commit replaces the table's rows by the staged rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import partial

import pytest

from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey, SideKind, side_partition
from airflow_provider_ckpt.core.errors import CkptError, FencedError
from airflow_provider_ckpt.core.refresh import ReplaceLimits
from airflow_provider_ckpt.core.wave_messages import Outcome
from tests.integration.connectors.batches import SIZE, content, expected, task
from tests.integration.connectors.interruptions import Killed, after, before, kill, once
from tests.integration.connectors.two_phase.formats import PLACES
from tests.integration.connectors.two_phase.harness import Run, TableHarness
from tests.integration.connectors.two_phase.refreshes import SOURCE, Refresh, refresh

DEATHS = [
    (kind, step, done)
    for kind in PLACES
    for step in ("check the fence", "write receipts", "commit")
    for done in (False, True)
]
"""Points at which a publishing process can die: the step, and whether it has taken effect."""


def failure(outcome: Outcome) -> str:
    """The message of a failed outcome."""
    assert outcome.outcome is AttemptOutcome.FAILED
    assert outcome.error is not None
    return outcome.error.message


def staged_files(table: TableHarness) -> set[str]:
    """Names of the sink's own files that are not part of the table."""
    return {name for name in table.files() - table.known_files() if name.startswith("ckpt-")}


@pytest.fixture
def full(table: TableHarness) -> TableHarness:
    """A table that a first refresh has filled with the rows of the batches 0 to 2, beside those of another writer."""
    first = refresh(table).stage(0, 1, 2)
    table.append(777)
    assert first.publish(3).outcome is AttemptOutcome.DELIVERED
    return table


class TestPublication:
    def test_one_commit_replaces_all_rows_those_of_other_writers_too(self, table: TableHarness) -> None:
        first = refresh(table).stage(0, 1)
        assert (table.ids(), first.sink.row_counts(first.key(2))) == ([], (20, 0))
        table.append(777)
        before_commit = table.version
        published, again = first.publish(2), first.publish(2)
        second = refresh(table, epoch=2).stage(0, start=5)
        staged = table.ids()
        second.publish(1)

        assert (published.outcome, published.receipt_existed) == (AttemptOutcome.DELIVERED, False)
        assert (again.receipt, again.receipt_existed) == (published.receipt, True)
        assert first.run.receipted == [0, 1, 2, 0, 1]
        assert staged == expected(0, 1)
        assert table.ids() == expected(5)
        assert table.version > before_commit
        assert [row["id"] for row in table.rows()] == expected(5)
        assert second.run.sink.target_rows() == SIZE
        assert list(second.run.sink.damaged_files()) == []
        assert second.run.sink.claims().loss_evidence is None

    def test_a_refresh_without_rows_empties_the_table(self, full: TableHarness) -> None:
        empty = refresh(full, epoch=2)

        outcome = empty.publish(0)

        assert outcome.outcome is AttemptOutcome.DELIVERED
        assert (full.ids(), empty.run.sink.target_rows()) == ([], 0)
        assert refresh(full, epoch=3).stage(0).publish(1).outcome is AttemptOutcome.DELIVERED
        assert full.ids() == expected(0)

    def test_readers_see_whole_generations_only(self, full: TableHarness) -> None:
        with polling(full) as seen:
            for epoch in range(2, 6):
                refresh(full, epoch=epoch).stage(*range(1 + epoch % 2)).publish(1 + epoch % 2)

        assert seen[0] == 30
        assert set(seen[1:]) <= {10, 20, 30}
        assert len(seen) > 2

    def test_what_is_not_complete_is_not_published(self, full: TableHarness) -> None:
        begun = refresh(full, epoch=2).stage(0)
        assert "[10, 20)" in failure(begun.publish(2))
        assert not begun.sink.is_staged(begun.key(2), 2 * SIZE)
        begun.stage(1)
        assert begun.sink.is_staged(begun.key(2), 2 * SIZE)
        (name, *_) = staged_files(full)
        next(full.place.rglob(name)).unlink()

        assert "is missing" in failure(begun.publish(2))
        assert not begun.sink.is_staged(begun.key(2), 2 * SIZE)
        assert full.ids() == expected(0, 1, 2)
        assert refresh(full, epoch=3).stage(0, 1).publish(2).outcome is AttemptOutcome.DELIVERED

    def test_a_skipped_publication_has_a_receipt_and_changes_no_row(self, full: TableHarness) -> None:
        outcome = refresh(full, epoch=2).stage(0).publish(1, instruction=Instruction.VOID)

        assert outcome.outcome is AttemptOutcome.VOID
        assert full.ids() == expected(0, 1, 2)
        refresh(full, epoch=3)
        assert staged_files(full) == set(), "what was skipped is removed"


class TestFence:
    def test_an_older_epoch_publishes_and_removes_nothing(self, full: TableHarness) -> None:
        old = refresh(full, epoch=2).stage(0)
        Run(full, epoch=3, replaces=True).fence()
        files = full.files()

        with pytest.raises(FencedError):
            old.publish(1)
        with pytest.raises(FencedError):
            Refresh(old.run, 3).begin(2)

        assert (full.ids(), full.files()) == (expected(0, 1, 2), files)

    def test_a_fence_between_the_checks_and_the_commit_stops_the_commit(
        self, full: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        old = refresh(full, epoch=2).stage(0)
        commit = full.steps["commit"]
        fence = once(lambda: Run(full, epoch=3, replaces=True).fence())
        monkeypatch.setattr(*commit, before(commit.real, fence))

        with pytest.raises(FencedError):
            old.publish(1)

        assert full.ids() == expected(0, 1, 2)


class TestInterruptions:
    @pytest.mark.parametrize(("table", "step", "done"), DEATHS, indirect=["table"])
    def test_a_publication_killed_anywhere_is_whole_or_nothing(
        self, full: TableHarness, monkeypatch: pytest.MonkeyPatch, step: str, done: bool
    ) -> None:
        dying = refresh(full, epoch=2).stage(0, 1)
        with monkeypatch.context() as patch:
            dies = full.steps[step]
            patch.setattr(*dies, after(dies.real, kill) if done else kill)
            with pytest.raises(Killed):
                dying.publish(2)

        published = full.ids() == expected(0, 1)
        assert published or full.ids() == expected(0, 1, 2)
        later = Run(full, epoch=3, replaces=True).fence()
        keys = [receipt.key for receipt in later.sink.receipts({})]
        assert (dying.key(2) in keys) == published == ((step, done) == ("commit", True))
        outcome = Refresh(later, 2).publish(2)
        assert outcome.receipt_existed == published
        assert full.ids() == expected(0, 1)

    def test_an_error_after_the_commit_is_a_publication(
        self, full: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        staged = refresh(full, epoch=2).stage(0)
        commit = full.steps["commit"]

        def fail() -> None:
            raise full.errors["unknown"]("the answer was lost")

        monkeypatch.setattr(*commit, after(commit.real, once(fail)))

        outcome = staged.publish(1)

        assert (outcome.outcome, outcome.receipt_existed) == (AttemptOutcome.DELIVERED, False)
        assert full.ids() == expected(0)


class TestAbandonedRefreshes:
    def test_files_that_were_staged_are_removed_by_the_next_refresh_and_no_others(self, full: TableHarness) -> None:
        refresh(full, epoch=2).stage(0, 1)
        refresh(full, epoch=3, abandoned_from=2).stage(0)
        assert len(staged_files(full)) == 1
        refresh(full, epoch=4, abandoned_from=2).stage(0)
        assert len(staged_files(full)) == 1
        read_now = full.at_this_version()

        refresh(full, epoch=5, abandoned_from=2).stage(0).publish(1)
        refresh(full, epoch=6)

        assert read_now() == expected(0, 1, 2), "published files stay for readers of older versions"
        assert full.ids() == expected(0)
        assert len(full.files()) == 3 + 1 + 1  # two refreshes, the other writer's row
        refresh(full, epoch=7, abandoned_from=1)
        assert full.ids() == expected(0), "the receipt of a publication says more than the ledger"

    def test_files_of_a_refresh_that_the_ledger_knows_as_published_stay(self, full: TableHarness) -> None:
        """The receipts of its publication may be lost with a newer version of the table."""
        refresh(full, epoch=2).stage(0, 1)

        refresh(full, epoch=3)

        assert len(staged_files(full)) == 2

    def test_a_request_in_transit_publishes_nothing_that_was_removed(
        self, full: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = refresh(full, epoch=2).stage(0)
        commit = full.steps["commit"]
        late: list[Callable[[], object]] = []

        def keep(*given: object, **named: object) -> None:
            late.append(partial(real, *given, **named))
            raise Killed

        real = commit.real
        with monkeypatch.context() as patch:
            patch.setattr(*commit, keep)
            with pytest.raises(Killed):
                first.publish(1)

        Refresh(first.run, 3).begin(2)

        with pytest.raises((*full.errors.values(), CkptError)):
            late[0]()
        assert full.ids() == expected(0, 1, 2)


class TestOtherCommits:
    def test_a_restored_table_is_not_replaced(self, full: TableHarness) -> None:
        staged = refresh(full, epoch=2).stage(0)
        full.restore(1)

        assert "was restored or rolled back" in failure(staged.publish(1))
        assert full.ids() == []
        assert Run(full, epoch=3, replaces=True).sink.claims().loss_evidence is not None

    def test_dead_letters_that_are_replayed_go_to_the_table_itself(self, full: TableHarness) -> None:
        run = Run(full, epoch=2, replaces=True).fence()
        replayed = replace(task(5), key=BatchKey(1, side_partition(SideKind.DLQ, 1, SOURCE), 0))

        (outcome,) = run.commit(run.writer.deliver(replayed, content(5)))

        assert outcome.outcome is AttemptOutcome.DELIVERED
        assert full.ids() == expected(0, 1, 2, 5)


class TestLimits:
    def test_a_table_that_grows_between_count_and_commit_is_counted_again(
        self, full: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limits = ReplaceLimits(max_shrink=Decimal("0.5"))
        staged = refresh(full, epoch=2).stage(0, 1)
        assert limits.refusal_reason(*staged.sink.row_counts(staged.key(2))) is None
        commit = full.steps["commit"]

        def grow() -> None:
            for number in range(11):
                full.append(number)

        with monkeypatch.context() as patch:
            patch.setattr(*commit, before(commit.real, once(grow)))
            outcome = staged.publish(2, limits)

        assert outcome.outcome is AttemptOutcome.NOT_ATTEMPTED
        assert len(full.ids()) == 41
        assert limits.refusal_reason(*staged.sink.row_counts(staged.key(2))) is not None
        assert staged.publish(2).outcome is AttemptOutcome.DELIVERED
        assert full.ids() == expected(0, 1)

    def test_a_writer_in_between_costs_a_try_and_its_rows_go_with_the_others(
        self, full: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        staged = refresh(full, epoch=2).stage(0, 1)
        commit = full.steps["commit"]
        monkeypatch.setattr(*commit, before(commit.real, once(lambda: full.append(5))))

        outcome = staged.publish(2, ReplaceLimits())

        assert outcome.outcome is AttemptOutcome.DELIVERED
        assert full.ids() == expected(0, 1)


@contextmanager
def polling(table: TableHarness) -> Iterator[list[int]]:
    """Read in the background; the list has the numbers of rows that were seen, the first of them before the body."""
    seen, ended = [len(table.rows())], threading.Event()

    def read() -> None:
        while not ended.is_set():
            seen.append(len(table.rows()))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
