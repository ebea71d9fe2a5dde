"""Targets of a storm (database table, Delta, Iceberg), and functions that read their rows and receipts."""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar, cast

import pyarrow as pa
import pymysql
from deltalake import DeltaTable

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.delta.sink import DeltaSink
from airflow_provider_ckpt.connectors.iceberg.sink import IcebergSink
from airflow_provider_ckpt.connectors.postgres.sink import PostgresSink
from airflow_provider_ckpt.connectors.postgres.type_widening import can_store
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.sql.mysql import MySqlDialect
from airflow_provider_ckpt.connectors.sql.sink import SqlSink
from airflow_provider_ckpt.connectors.sql.sqlite import SqliteDialect
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.connectors.two_phase.type_widening import is_wider
from tests.services.iceberg import IcebergService
from tests.services.replication import orders_pipeline
from tests.services.tables import execute

COLUMNS = """
SELECT attname::text, attnum::int, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_RECEIPTS = "SELECT generation, partition, seq, range_start, range_end, at FROM ckpt_sink_receipt"
_SCHEMA_RECEIPTS = "SELECT replay, at FROM ckpt_sink_replay WHERE left(partition, 7) = 'schema:'"

REPORTS = "reports"
"""The id of the connection of a sink of the type ``sql``."""

Rows = Mapping[int, Sequence[Mapping[str, str | None]]]
"""Text of each value by column, for each row with an id."""


class Target(ABC):
    """A target whose columns follow those of ``items``.

    :param dsn: database of the source
    :param folder: holds the target, if it is no table of a database
    :param connections: connections of the sink that the storm provides, by id
    :cvar wider: the types that the target can get, by the narrower type
    :cvar renames: whether the target renames columns; otherwise a renamed column is a new one
    :cvar sink_class: the sink whose changes of columns a worker interrupts
    :cvar altering: class whose method ``alter_columns`` changes the columns, if a worker can be interrupted there
    """

    wider: ClassVar[Mapping[str, str]] = {
        "integer": "bigint",
        "character varying(8)": "text",
        "real": "double precision",
    }
    renames: ClassVar[bool] = True
    sink_class: ClassVar[type]
    altering: ClassVar[type | None] = None

    def __init__(self, dsn: str, folder: Path, connections: Mapping[str, Connection]) -> None:
        self.dsn, self.folder, self.given = dsn, folder, connections

    @property
    @abstractmethod
    def sink(self) -> Mapping[str, Any]:
        """The section ``sink`` of the pipeline."""

    @property
    def connections(self) -> Mapping[str, Connection]:
        """Connections of the sink, by id, without that to the source's database."""
        return self.given

    @property
    def document(self) -> dict[str, Any]:
        """The pipeline, which follows every change that the target can follow."""
        renamed = "follow" if self.renames else "as_new"
        policy = {"new_column": "evolve", "wider_type": "evolve", "dropped_column": "keep", "renamed_column": renamed}
        return {
            **orders_pipeline(source="items"),
            "sink": self.sink,
            "commit_strategy": {"commit_interval": 5},
            "retry": {"initial_delay_ms": 10, "max_attempts": 10},
            "schema": policy,
        }

    def create(self, columns: str) -> None:  # noqa: B027  # a lake needs nothing
        """Create the target with these columns, unless the first run does so."""

    @abstractmethod
    def types(self) -> Mapping[str, str]:
        """Type of each column, by name."""

    @abstractmethod
    def rows(self) -> Rows:
        """The rows by id."""

    @abstractmethod
    def receipts(self, ledger: str) -> tuple[Sequence[tuple[Any, ...]], Sequence[tuple[dict[str, Any], Any]]]:
        """Return the receipts of batches and of versions.

        :param ledger: id of the ledger
        :return: generation, partition, seq, start, end and time of each batch; document and time of each version
        """

    @abstractmethod
    def can_store(self, held: str, kind: str) -> bool:
        """Return whether a column of the target stores all values of a type of the source."""


