"""Files that a Delta or Iceberg table needs and that are gone: each is named, wherever the table says that it lies."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.transaction import AddAction

from tests.integration.connectors.delta import delta_support as delta
from tests.integration.connectors.iceberg import iceberg_support as iceberg
from tests.services.iceberg import IcebergService


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "flights of today"


@pytest.fixture
def lake(tmp_path: Path) -> IcebergService:
    return IcebergService(tmp_path)


class TestDelta:
    def test_no_file_is_missed_without_a_table_or_in_a_whole_one(self, table: Path) -> None:
        run = delta.Run(table).fence()
        assert list(run.sink.damaged_files()) == []
        run.send(0, 1)

        assert list(run.sink.damaged_files()) == []

    def test_a_file_that_is_gone_or_cut_off_is_named(self, table: Path) -> None:
        run = delta.Run(table).fence()
        run.send(0, 1, 2)
        gone, short, _ = (table / name for name in sorted(delta.data_files(table)))
        gone.unlink()
        size = short.stat().st_size
        short.write_bytes(b"PAR1")

        assert set(run.sink.damaged_files()) == {
            f"the file {short} holds 4 bytes, and the table says {size}",
            f"the file {gone} is missing",
        }

    def test_names_are_decoded_as_the_log_encodes_them(self, table: Path) -> None:
        write_deltalake(table, pa.table({"id": [1, 2], "of": ["x y%z", "b/c"]}), partition_by=["of"])
        sink = delta.Run(table).sink
        assert list(sink.damaged_files()) == []
        lost = sorted(table.rglob("of=*/*.parquet"))[0]
        lost.unlink()

        assert list(sink.damaged_files()) == [f"the file {lost} is missing"]

    def test_a_shallow_clone_names_files_of_another_table(self, table: Path, tmp_path: Path) -> None:
        delta.Run(table).fence().send(0)
        (name,) = delta.data_files(table)
        clone = tmp_path / "clone"
        DeltaTable.create(clone, DeltaTable(table).schema())
        handle, size = DeltaTable(clone), (table / name).stat().st_size
        handle.create_write_transaction(
            [AddAction(f"file://{table / name}", size, {}, 0, True, "{}")], "append", handle.schema()
        )
        sink = delta.Run(clone).sink
        assert list(sink.damaged_files()) == []
        (table / name).unlink()

        assert list(sink.damaged_files()) == [f"the file {table / name} is missing"]


class TestIceberg:
    def test_no_file_is_missed_without_a_table_or_in_a_whole_one(self, lake: IcebergService) -> None:
        run = iceberg.Run(lake)
        assert list(run.sink.damaged_files()) == []
        run.fence().send(0, 1)

        assert list(run.sink.damaged_files()) == []

    def test_a_data_file_a_manifest_or_a_list_of_them_that_is_gone_is_named(self, lake: IcebergService) -> None:
        run = iceberg.Run(lake).fence()
        run.send(0, 1)
        table = lake.table(iceberg.TABLE)
        assert table is not None
        snapshot = table.current_snapshot()
        assert snapshot is not None
        (manifest,) = snapshot.manifests(table.io)
        for lost in (lake.files(iceberg.TABLE)[0], *map(local, (manifest.manifest_path, snapshot.manifest_list))):
            lost.unlink()

            assert list(run.sink.damaged_files()) == [f"the file {lost} is missing"]


def local(location: str) -> Path:
    return Path(location.removeprefix("file://"))
