"""The iceberg sink's fence as a barrier, what catalogs accept without one, and what the table holds of us."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_ckpt.connectors.sink_protocol import Claims
from airflow_provider_ckpt.core.errors import FencedError
from tests.integration.connectors.delta.delta_support import LEDGER, Killed, after, before, expected, kill, once
from tests.integration.connectors.iceberg.iceberg_support import (
    TABLE,
    Run,
    data_files,
    ids,
    known_files,
    letter_lines,
    place,
)
from tests.services.iceberg import IcebergService

EPOCH = f"ckpt:{LEDGER}:flights:epoch"


@pytest.fixture
def lake(tmp_path: Path) -> IcebergService:
    return IcebergService(tmp_path)


def properties(lake: IcebergService) -> dict[str, str]:
    """The table's, as it is now."""
    table = lake.table(TABLE)
    assert table is not None
    return dict(table.properties)


def claimed(run: Run) -> Claims:
    """What the table holds, but for its own id."""
    return replace(run.sink.claims(), target=None)


class TestFence:
    def test_a_stale_epoch_commits_nothing_and_its_files_go(self, lake: IcebergService) -> None:
        stale = Run(lake, epoch=1).fence()
        stale.send(0)
        staged = stale.stage(1)
        Run(lake, epoch=2).fence()

        with pytest.raises(FencedError, match="is at epoch 2, so epoch 1 may not write any more"):
            stale.committer.commit(staged)
        with pytest.raises(FencedError):
            stale.stage(2)
        assert ids(lake) == expected(0)
        assert data_files(lake) == known_files(lake)

    @pytest.mark.parametrize("empty", [True, False])
    def test_a_commit_prepared_before_the_fence_is_refused(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch, empty: bool
    ) -> None:
        stale, new = Run(lake, epoch=1).fence(), Run(lake, epoch=2)
        if not empty:
            stale.send(0)
        staged = stale.stage(1)
        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", before(SqlCatalog.commit_table, once(new.fence)))
            with pytest.raises(FencedError):
                stale.committer.commit(staged)

        assert new.receipted == ([] if empty else [0])
        assert ids(lake) == ([] if empty else expected(0))
        assert properties(lake)[EPOCH] == "2"

    @pytest.mark.parametrize("step", ["create_table", "_update_and_stage_table", "commit_table"])
    @pytest.mark.parametrize("order", [before, after])
    def test_what_a_fence_showed_is_final(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch, step: str, order: Callable[..., Any]
    ) -> None:
        """The new epoch fences right before or after each step of a stale one's fence or commit."""
        stale, new = Run(lake, epoch=1), Run(lake, epoch=2)
        seen: list[list[int]] = []

        def take_over() -> None:
            new.fence()
            seen.append(new.receipted)

        with monkeypatch.context() as patch:
            if step != "create_table":
                stale.fence()
            patch.setattr(SqlCatalog, step, order(getattr(SqlCatalog, step), once(take_over)))
            if step == "commit_table" and order is after:
                stale.send(0)
            else:
                with pytest.raises(FencedError):
                    stale.fence().send(0)

        assert seen == [new.receipted]
        new.send(0)
        assert ids(lake) == expected(0)

    @pytest.mark.parametrize(
        ("step", "done"), [("create_table", True), ("commit_table", False), ("commit_table", True)]
    )
    def test_a_fence_killed_anywhere_is_raised_by_the_next_run(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch, step: str, done: bool
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, step, after(getattr(SqlCatalog, step), kill) if done else kill)
            with pytest.raises(Killed):
                Run(lake, epoch=1).fence()

        run = Run(lake, epoch=2).fence()

        assert claimed(run) == Claims(2, frozenset({LEDGER}))
        assert [outcome.found for outcome in run.send(0)] == [False]

    def test_a_fence_survives_the_process_without_a_row(self, lake: IcebergService) -> None:
        Run(lake, epoch=5).fence()

        assert claimed(Run(lake)) == Claims(5, frozenset({LEDGER}))
        with pytest.raises(FencedError):
            Run(lake, epoch=4).fence()
        with pytest.raises(FencedError):
            Run(lake, epoch=4).stage(0)

    def test_a_fence_is_repeatable(self, lake: IcebergService) -> None:
        run = Run(lake, epoch=1).fence()
        run.send(0)
        before_it = lake.table(TABLE)

        run.fence()

        after_it = lake.table(TABLE)
        assert before_it is not None
        assert after_it is not None
        assert after_it.metadata_location == before_it.metadata_location

    def test_claims_name_every_ledger(self, lake: IcebergService) -> None:
        assert Run(lake).sink.claims() == Claims(0, frozenset())
        Run(lake, epoch=2).fence()
        Run(lake, epoch=7, ledger="other/../ledger").fence().send(0)

        assert claimed(Run(lake)) == Claims(2, frozenset({LEDGER, "other/../ledger"}))
        assert Run(lake).receipted == []


