"""Targets that a reader watches while refreshes are killed; see ``test_refresh_crashes.py``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.delta.layout import DeltaLayout
from airflow_provider_ckpt.connectors.iceberg.layout import IcebergLayout
from airflow_provider_ckpt.connectors.storage.local import LocalLocation
from airflow_provider_ckpt.connectors.two_phase.layout import TableLayout
from airflow_provider_ckpt.connectors.two_phase.receipt_nodes import CommittedReceipt
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.core.batch_key import BatchKey
from tests.chaos.crash_points.generations import VALUES, Seen
from tests.integration.connectors.sql.sql_support import Database, MariaDb, Sqlite, staging_tables
from tests.services.delta import read_delta
from tests.services.iceberg import IcebergService
from tests.services.mariadb import MariaDbServer
from tests.services.replication import DATABASE
from tests.services.tables import execute, scalar

PIPELINE = "countries"


class Target(ABC):
    """Target with the columns of the source.

    :param dsn: database of the source
    :param folder: directory for files
    :param ledger: id of the ledger
    """

    sink: Mapping[str, Any]
    """The pipeline's section ``sink``, without ``mode``."""

    connections: Mapping[str, Connection] = {}
    """Connections by id, beside that of the database."""

    def __init__(self, dsn: str, folder: Path, ledger: str) -> None:
        self.dsn, self.folder, self.ledger = dsn, folder, ledger

    @abstractmethod
    def create(self, rows: int) -> None:
        """Create the target with rows of version 0."""

    @abstractmethod
    def seen(self) -> Seen:
        """Number of rows, least and greatest version, as a reader sees them now."""

    @abstractmethod
    def published(self) -> list[BatchKey]:
        """The batches that the sink's receipts say to have published, oldest first."""

    @abstractmethod
    def leftovers(self) -> int:
        """Number of staging tables, or of staged files of refreshes that were not published."""


class PostgresTarget(Target):
    sink: Mapping[str, Any] = {"type": "postgres", "connection": DATABASE, "table": "copied"}

    def create(self, rows: int) -> None:
        execute(
            self.dsn,
            "CREATE TABLE copied (LIKE countries INCLUDING ALL)",
            f"INSERT INTO copied {VALUES.format(version=0, rows=rows)}",
            "CREATE VIEW newest AS SELECT max(version) FROM copied",
        )

    def seen(self) -> Seen:
        [(count, least, greatest)] = execute(self.dsn, "SELECT count(*), min(version), max(version) FROM copied")
        return count, least, greatest

    def published(self) -> list[BatchKey]:
        query = "SELECT generation, partition, seq FROM ckpt_sink_receipt WHERE added IS NOT NULL ORDER BY at"
        return [BatchKey(*row) for row in execute(self.dsn, query)]

    def leftovers(self) -> int:
        return int(scalar(self.dsn, "SELECT count(*) FROM pg_class WHERE relname LIKE 'ckpt_stage%'"))


class RenamedTarget(PostgresTarget):
    """A table that each refresh takes the place of, so that no view may depend on it."""

    sink: Mapping[str, Any] = {**PostgresTarget.sink, "replace": {"swap": "rename"}}

    def create(self, rows: int) -> None:
        super().create(rows)
        execute(self.dsn, "DROP VIEW newest")


class SqlTarget(Target):
    """A table of MariaDB or SQLite.

    :param database: the database
    """

    sink: Mapping[str, Any] = {"type": "sql", "connection": "reports", "table": "copied"}

    def __init__(self, dsn: str, folder: Path, ledger: str, database: Database) -> None:
        super().__init__(dsn, folder, ledger)
        self.database = database
        self.connections = {"reports": database.connection}

    def create(self, rows: int) -> None:
        values = ", ".join(f"({number}, 0, 'x')" for number in range(1, rows + 1))
        self.database.execute(
            "CREATE TABLE copied (id bigint NOT NULL PRIMARY KEY, version bigint NOT NULL, filler text NOT NULL)",
            f"INSERT INTO copied VALUES {values}",
        )

    def seen(self) -> Seen:
        [(count, least, greatest)] = self.database.execute("SELECT count(*), min(version), max(version) FROM copied")
        return count, least, greatest

    def published(self) -> list[BatchKey]:
        query = "SELECT generation, `partition`, seq FROM ckpt_sink_receipt WHERE added IS NOT NULL ORDER BY at"
        return [BatchKey(*row) for row in self.database.execute(query)]

    def leftovers(self) -> int:
        return len(staging_tables(self.database))