class PostgresTarget(Target):
    """A table in the database of the source."""

    sink_class = PostgresSink

    @property
    def sink(self) -> Mapping[str, Any]:
        return {**orders_pipeline()["sink"], "table": "items_target"}

    def create(self, columns: str) -> None:
        execute(self.dsn, f"CREATE TABLE items_target ({columns})")

    def types(self) -> Mapping[str, str]:
        return {name: kind for name, _, kind in execute(self.dsn, COLUMNS, parameters=["items_target"])}

    def rows(self) -> Rows:
        names = list(self.types())
        texts = ", ".join(f'"{name}"::text' for name in names)
        found: dict[int, list[Mapping[str, str | None]]] = {}
        for row in execute(self.dsn, f"SELECT {texts} FROM items_target"):
            found.setdefault(int(row[0]), []).append(dict(zip(names, row, strict=True)))
        return found

    def receipts(self, ledger: str) -> tuple[Sequence[tuple[Any, ...]], Sequence[tuple[dict[str, Any], Any]]]:
        return execute(self.dsn, _RECEIPTS), execute(self.dsn, _SCHEMA_RECEIPTS)

    def can_store(self, held: str, kind: str) -> bool:
        return can_store(held, kind)


class SqlTarget(Target):
    """A table of a database of the type ``sql``.

    :cvar kinds: the types that store all values of a type of the source
    """

    sink_class = SqlSink
    kinds: ClassVar[Mapping[str, Sequence[str]]]

    @property
    def sink(self) -> Mapping[str, Any]:
        return {"type": "sql", "connection": REPORTS, "table": "items_target"}

    @abstractmethod
    def execute(self, statement: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a statement; names of the columns of its result, and its rows."""

    def rows(self) -> Rows:
        found: dict[int, list[Mapping[str, str | None]]] = {}
        names, rows = self.execute("SELECT * FROM items_target")
        for row in rows:
            texts = [None if value is None else str(value).removesuffix(".0") for value in row]
            found.setdefault(int(row[0]), []).append(dict(zip(names, texts, strict=True)))
        return found

    def receipts(self, ledger: str) -> tuple[Sequence[tuple[Any, ...]], Sequence[tuple[dict[str, Any], Any]]]:
        _, batches = self.execute(_RECEIPTS.replace("partition", "`partition`"))  # SQLite knows backticks, too
        _, versions = self.execute("SELECT replay, at FROM ckpt_sink_replay WHERE `partition` LIKE 'schema:%'")
        return batches, [(json.loads(replay), at) for replay, at in versions]

    def can_store(self, held: str, kind: str) -> bool:
        return held in self.kinds[kind]


class MariaDbTarget(SqlTarget):
    """A table of a MariaDB server."""

    altering = MySqlDialect
    kinds: ClassVar[Mapping[str, Sequence[str]]] = {
        "integer": ("int(11)", "bigint(20)"),
        "bigint": ("bigint(20)",),
        "real": ("float", "double"),
        "double precision": ("double",),
        "character varying(8)": ("varchar(8)", "longtext"),
        "text": ("longtext",),
    }

    def create(self, columns: str) -> None:
        self.execute(f"CREATE TABLE items_target ({columns.replace('real', 'float')})")

    def types(self) -> Mapping[str, str]:
        return {row[0]: row[1] for row in self.execute("SHOW COLUMNS FROM items_target")[1]}

    def execute(self, statement: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        known = self.given[REPORTS]
        with (
            closing(
                pymysql.connect(
                    host=known.host, port=known.port, user=known.login, password=known.password,
                    database=known.schema, autocommit=True,
                )
            ) as opened,
            opened.cursor() as cursor,
        ):  # fmt: skip
            cursor.execute(statement)
            return [column[0] for column in cursor.description or ()], list(cursor.fetchall())


class SqliteTarget(SqlTarget):
    """A table of a SQLite file, whose columns of texts have no length, and none of which has NOT NULL."""

    altering = SqliteDialect
    kinds: ClassVar[Mapping[str, Sequence[str]]] = {
        **dict.fromkeys(("integer", "bigint"), ("INT", "INTEGER")),
        **dict.fromkeys(("real", "double precision"), ("REAL",)),
        **dict.fromkeys(("character varying(8)", "text"), ("TEXT",)),
    }

    @property
    def connections(self) -> Mapping[str, Connection]:
        return {REPORTS: Connection(REPORTS, "sqlite", host=str(self.folder / "reports.sqlite"))}

    def create(self, columns: str) -> None:
        suited = columns.replace("varchar(8)", "TEXT").replace(" NOT NULL", "")
        self.execute("PRAGMA journal_mode = WAL")
        self.execute(f"CREATE TABLE items_target ({suited})")

    def types(self) -> Mapping[str, str]:
        return {row[1]: row[2].upper() for row in self.execute("PRAGMA table_info(items_target)")[1]}

    def execute(self, statement: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        with closing(sqlite3.connect(self.folder / "reports.sqlite", isolation_level=None)) as opened:
            cursor = opened.execute(statement)
            return [column[0] for column in cursor.description or ()], cursor.fetchall()


class LakeTarget(Target):
    """A table of a lake; the number of a receipt's node in the chain stands for its time.

    :cvar names: names of the types that are no ``string``, by name of the source's type
    """

    names: ClassVar[Mapping[str, str]] = {
        "integer": "int", "bigint": "long", "real": "float", "double precision": "double"
    }  # fmt: skip

    @abstractmethod
    def read(self) -> pa.Table:
        """All rows, as any reader of the format sees them."""

    def rows(self) -> Rows:
        found: dict[int, list[Mapping[str, str | None]]] = {}
        for row in self.read().to_pylist():
            texts = {name: None if value is None else str(value).removesuffix(".0") for name, value in row.items()}
            found.setdefault(row["id"], []).append(texts)
        return found

    def receipts(self, ledger: str) -> tuple[Sequence[tuple[Any, ...]], Sequence[tuple[dict[str, Any], Any]]]:
        pipeline = build(self.document)
        connection = next(iter(self.connections.values()), None)
        sink = cast("DeltaSink | IcebergSink", registry.open_sink(pipeline, connection, SinkContext(ledger, "orders")))
        version = sink._version()
        assert version is not None
        nodes = list(enumerate(reversed(list(ReceiptChain(version.layout).nodes(version.head)))))
        batches = [
            (*entry.receipt.key.to_json(), entry.receipt.range.start, entry.receipt.range.end, at)
            for at, node in nodes
            for entry in node.entries
        ]
        times = {node.schema.number: at for at, node in nodes if node.schema is not None}
        # Versions from the time before the table are older than every node.
        versions = [(found.to_json(), times.get(found.number, -1)) for found in sink.schema_versions()]
        sink.close()
        return batches, versions

    def can_store(self, held: str, kind: str) -> bool:
        wanted = self.names.get(kind, "string")
        return held == wanted or is_wider(wanted, held)


class DeltaTarget(LakeTarget):
    """A Delta table in a directory, whose column types do not change."""

    wider: ClassVar[Mapping[str, str]] = {"character varying(8)": "text"}
    renames = False
    sink_class = DeltaSink
    names: ClassVar[Mapping[str, str]] = {**LakeTarget.names, "integer": "integer"}

    @property
    def sink(self) -> Mapping[str, Any]:
        return {"type": "delta", "path": str(self.folder / "lake")}

    def types(self) -> Mapping[str, str]:
        fields = DeltaTable(self.folder / "lake").schema().fields
        return {field.name: str(getattr(field.type, "type", field.type)) for field in fields}

    def read(self) -> pa.Table:
        return DeltaTable(self.folder / "lake").to_pyarrow_dataset().to_table(use_threads=False)


class IcebergTarget(LakeTarget):
    """An Iceberg table, whose catalog is an SQLite file."""

    sink_class = IcebergSink

    @property
    def _lake(self) -> IcebergService:
        return IcebergService(self.folder)

    @property
    def sink(self) -> Mapping[str, Any]:
        return {"type": "iceberg", "connection": "lake", "table": "shop.items"}

    @property
    def connections(self) -> Mapping[str, Connection]:
        return {"lake": self._lake.connection}

    def types(self) -> Mapping[str, str]:
        table = self._lake.table("shop.items")
        assert table is not None
        return {field.name: str(field.field_type) for field in table.schema().fields}

    def read(self) -> pa.Table:
        table = self._lake.table("shop.items")
        assert table is not None
        return table.scan().to_arrow()


TARGETS: Mapping[str, type[Target]] = {
    "postgres": PostgresTarget,
    "delta": DeltaTarget,
    "iceberg": IcebergTarget,
    "mysql": MariaDbTarget,
    "sqlite": SqliteTarget,
}
"""The targets, by the name that the command line gives them."""
