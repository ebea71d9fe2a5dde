"""Tests of the sink's entries in a Delta log: epochs, receipts, statistics and files, also after log clean-up."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction

from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.delta.layout import DeltaLayout
from airflow_provider_ckpt.connectors.delta.table_version import DeltaVersion
from airflow_provider_ckpt.connectors.storage.local import LocalLocation
from airflow_provider_ckpt.core.errors import FencedError
from tests.integration.connectors.batches import LEDGER, content, expected, task
from tests.integration.connectors.delta.delta_harness import DeltaHarness
from tests.integration.connectors.two_phase.harness import Run

LONG = Schema.from_arrow(pa.schema([("id", pa.int64())]))


class TestFence:
    def test_the_log_alone_shuts_out_a_stale_epoch(self, table: DeltaHarness) -> None:
        """A copy of the table without the fence files still knows its epoch."""
        Run(table, epoch=1).fence().send(0)
        Run(table, epoch=3).fence()
        for file in (table.bookkeeping / "fence").iterdir():
            file.unlink()

        assert Run(table).sink.claims().epoch == 3
        with pytest.raises(FencedError):
            DeltaVersion(DeltaLayout(LocalLocation(table.place), LEDGER, "flights"), table.opened).refuse_if_fenced(2)


class TestCleanUp:
    def test_receipts_outlive_checkpoints_that_are_made_every_few_commits(self, table: DeltaHarness) -> None:
        quick = {"delta.logRetentionDuration": "interval 0 days", "delta.checkpointInterval": "3"}
        DeltaTable.create(table.place, LONG, configuration=quick)
        run = Run(table).fence()
        for seq in range(8):
            run.send(seq)
        table.clean_up_history()

        fresh = Run(table, epoch=2).fence()
        assert fresh.receipted == list(range(8))
        assert fresh.stage(3)[0].receipt_existed
        assert table.ids() == expected(*range(8))

    def test_a_vacuum_removes_only_what_no_commit_names(self, table: DeltaHarness) -> None:
        run = Run(table).fence()
        run.send(0, 1)
        orphan = run.stage(2)[0].staged["files"][0]["path"]  # type: ignore[index]

        gone = table.opened.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

        assert gone == [orphan]
        assert run.receipted == [0, 1]
        assert table.ids() == expected(0, 1)

    def test_a_handle_whose_version_was_cleaned_up_cannot_commit(self, table: DeltaHarness) -> None:
        """A put-if-absent into the cleaned part of the log would succeed and be seen by nobody."""
        table.create()
        stale = table.opened
        run = Run(table).fence()
        for seq in range(3):
            run.send(seq)
        table.clean_up_history()

        with pytest.raises(DeltaError):
            delta_table.commit(stale, LocalLocation(table.place), [], {"a": 1}, {})
        assert delta_table.has_newer_version(stale, LocalLocation(table.place))


class TestFiles:
    def test_statistics_let_readers_skip_files(self, table: DeltaHarness) -> None:
        run = Run(table).fence()
        at = pa.array([1_500_001, *[None] * 9], pa.timestamp("us", tz="UTC"))
        run.commit(run.writer.deliver(task(0), content(0, at=at)))

        (action,) = pa.table(table.opened.get_add_actions(flatten=True)).to_pylist()

        assert (action["num_records"], action["min.id"], action["max.id"]) == (10, 0, 9)
        assert (action["null_count.id"], action["null_count.at"]) == (0, 9)
        assert action["min.at"].isoformat() == "1970-01-01T00:00:01.500000+00:00"
        assert action["max.at"].isoformat() == "1970-01-01T00:00:01.501000+00:00"

    def test_names_of_missing_files_are_decoded_as_the_log_encodes_them(self, table: DeltaHarness) -> None:
        write_deltalake(table.place, pa.table({"id": [1, 2], "of": ["x y%z", "b/c"]}), partition_by=["of"])
        sink = Run(table).sink
        assert list(sink.damaged_files()) == []
        lost = sorted(table.place.rglob("of=*/*.parquet"))[0]
        lost.unlink()

        assert list(sink.damaged_files()) == [f"the file {lost} is missing"]

    def test_a_shallow_clone_names_files_of_another_table(self, table: DeltaHarness, tmp_path: Path) -> None:
        Run(table).fence().send(0)
        (name,) = table.files()
        file, clone = table.place / name, DeltaHarness(tmp_path / "clone")
        DeltaTable.create(clone.place, table.opened.schema())
        handle = clone.opened
        action = AddAction(f"file://{file}", file.stat().st_size, {}, 0, True, "{}")
        handle.create_write_transaction([action], "append", handle.schema())
        sink = Run(clone).sink
        assert list(sink.damaged_files()) == []
        file.unlink()

        assert list(sink.damaged_files()) == [f"the file {file} is missing"]
