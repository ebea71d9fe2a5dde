"""The delta sink's fence as a barrier, with and without a table, and its receipts in a log that is cleaned up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.delta.version import DeltaVersion
from airflow_provider_ckpt.connectors.sink_protocol import Claims
from airflow_provider_ckpt.core.errors import FencedError
from tests.integration.connectors.delta.delta_support import (
    LEDGER,
    Killed,
    Run,
    after,
    before,
    data_files,
    expected,
    ids,
    kill,
    letter_lines,
    logged_files,
    once,
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "flights"


class TestFence:
    def test_a_stale_epoch_commits_nothing_and_its_files_go(self, table: Path) -> None:
        stale = Run(table, epoch=1).fence()
        stale.send(0)
        staged = stale.stage(1)
        Run(table, epoch=2).fence()

        with pytest.raises(FencedError, match="is at epoch 2, so epoch 1 may not write any more"):
            stale.committer.commit(staged)
        with pytest.raises(FencedError):
            stale.stage(2)
        assert ids(table) == expected(0)
        assert data_files(table) == logged_files(table)

    def test_a_commit_prepared_before_the_fence_loses_to_it(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        stale, new = Run(table, epoch=1).fence(), Run(table, epoch=2)
        stale.send(0)
        staged = stale.stage(1)
        with monkeypatch.context() as patch:
            patch.setattr(delta_table, "commit", before(delta_table.commit, once(new.fence)))
            with pytest.raises(FencedError):
                stale.committer.commit(staged)

        assert new.receipted == [0]
        assert ids(table) == expected(0)

    @pytest.mark.parametrize("step", ["create", "commit"])
    @pytest.mark.parametrize("order", [before, after])
    def test_a_fence_without_a_table_holds_too(
        self, table: Path, monkeypatch: pytest.MonkeyPatch, step: str, order: Callable[..., Any]
    ) -> None:
        """The new epoch fences right before or after a stale one creates the table, or right before it commits data."""
        stale, new = Run(table, epoch=1).fence(), Run(table, epoch=2)
        staged = stale.stage(0)
        seen: list[list[int]] = []

        def take_over() -> None:
            new.fence()
            seen.append(new.receipted)

        with monkeypatch.context() as patch:
            patch.setattr(delta_table, step, order(getattr(delta_table, step), once(take_over)))
            if step == "commit" and order is after:
                stale.committer.commit(staged)
            else:
                with pytest.raises(FencedError):
                    stale.committer.commit(staged)

        assert seen == [new.receipted]  # what the fence showed is final
        new.send(0)
        assert ids(table) == expected(0)

    def test_a_fence_survives_the_process_without_a_table(self, table: Path) -> None:
        Run(table, epoch=5).fence()

        assert Run(table).sink.claims() == Claims(5, frozenset({LEDGER}))
        with pytest.raises(FencedError):
            Run(table, epoch=4).fence()
        with pytest.raises(FencedError):
            Run(table, epoch=4).stage(0)

    def test_a_fence_is_repeatable_and_reaches_the_log(self, table: Path) -> None:
        Run(table, epoch=1).fence().send(0)
        run = Run(table, epoch=2).fence()
        version = DeltaTable(table).version()

        run.fence()

        assert DeltaTable(table).version() == version
        assert DeltaTable(table).transaction_version(f"{LEDGER}:flights") == 2

    def test_the_log_alone_shuts_out_a_stale_epoch(self, table: Path) -> None:
        """A copy of the table without the fence files still knows its epoch."""
        Run(table, epoch=1).fence().send(0)
        Run(table, epoch=3).fence()
        for file in (table / "_ckpt" / LEDGER / "flights" / "fence").iterdir():
            file.unlink()

        assert Run(table).sink.claims().epoch == 3
        with pytest.raises(FencedError):
            DeltaVersion(Run(table).sink._layout, DeltaTable(table)).refuse_if_fenced(2)

    def test_claims_name_every_ledger(self, table: Path) -> None:
        assert Run(table).sink.claims() == Claims(0, frozenset())
        Run(table, epoch=2).fence()
        Run(table, epoch=7, ledger="other/../ledger").fence().send(0)

        claims = Run(table).sink.claims()
        assert (claims.epoch, claims.ledgers) == (2, frozenset({LEDGER, "other/../ledger"}))
        assert Run(table).receipted == []


class TestLog:
    def test_receipts_outlive_checkpoints_and_log_clean_up(self, table: Path) -> None:
        schema = Schema.from_arrow(pa.schema([("id", pa.int64())]))
        quick = {"delta.logRetentionDuration": "interval 0 days", "delta.checkpointInterval": "3"}
        DeltaTable.create(table, schema, configuration=quick)
        run = Run(table).fence()
        for seq in range(8):
            run.send(seq)
        handle = DeltaTable(table)
        handle.create_checkpoint()
        handle.cleanup_metadata()

        assert len(list((table / "_delta_log").glob("*.json"))) <= 2
        fresh = Run(table, epoch=2).fence()
        assert fresh.receipted == list(range(8))
        assert fresh.stage(3)[0].found
        assert ids(table) == expected(*range(8))

    def test_a_vacuum_removes_only_what_no_commit_names(self, table: Path) -> None:
        run = Run(table).fence()
        run.send(0, 1)
        orphan = run.stage(2)[0].staged["files"][0]["path"]  # type: ignore[index]

        gone = DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

        assert gone == [orphan]
        assert run.receipted == [0, 1]
        assert ids(table) == expected(0, 1)

    def test_a_handle_whose_version_was_cleaned_up_cannot_commit(self, table: Path) -> None:
        """A put-if-absent into the cleaned part of the log would succeed and be seen by nobody."""
        schema = Schema.from_arrow(pa.schema([("id", pa.int64())]))
        DeltaTable.create(table, schema, configuration={"delta.logRetentionDuration": "interval 0 days"})
        stale = DeltaTable(table)
        run = Run(table).fence()
        for seq in range(3):
            run.send(seq)
        handle = DeltaTable(table)
        handle.create_checkpoint()
        handle.cleanup_metadata()

        with pytest.raises(DeltaError):
            delta_table.commit(stale, table, [], {"a": 1}, {})
        assert delta_table.has_newer_version(stale, table)

    def test_a_loser_leaves_only_a_node_that_nobody_reads(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = Run(table).fence()
        run.send(0)
        staged = run.stage(1)
        with monkeypatch.context() as patch:
            patch.setattr(delta_table, "commit", kill)
            with pytest.raises(Killed):
                run.committer.commit(staged)
        nodes = table / "_ckpt" / LEDGER / "flights" / "receipts"

        assert len(list(nodes.iterdir())) == 2
        assert Run(table).receipted == [0]
        assert letter_lines(table) == []
