"""Harness with an Iceberg table for the conformance suite of two-phase sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow.parquet import ParquetFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import SetLocationUpdate
from pyiceberg.types import LongType, NestedField, StringType

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.iceberg.durable import DurableFileIO
from airflow_provider_ckpt.connectors.iceberg.table_version import IcebergVersion
from airflow_provider_ckpt.connectors.iceberg.writer import IcebergWriter
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from tests.integration.connectors.interruptions import Step
from tests.integration.connectors.two_phase.changes import CHANGES, LOSSES
from tests.integration.connectors.two_phase.harness import TableHarness
from tests.services.contender import to_iceberg
from tests.services.iceberg import IcebergService

TABLE = "air.flights"


class IcebergHarness(TableHarness):
    """An Iceberg table; the fence's snapshot has number 1, and those of the first run's waves 2, 3, and so on.

    :param folder: holds the catalog and its warehouse
    :param lake: another catalog
    """

    steps: ClassVar[Mapping[str, Step]] = {
        "write rows": Step(IcebergWriter, "_write"),
        "create": Step(SqlCatalog, "create_table"),
        "commit": Step(SqlCatalog, "commit_table"),
        "change columns": Step(SqlCatalog, "commit_table"),
        "prepare the commit": Step(SqlCatalog, "_update_and_stage_table"),
        "write metadata": Step(DurableFileIO, "new_output"),
        "check the fence": Step(IcebergVersion, "refuse_unless_current"),
        "write receipts": Step(ReceiptChain, "_write"),
        "open to fence": Step(SqlCatalog, "load_table"),
    }
    errors: ClassVar[Mapping[str, type[Exception]]] = {
        "unknown": CommitStateUnknownException,
        "conflict": CommitFailedException,
        "failure": OSError,
    }

    def __init__(self, folder: Path, lake: IcebergService | None = None) -> None:
        self.lake = lake or IcebergService(folder)
        self.place = self.lake.folder / "warehouse" / "air" / "flights"
        self.location = f"iceberg://lake/{TABLE}"
        self.connection: Connection = self.lake.connection

    @property
    def opened(self) -> Table:
        """The table as it is now."""
        table = self.lake.table(TABLE)
        assert table is not None
        return table

    @property
    def sink(self) -> Mapping[str, str]:
        return {"type": "iceberg", "connection": "lake", "table": TABLE}

    @property
    def version(self) -> int:
        snapshot = self.opened.current_snapshot()
        assert snapshot is not None
        return snapshot.sequence_number or 0

    def version_after(self, waves: int) -> int:
        return waves + 1

    @property
    def state(self) -> object:
        return self.opened.metadata_location

    def files(self) -> set[str]:
        return {path.name for path in self.place.rglob("*.parquet")}

    def known_files(self) -> set[str]:
        return {path.name for path in self.lake.files(TABLE)}

    def read(self) -> pa.Table:
        return self.lake.rows(TABLE)

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.opened.scan().to_arrow().sort_by("id").to_pylist()
        return rows

    def columns(self) -> list[str]:
        return [field.name for field in self.opened.schema().fields]

    def create(self, *, required: bool = False) -> None:
        self.create_with(NestedField(1, "id", LongType(), required=required))

    def create_with(self, *columns: NestedField, by: PartitionSpec | None = None) -> None:
        """Create the table, as somebody else does.

        :param columns: its columns
        :param by: how it is partitioned
        """
        with self.lake.catalog() as catalog:
            catalog.create_namespace_if_not_exists("air")
            catalog.create_table(TABLE, Schema(*columns), partition_spec=by or PartitionSpec())

    def drop(self) -> None:
        with self.lake.catalog() as catalog:
            catalog.drop_table(TABLE)

    def put_aside(self) -> Callable[[], list[int]]:
        metadata = self.opened.metadata_location
        self.drop()

        def read() -> list[int]:
            with self.lake.catalog() as catalog:
                return ids_of(catalog.register_table("air.again", metadata))

        return read

    def at_this_version(self) -> Callable[[], list[int]]:
        snapshot = self.opened.metadata.current_snapshot_id
        return lambda: ids_of(self.opened, snapshot)

    def restore(self, waves: int) -> None:
        table, number = self.opened, self.version_after(waves)
        (found,) = (s.snapshot_id for s in table.snapshots() if s.sequence_number == number)
        table.manage_snapshots().set_current_snapshot(found).commit()

    def open_writer(self) -> Callable[[int], None]:
        table = self.opened
        return lambda number: table.append(pa.table({"id": pa.array([number], pa.int64())}))

    def commit_nothing(self) -> None:
        to_iceberg(str(self.lake.folder), TABLE)()

    def add_column(self, name: str) -> None:
        with self.opened.update_schema() as update:
            update.add_column(name, StringType())

    def delete(self, condition: str | None = None) -> None:
        self.opened.delete(condition or AlwaysTrue())

    def compact(self) -> None:
        self.opened.overwrite(self.opened.scan().to_arrow())

    def clean_up_history(self) -> None:
        table = self.opened
        old = [s.snapshot_id for s in table.snapshots() if s.snapshot_id != table.metadata.current_snapshot_id]
        table.maintenance.expire_snapshots().by_ids(old).commit()

    def fake_commit(self, *arguments: Any, **named: Any) -> Any:
        _, table, *_ = arguments
        return CommitTableResponse(metadata=table.metadata, metadata_location=table.metadata_location)

    def contender(self, rate: int) -> Sequence[object]:
        return ("iceberg", self.lake.folder, TABLE, rate)

    def rename_column(self) -> None:
        """Rename the column ``id``."""
        with self.opened.update_schema() as update:
            update.rename_column("id", "key")


def ids_of(table: Table, snapshot: int | None = None) -> list[int]:
    """The ids of a table, read file by file.

    :param table: the table
    :param snapshot: id of a snapshot, the newest by default
    """
    found = []
    for task in table.scan(snapshot_id=snapshot).plan_files():
        path = task.file.file_path.removeprefix("file://")
        found += ParquetFile(path).read(use_threads=False).column("id").to_pylist()
    return sorted(found)


def upsert(table: IcebergHarness) -> None:
    table.opened.upsert(pa.table({"id": pa.array([5, 77], pa.int64())}), join_cols=["id"])


def tag(table: IcebergHarness) -> None:
    opened = table.opened
    newest = opened.metadata.current_snapshot_id
    assert newest is not None
    with opened.manage_snapshots() as manage:
        manage.create_tag(newest, "today").create_branch(newest, "audit")


def compact_and_clean_up(table: IcebergHarness) -> None:
    table.append(99)
    table.compact()
    table.clean_up_history()


def move_elsewhere(table: IcebergHarness) -> None:
    """Alter the location, which leaves the bookkeeping behind."""
    opened = table.opened
    opened.catalog.commit_table(opened, (), (SetLocationUpdate(location=f"file://{table.lake.folder}/elsewhere"),))


IcebergHarness.changes = (*CHANGES, upsert, tag, compact_and_clean_up)
IcebergHarness.losses = (*LOSSES, move_elsewhere)
