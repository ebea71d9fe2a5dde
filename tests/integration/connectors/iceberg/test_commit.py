"""The iceberg sink's commit under attack: interruptions at every step, lost answers, and races."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate

from airflow_provider_ckpt.connectors.iceberg.durable import DurableFileIO
from airflow_provider_ckpt.connectors.iceberg.version import IcebergVersion
from airflow_provider_ckpt.connectors.two_phase import receipts
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import ErrorAction, SinkError, default_action
from tests.integration.connectors.delta.delta_support import Killed, after, before, expected, kill, once
from tests.integration.connectors.iceberg.iceberg_support import TABLE, Run, data_files, ids, known_files
from tests.services.iceberg import IcebergService


@pytest.fixture
def lake(tmp_path: Path) -> IcebergService:
    return IcebergService(tmp_path)


# Where a committing process can die: the owner, the name, and whether its effect has happened by then.
STEPS = [
    (IcebergVersion, "refuse_unless_current", True),
    (receipts, "write_durably", False),
    (receipts, "write_durably", True),
    (SqlCatalog, "commit_table", False),
    (DurableFileIO, "new_output", True),
    (SqlCatalog, "commit_table", True),
]


class TestInterruptions:
    @pytest.mark.parametrize(("owner", "name", "done"), STEPS)
    @pytest.mark.parametrize("existing", [False, True])
    def test_a_commit_killed_anywhere_is_settled_by_the_next_run(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, done: bool, existing: bool
    ) -> None:
        first = Run(lake, epoch=1).fence()
        if existing:
            first.send(0)
        staged = first.stage(1, 2)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, after(getattr(owner, name), kill) if done else kill)
            with pytest.raises(Killed):
                first.committer.commit(staged)

        second = Run(lake, epoch=2).fence()
        known = set(second.receipted)
        again = second.send(1, 2)

        assert known - {0} in (set(), {1, 2})  # a wave is committed whole or not at all
        assert [outcome.found for outcome in again] == [seq in known for seq in (1, 2)]
        assert set(second.receipted) == {1, 2} | ({0} if existing else set())
        assert ids(lake) == expected(1, 2, *([0] if existing else []))

    @pytest.mark.parametrize("error", [CommitStateUnknownException, CommitFailedException, OSError])
    def test_an_error_after_the_commit_is_a_commit_and_deletes_nothing(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
    ) -> None:
        """Even a conflict: an answer can get lost, and the request be repeated by whatever stands between."""
        run = Run(lake).fence()
        run.send(0)

        def fail() -> None:
            raise error("the answer was lost")

        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", after(SqlCatalog.commit_table, once(fail)))
            (outcome,) = run.send(1)

        assert (outcome.outcome, outcome.found) == (AttemptOutcome.DELIVERED, False)
        assert ids(lake) == expected(0, 1)  # which reads the manifests, too
        assert run.send(2)[0].outcome is AttemptOutcome.DELIVERED

    def test_a_request_that_takes_effect_late_is_not_followed_by_a_second(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer is an error, the table looks unchanged, and then the first request gets through after all."""
        run = Run(lake).fence()
        run.send(0)
        real = SqlCatalog.commit_table
        pending: list[Any] = []

        def late(*arguments: Any) -> Any:
            if not pending:
                pending.append(arguments)
                raise CommitStateUnknownException("timed out")
            if len(pending) == 1:
                pending.append(arguments)
                real(*pending[0])
            return real(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", late)
            staged = run.stage(1)
            (first,) = run.committer.commit(staged)
            (second,) = run.committer.commit(staged)

        assert first.outcome is AttemptOutcome.FAILED
        assert (second.outcome, second.receipt is not None) == (AttemptOutcome.DELIVERED, True)
        assert ids(lake) == expected(0, 1)
        assert data_files(lake) == known_files(lake)

    def test_an_error_instead_of_the_commit_fails_the_batch_and_keeps_its_files(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(lake).fence()
        run.send(0)

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", fail)
            (outcome,) = run.send(1)
        orphans = data_files(lake) - known_files(lake)
        (again,) = run.send(1)

        assert outcome.outcome is AttemptOutcome.FAILED
        assert outcome.error is not None
        assert outcome.error.whole
        assert len(orphans) == 1  # its fate was unknown
        assert again.outcome is AttemptOutcome.DELIVERED
        assert ids(lake) == expected(0, 1)

    def test_files_of_a_commit_that_may_still_come_are_kept(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The answer is lost, somebody alters the table so that rows do not fit, and the request gets through."""
        run = Run(lake).fence()
        run.send(0)
        real = SqlCatalog.commit_table
        requests: list[Any] = []

        def lost(*arguments: Any) -> Any:
            requests.append(arguments)
            patch.setattr(SqlCatalog, "commit_table", real)
            table = lake.table(TABLE)
            assert table is not None
            with table.update_schema() as update:
                update.rename_column("id", "key")
            raise CommitStateUnknownException("timed out")

        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", lost)
            (outcome,) = run.send(1)
        real(*requests[0])

        assert outcome.outcome is AttemptOutcome.FAILED
        assert run.receipted == [0, 1]
        assert data_files(lake) == known_files(lake)

    def test_committing_the_same_outcomes_twice_commits_once(self, lake: IcebergService) -> None:
        run = Run(lake).fence()
        staged = run.stage(0, 1)
        run.committer.commit(staged)

        again = run.committer.commit(staged)

        assert [(outcome.outcome, outcome.found) for outcome in again] == [(AttemptOutcome.DELIVERED, True)] * 2
        assert ids(lake) == expected(0, 1)
        assert data_files(lake) == known_files(lake)

    def test_twins_of_one_batch_in_one_wave_deliver_once(self, lake: IcebergService) -> None:
        run = Run(lake).fence()

        outcomes = run.committer.commit([*run.stage(0, 1), *run.stage(0)])

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.DELIVERED] * 3
        assert [outcome.found for outcome in outcomes] == [False, False, True]
        assert ids(lake) == expected(0, 1)
        assert data_files(lake) == known_files(lake)

    def test_a_staged_file_that_is_gone_fails_its_batch_alone(self, lake: IcebergService) -> None:
        run = Run(lake).fence()
        staged = run.stage(0, 1)
        Path(staged[0].staged["files"][0]["path"]).unlink()  # type: ignore[index]

        outcomes = run.committer.commit(staged)

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.FAILED, AttemptOutcome.DELIVERED]
        assert ids(lake) == expected(1)

    def test_a_catalog_that_lies_about_a_commit_stops_the_run_at_once(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its answer is that all went well, and the table shows nothing of it."""
        run = Run(lake).fence()
        run.send(0)
        asked: list[Table] = []

        def lie(_: SqlCatalog, table: Table, *__: object) -> CommitTableResponse:
            asked.append(table)
            return CommitTableResponse(metadata=table.metadata, metadata_location=table.metadata_location)

        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", lie)
            (outcome,) = run.send(1)

        assert (outcome.outcome, len(asked)) == (AttemptOutcome.FAILED, 1)
        assert outcome.error is not None
        assert "reported that a commit was done, and does not show it" in outcome.error.message
        assert default_action(outcome.error) is ErrorAction.HALT
        assert ids(lake) == expected(0)


class TestRaces:
    def test_two_committers_of_one_epoch_deliver_once(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, two = Run(lake).fence(), Run(lake)
        one.send(9)
        mine, theirs = one.stage(0, 1), two.stage(1, 2)
        with monkeypatch.context() as patch:
            rival = once(lambda: two.committer.commit(theirs))
            patch.setattr(SqlCatalog, "commit_table", before(SqlCatalog.commit_table, rival))
            outcomes = one.committer.commit(mine)

        assert [outcome.found for outcome in outcomes] == [False, True]
        assert one.receipted == [0, 1, 2, 9]
        assert ids(lake) == expected(0, 1, 2, 9)
        assert len(data_files(lake) - known_files(lake)) == 1  # a commit named it once, so it may be part of one

    def test_two_pipelines_create_one_table_and_its_columns(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, two = Run(lake), Run(lake, ledger="another")
        with monkeypatch.context() as patch:
            rival = once(lambda: two.fence())
            patch.setattr(SqlCatalog, "create_table", before(SqlCatalog.create_table, rival))
            one.fence()
        mine, theirs = one.stage(0), two.stage(1)
        with monkeypatch.context() as patch:
            rival = once(lambda: two.committer.commit(theirs))
            patch.setattr(SqlCatalog, "commit_table", before(SqlCatalog.commit_table, rival))
            one.committer.commit(mine)

        assert ids(lake) == expected(0, 1)
        assert (one.receipted, two.receipted) == ([0], [1])

    def test_a_foreign_writer_in_between_costs_a_turn_and_keeps_its_rows(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(lake).fence()
        run.send(0)

        def foreign() -> None:
            table = lake.table(TABLE)
            assert table is not None
            table.append(lake.rows(TABLE).slice(0, 1))

        monkeypatch.setattr(SqlCatalog, "commit_table", before(SqlCatalog.commit_table, once(foreign)))

        assert run.send(1)[0].outcome is AttemptOutcome.DELIVERED
        assert ids(lake) == sorted([0, *expected(0, 1)])
        assert run.sink.target_rows() == 21

    def test_a_foreign_writer_is_not_held_up_by_ours(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(lake).fence()
        run.send(0)
        table = lake.table(TABLE)
        assert table is not None
        run.send(1)

        table.append(lake.rows(TABLE).slice(0, 1))  # retries by itself, since we leave the table's own settings alone

        assert len(ids(lake)) == 21

    def test_a_column_that_comes_in_between_fails_the_batch_and_the_next_attempt_says_why(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(lake).fence()
        run.send(0)
        staged = run.stage(1)
        table = lake.table(TABLE)
        assert table is not None
        with table.update_schema() as update:
            update.rename_column("id", "key")

        (outcome,) = run.committer.commit(staged)

        assert outcome.error is not None
        assert "id is not in the table" in outcome.error.message
        assert data_files(lake) == known_files(lake)

    def test_a_table_that_is_made_anew_meanwhile_takes_no_rows_of_ours(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(lake).fence()
        staged = run.stage(0)

        def replace() -> None:
            with lake.catalog() as catalog:
                old = catalog.load_table(TABLE)
                catalog.drop_table(TABLE)
                new = catalog.create_table(TABLE, old.schema())
                head = old.current_snapshot()
                assert head is not None
                main = SetSnapshotRefUpdate.model_validate(
                    {"ref-name": "main", "type": "branch", "snapshot-id": head.snapshot_id}
                )
                updates = (AddSnapshotUpdate(snapshot=head), main)
                new.catalog.commit_table(new, (), updates)  # even one that looks the same

        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", before(SqlCatalog.commit_table, once(replace)))
            (outcome,) = run.committer.commit(staged)

        assert outcome.outcome is AttemptOutcome.FAILED
        assert ids(lake) == []

    def test_a_table_that_is_never_quiet_is_an_outage_once_the_time_budget_is_over(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(lake, time_budget="1s").fence()
        run.send(0)
        real = SqlCatalog.commit_table
        foreign = Run(lake, ledger="another").fence()

        def busy(*arguments: Any) -> Any:
            with monkeypatch.context() as patch:
                patch.setattr(SqlCatalog, "commit_table", real)
                foreign.epoch += 1
                foreign.fence()
            return real(*arguments)

        monkeypatch.setattr(SqlCatalog, "commit_table", busy)
        (outcome,) = run.send(1)

        assert outcome.outcome is AttemptOutcome.FAILED
        assert outcome.error is not None
        assert (outcome.error.recoverable, outcome.error.whole) == (True, True)
        with pytest.raises(SinkError, match="other writers took every version"):
            Run(lake, epoch=2, time_budget="1s").fence()
