"""Targets of a refresh for tests that every sink with ``mode: replace`` must pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from airflow_provider_ckpt.connectors.connection import Connection
from tests.integration.connectors.sql.sql_support import Database, MariaDb, Sqlite, staging_tables
from tests.services.delta import read_delta
from tests.services.iceberg import IcebergService
from tests.services.mariadb import MariaDbServer
from tests.services.replication import DATABASE
from tests.services.tables import execute, make_target, scalar

_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "customer": pa.int32(),
        "amount": pa.float64(),
        "created_at": pa.timestamp("us", "UTC"),
        "status": pa.string(),
        "note": pa.string(),
    }
)


class RefreshedTarget(ABC):
    """A target that has some rows of an older source.

    :param dsn: database of the source
    :param folder: directory for files
    """

    sink: Mapping[str, Any]
    """The pipeline's section ``sink``."""

    connections: Mapping[str, Connection] = {}
    """Connections by id, beside that of the database."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn, self.folder = dsn, folder

    @abstractmethod
    def fill(self, rows: list[tuple[Any, ...]]) -> None:
        """Create the target with rows."""

    @abstractmethod
    def append(self, rows: list[tuple[Any, ...]]) -> None:
        """Add rows, as another writer."""

    @abstractmethod
    def rows(self) -> list[tuple[Any, ...]]:
        """All rows, as a reader sees them now."""

    @abstractmethod
    def staged(self) -> int:
        """Number of staging tables, or of files that only wait to be published."""

    @abstractmethod
    def lose_staged(self) -> None:
        """Remove something that is staged."""

    def copied(self) -> tuple[int, int]:
        """Return the number of rows of the target, and of those that the source has, too."""
        rows = self.rows()
        return len(rows), len(set(rows) & set(execute(self.dsn, "SELECT * FROM countries")))


class PostgresTarget(RefreshedTarget):
    sink: Mapping[str, Any] = {"type": "postgres", "connection": DATABASE, "table": "copied", "mode": "replace"}

    def fill(self, rows: list[tuple[Any, ...]]) -> None:
        make_target(self.dsn, "copied", key="PRIMARY KEY")
        self.append(rows)
        execute(self.dsn, "CREATE VIEW seen AS SELECT * FROM copied")

    def append(self, rows: list[tuple[Any, ...]]) -> None:
        values = ", ".join(["(%s, %s, %s, %s, %s, %s)"] * len(rows))
        execute(self.dsn, f"INSERT INTO copied VALUES {values}", parameters=[value for row in rows for value in row])

    def rows(self) -> list[tuple[Any, ...]]:
        return execute(self.dsn, "SELECT * FROM seen")

    def staged(self) -> int:
        return int(scalar(self.dsn, "SELECT count(*) FROM pg_class WHERE relname LIKE 'ckpt_stage%' AND relkind = 'r'"))

    def lose_staged(self) -> None:
        execute(self.dsn, "TRUNCATE ckpt_stage_2_copied")


class RenamedTarget(PostgresTarget):
    """A table that each refresh takes the place of."""

    sink: Mapping[str, Any] = {**PostgresTarget.sink, "replace": {"swap": "rename"}}

    def fill(self, rows: list[tuple[Any, ...]]) -> None:
        make_target(self.dsn, "copied", key="PRIMARY KEY")
        self.append(rows)

    def rows(self) -> list[tuple[Any, ...]]:
        return execute(self.dsn, "SELECT * FROM copied")


class SqlTarget(RefreshedTarget):
    """A table of MariaDB or SQLite.

    :param database: the database
    """

    sink: Mapping[str, Any] = {"type": "sql", "connection": "reports", "table": "copied", "mode": "replace"}

    def __init__(self, dsn: str, folder: Path, database: Database) -> None:
        super().__init__(dsn, folder)
        self.database = database
        self.connections = {"reports": database.connection}

    def fill(self, rows: list[tuple[Any, ...]]) -> None:
        self.database.execute(
            "CREATE TABLE copied (id bigint NOT NULL PRIMARY KEY, customer int NOT NULL, amount double NOT NULL,"
            " created_at datetime(6) NOT NULL, status varchar(20) NOT NULL, note text NOT NULL)"
        )
        self.append(rows)
        self.database.execute("CREATE VIEW seen AS SELECT * FROM copied")

    def append(self, rows: list[tuple[Any, ...]]) -> None:
        values = ", ".join(["(%s, %s, %s, %s, %s, %s)"] * len(rows))
        parameters = [
            value.astimezone(UTC).replace(tzinfo=None).isoformat(" ") if isinstance(value, datetime) else value
            for row in rows
            for value in row
        ]
        self.database.execute(f"INSERT INTO copied VALUES {values}", parameters=parameters)

    def rows(self) -> list[tuple[Any, ...]]:
        found = self.database.execute("SELECT * FROM seen")
        return [(*row[:3], datetime.fromisoformat(str(row[3])).replace(tzinfo=UTC), *row[4:]) for row in found]

    def staged(self) -> int:
        return len(staging_tables(self.database))

    def lose_staged(self) -> None:
        [name] = staging_tables(self.database)
        self.database.execute(f"DELETE FROM {name}")


class LakeTarget(RefreshedTarget):
    """A table in a directory."""

    place: Path

    @abstractmethod
    def files(self) -> set[str]:
        """Names of the table's data files."""

    @abstractmethod
    def restore(self) -> None:
        """Set the table back to what it was when it was filled, as its owner does."""

    def staged(self) -> int:
        return len(self.waiting())

    def lose_staged(self) -> None:
        self.waiting()[0].unlink()

    def waiting(self) -> list[Path]:
        """The files of the newest generation that is not published."""
        files = [path for path in self.place.rglob("ckpt-*.parquet") if path.name not in self.files()]
        newest = max((_generation(path) for path in files), default=0)
        published = max(map(_generation, map(Path, self.files())), default=0)
        return [path for path in files if _generation(path) == newest > published]