class TestCatalogs:
    """What the library and its catalogs do, and why the sink does not leave its commits to them."""

    def test_a_property_alone_would_let_a_stale_commit_through(self, lake: IcebergService) -> None:
        Run(lake, epoch=1).fence()
        stale, new = lake.table(TABLE), lake.table(TABLE)
        assert stale is not None
        assert new is not None
        new.transaction().set_properties({EPOCH: "2"}).commit_transaction()

        with stale.transaction() as transaction:
            transaction.set_properties({EPOCH: "1", "commit.retry.num-retries": "0"})
            with transaction.update_snapshot().fast_append():
                pass

        assert properties(lake)[EPOCH] == "1"

    def test_the_library_s_own_retry_would_let_a_stale_commit_through(self, lake: IcebergService) -> None:
        Run(lake, epoch=1).fence()
        stale = lake.table(TABLE)
        assert stale is not None
        Run(lake, epoch=2).fence()

        with stale.transaction() as transaction:
            transaction.set_properties({EPOCH: "1"})
            with transaction.update_snapshot().fast_append():
                pass

        assert properties(lake)[EPOCH] == "1"


class TestTable:
    def test_its_properties_do_not_grow_with_the_batches(self, lake: IcebergService) -> None:
        run = Run(lake).fence()
        run.send(0)
        first = properties(lake)

        for seq in range(1, 5):
            run.send(seq)

        assert properties(lake).keys() == first.keys()
        assert len(str(properties(lake))) <= len(str(first)) + 2  # a longer number
        assert run.receipted == list(range(5))

    def test_receipts_outlive_snapshots_that_expire(self, lake: IcebergService) -> None:
        run = Run(lake).fence()
        for seq in range(3):
            run.send(seq)
        table = lake.table(TABLE)
        assert table is not None
        old = [s.snapshot_id for s in table.snapshots() if s != table.current_snapshot()]
        table.maintenance.expire_snapshots().by_ids(old).commit()

        fresh = Run(lake, epoch=2).fence()

        assert fresh.receipted == [0, 1, 2]
        assert fresh.stage(1)[0].found
        assert ids(lake) == expected(0, 1, 2)

    def test_few_manifests_and_metadata_files_are_kept(self, lake: IcebergService) -> None:
        settings = properties(Run(lake).fence().lake)

        assert settings["commit.manifest-merge.enabled"] == "true"
        assert settings["write.metadata.delete-after-commit.enabled"] == "true"

    def test_a_loser_leaves_only_a_node_that_nobody_reads(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(lake).fence()
        run.send(0)
        staged = run.stage(1)
        with monkeypatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", kill)
            with pytest.raises(Killed):
                run.committer.commit(staged)
        nodes = place(lake) / "_ckpt" / LEDGER / "flights" / "receipts"

        assert len(list(nodes.iterdir())) == 2
        assert Run(lake).receipted == [0]
        assert letter_lines(lake) == []