class LakeTarget(Target):
    """A table in a directory."""

    @abstractmethod
    def append(self, rows: pa.Table) -> None:
        """Create the table, and add rows."""

    @abstractmethod
    def read(self) -> pa.Table:
        """All rows, at least with the column ``version``."""

    @abstractmethod
    def chain(self) -> tuple[TableLayout, int | None]:
        """The pipeline's files at the table, and the head of its receipts."""

    def create(self, rows: int) -> None:
        numbers = pa.array(range(1, rows + 1), pa.int64())
        columns = {"id": numbers, "version": pa.array([0] * rows, pa.int64()), "filler": pa.array(["x"] * rows)}
        self.append(pa.table(columns))

    def seen(self) -> Seen:
        versions = self.read().column("version")
        found = pc.min_max(versions).as_py()
        return len(versions), found["min"], found["max"]

    def published(self) -> list[BatchKey]:
        return [entry.receipt.key for entry in self._entries() if entry.staged is None]

    def leftovers(self) -> int:
        published = {key.generation for key in self.published()}
        layout, _ = self.chain()
        return sum(
            layout.table.resolve(file["path"]).size() is not None
            for entry in self._entries()
            if entry.staged is not None and entry.receipt.key.generation not in published
            for file in entry.staged["files"]
        )

    def _entries(self) -> list[CommittedReceipt]:
        layout, head = self.chain()
        return [entry for node in ReceiptChain(layout).nodes(head) for entry in reversed(node.entries)][::-1]


class DeltaTarget(LakeTarget):
    def __init__(self, dsn: str, folder: Path, ledger: str) -> None:
        super().__init__(dsn, folder, ledger)
        self._place = folder / "copied"
        self.sink = {"type": "delta", "path": str(self._place)}

    def append(self, rows: pa.Table) -> None:
        write_deltalake(self._place, rows)

    def read(self) -> pa.Table:
        return read_delta(self._place, ["version"])

    def chain(self) -> tuple[TableLayout, int | None]:
        layout = DeltaLayout(LocalLocation(self._place), self.ledger, PIPELINE)
        return layout, DeltaTable(self._place).transaction_version(layout.receipts_app)


class IcebergTarget(LakeTarget):
    sink: Mapping[str, Any] = {"type": "iceberg", "connection": "lake", "table": "shop.copied"}

    def __init__(self, dsn: str, folder: Path, ledger: str) -> None:
        super().__init__(dsn, folder, ledger)
        self._lake = IcebergService(folder)
        self.connections = {"lake": self._lake.connection}

    def append(self, rows: pa.Table) -> None:
        with self._lake.catalog() as catalog:
            catalog.create_namespace_if_not_exists("shop")
            catalog.create_table("shop.copied", rows.schema).append(rows)

    def read(self) -> pa.Table:
        return self._lake.rows("shop.copied")

    def chain(self) -> tuple[TableLayout, int | None]:
        place = LocalLocation(self.folder / "warehouse" / "shop" / "copied")
        layout = IcebergLayout(place, self.ledger, PIPELINE)
        table = self._lake.table("shop.copied")
        assert table is not None
        return layout, int(table.properties[layout.head_property])


TARGETS: Mapping[str, Callable[[str, Path, str, Callable[[], MariaDbServer]], Target]] = {
    "postgres": lambda dsn, folder, ledger, _: PostgresTarget(dsn, folder, ledger),
    "postgres_renamed": lambda dsn, folder, ledger, _: RenamedTarget(dsn, folder, ledger),
    "mariadb": lambda dsn, folder, ledger, server: SqlTarget(dsn, folder, ledger, MariaDb(server())),
    "sqlite": lambda dsn, folder, ledger, _: SqlTarget(dsn, folder, ledger, Sqlite(folder)),
    "delta": lambda dsn, folder, ledger, _: DeltaTarget(dsn, folder, ledger),
    "iceberg": lambda dsn, folder, ledger, _: IcebergTarget(dsn, folder, ledger),
}
"""Functions that return a target, given the database of the source, a directory, the ledger's id, and a function that
returns the MariaDB server."""