class DeltaTarget(LakeTarget):
    def __init__(self, dsn: str, folder: Path) -> None:
        super().__init__(dsn, folder)
        self.place = folder / "copied"
        self.sink = {"type": "delta", "path": str(self.place), "mode": "replace"}

    def fill(self, rows: list[tuple[Any, ...]]) -> None:
        self.append(rows)

    def append(self, rows: list[tuple[Any, ...]]) -> None:
        write_deltalake(self.place, _table(rows), mode="append")

    def rows(self) -> list[tuple[Any, ...]]:
        return _rows(read_delta(self.place))

    def restore(self) -> None:
        DeltaTable(self.place).restore(0)

    def files(self) -> set[str]:
        return set(pa.table(DeltaTable(self.place).get_add_actions())["path"].to_pylist())


class IcebergTarget(LakeTarget):
    sink: Mapping[str, Any] = {"type": "iceberg", "connection": "lake", "table": "shop.copied", "mode": "replace"}

    def __init__(self, dsn: str, folder: Path) -> None:
        super().__init__(dsn, folder)
        self._lake = IcebergService(folder)
        self.place = folder / "warehouse" / "shop" / "copied"
        self.connections = {"lake": self._lake.connection}

    def fill(self, rows: list[tuple[Any, ...]]) -> None:
        with self._lake.catalog() as catalog:
            catalog.create_namespace_if_not_exists("shop")
            catalog.create_table("shop.copied", _SCHEMA)
        self.append(rows)

    def append(self, rows: list[tuple[Any, ...]]) -> None:
        with self._lake.catalog() as catalog:
            catalog.load_table("shop.copied").append(_table(rows))

    def rows(self) -> list[tuple[Any, ...]]:
        return _rows(self._lake.rows("shop.copied"))

    def restore(self) -> None:
        with self._lake.catalog() as catalog:
            table = catalog.load_table("shop.copied")
            table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()

    def files(self) -> set[str]:
        return {path.name for path in self._lake.files("shop.copied")}


TARGETS: Mapping[str, Callable[[str, Path, Callable[[], MariaDbServer]], RefreshedTarget]] = {
    "postgres": lambda dsn, folder, _: PostgresTarget(dsn, folder),
    "postgres_renamed": lambda dsn, folder, _: RenamedTarget(dsn, folder),
    "mariadb": lambda dsn, folder, server: SqlTarget(dsn, folder, MariaDb(server())),
    "sqlite": lambda dsn, folder, _: SqlTarget(dsn, folder, Sqlite(folder)),
    "delta": lambda dsn, folder, _: DeltaTarget(dsn, folder),
    "iceberg": lambda dsn, folder, _: IcebergTarget(dsn, folder),
}
"""Functions that return a target, given the source's database, a directory, and a function that returns the MariaDB
server."""


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table(
        [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), _SCHEMA.types, strict=True)], _SCHEMA
    )


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def _generation(path: Path) -> int:
    _, generation, *_ = path.name.split("-")
    return int(generation) if generation.isdecimal() else 0
