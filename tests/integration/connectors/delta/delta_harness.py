"""Harness with a Delta table for the conformance suite of two-phase sinks."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import PrimitiveType

from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.delta.table_version import DeltaVersion
from airflow_provider_ckpt.connectors.delta.writer import DeltaWriter
from airflow_provider_ckpt.connectors.storage.local import LocalLocation
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from tests.integration.connectors.interruptions import Step
from tests.integration.connectors.two_phase.changes import CHANGES, LOSSES
from tests.integration.connectors.two_phase.harness import TableHarness
from tests.services.contender import to_delta
from tests.services.delta import read_delta


class DeltaHarness(TableHarness):
    """A Delta table; the first run's waves create versions 1, 2, and so on."""

    steps: ClassVar[Mapping[str, Step]] = {
        "write rows": Step(DeltaWriter, "_write"),
        "create": Step(delta_table, "create"),
        "commit": Step(delta_table, "commit"),
        "change columns": Step(delta_table, "add_columns"),
        "check the fence": Step(DeltaVersion, "refuse_unless_current"),
        "write receipts": Step(ReceiptChain, "_write"),
        "open to fence": Step(LocalLocation, "write"),
    }
    errors: ClassVar[Mapping[str, type[Exception]]] = {
        "unknown": DeltaError,
        "conflict": CommitFailedError,
        "failure": OSError,
    }
    losses = LOSSES

    def __init__(self, folder: Path) -> None:
        self.place = folder / "lake" / "flights"
        self.location = f"delta://{self.place}"

    @property
    def opened(self) -> DeltaTable:
        """The table as it is now."""
        return DeltaTable(self.place)

    @property
    def sink(self) -> Mapping[str, str]:
        return {"type": "delta", "path": str(self.place)}

    @property
    def version(self) -> int:
        return self.opened.version()

    def version_after(self, waves: int) -> int:
        return waves

    @property
    def state(self) -> object:
        return self.version

    def files(self) -> set[str]:
        return {path.name for path in self.place.glob("*.parquet")}

    def known_files(self) -> set[str]:
        return {Path(uri).name for uri in self.opened.file_uris()}

    def read(self) -> pa.Table:
        return read_delta(self.place) if DeltaTable.is_deltatable(str(self.place)) else pa.table({})

    def rows(self) -> list[dict[str, Any]]:
        rows: pa.Table = self.opened.to_pyarrow_dataset().to_table(use_threads=False)
        found: list[dict[str, Any]] = rows.sort_by("id").to_pylist()
        return found

    def columns(self) -> list[str]:
        return [field.name for field in self.opened.schema().fields]

    def create(self, *, required: bool = False) -> None:
        DeltaTable.create(self.place, Schema([Field("id", PrimitiveType("long"), nullable=not required)]))

    def drop(self) -> None:
        shutil.rmtree(self.place)

    def put_aside(self) -> Callable[[], list[int]]:
        log, aside = self.place / "_delta_log", self.place.with_name("log")
        log.rename(aside)

        def read() -> list[int]:
            shutil.rmtree(log)
            aside.rename(log)
            return self.ids()

        return read

    def at_this_version(self) -> Callable[[], list[int]]:
        version = self.version
        return lambda: sorted(read_delta(self.place, version=version).column("id").to_pylist())

    def restore(self, waves: int) -> None:
        self.opened.restore(self.version_after(waves))

    def open_writer(self) -> Callable[[int], None]:
        table = self.opened
        return lambda number: write_deltalake(table, rows(id=[number]), mode="append")

    def commit_nothing(self) -> None:
        to_delta(str(self.place))()

    def add_column(self, name: str) -> None:
        self.opened.alter.add_columns([Field(name, PrimitiveType("string"))])

    def delete(self, condition: str | None = None) -> None:
        self.opened.delete(condition)

    def compact(self) -> None:
        self.opened.optimize.compact()

    def clean_up_history(self) -> None:
        self.opened.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
        table = self.opened
        table.create_checkpoint()
        table.cleanup_metadata()
        assert len(list((self.place / "_delta_log").glob("*.json"))) <= 2

    def fake_commit(self, *arguments: Any, **named: Any) -> Any:
        return None

    def contender(self, rate: int) -> Sequence[object]:
        return ("delta", self.place, rate)


def rows(**columns: list[int]) -> pa.Table:
    """Rows of integers."""
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def z_order(table: DeltaHarness) -> None:
    table.opened.optimize.z_order(["id"])


def update(table: DeltaHarness) -> None:
    table.opened.update(predicate="id = 4", updates={"id": "400"})


def merge(table: DeltaHarness) -> None:
    merger = table.opened.merge(rows(id=[5, 77]), "s.id = t.id", "s", "t")
    merger.when_matched_delete().when_not_matched_insert_all().execute()


def overwrite(table: DeltaHarness) -> None:
    write_deltalake(table.place, rows(id=[99]), mode="overwrite")


def overwrite_schema(table: DeltaHarness) -> None:
    write_deltalake(table.place, rows(id=[1], other=[2]), mode="overwrite", schema_mode="overwrite")


def set_property(table: DeltaHarness) -> None:
    table.opened.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 days"})


def vacuum(table: DeltaHarness) -> None:
    table.compact()
    table.opened.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)


DeltaHarness.changes = (*CHANGES, z_order, update, merge, overwrite, overwrite_schema, set_property, vacuum)
