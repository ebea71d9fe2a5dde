"""Sinks of the trials, and functions that read the sinks' content without the package's code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from pyarrow.parquet import ParquetFile

from airflow_provider_ckpt.connectors.kafka.receipts import receipts_topic
from tests.chaos.crash_points.records import PER_BATCH, id_in
from tests.chaos.crash_points.servers import DATABASE, LAKE, SHOP, STORE, STORED_LAKE, STREAM, Server, Servers
from tests.chaos.crash_points.sources import TOO_LARGE
from tests.integration.connectors.kafka.kafka_sink_support import Stored, stored
from tests.services.delta import read_delta
from tests.services.object_store import BUCKET
from tests.services.postgres import sqlalchemy_url
from tests.services.tables import execute, scalar

Place = tuple[int, int]
"""A record's source partition and id."""


class Sink(Protocol):
    """One target.

    :param name: of the trial, and of its pipeline
    :param copied: whether records come unchanged, so that it must refuse the bad ones itself

    ``ordered`` says whether the target shows in which order the records of a source partition came, ``server`` what
    holds it.
    """

    ordered: bool
    server: Server | None

    def __init__(self, servers: Servers, name: str, *, copied: bool) -> None: ...

    def declare(self) -> dict[str, Any]:
        """Return the parts of the pipeline's declaration that concern this sink."""

    def progress(self) -> int:
        """About how many batches the target has seen so far, committed or not; grows while lanes are at work."""

    def rows(self) -> list[Place]:
        """Return the content of the target, in its order."""

    def dead_letters(self) -> list[int] | None:
        """The ids of all dead letters; None where only receipts tell which of them count."""

    def remove(self) -> None:
        """Remove what was made."""


class Topic:
    """A topic that a consumer of committed messages reads."""

    ordered = True
    server: Server | None = Server.KAFKA

    def __init__(self, servers: Servers, name: str, *, copied: bool) -> None:
        self._broker = servers.kafka
        self._copied = copied
        config = {"max.message.bytes": str(TOO_LARGE)} if copied else {}
        self._topic = self._broker.new_topic(3, config, name=f"{name}-out")
        self._letters, self._receipts = f"{name}-letters", receipts_topic(name)
        self._admin = self._broker.admin()

    def declare(self) -> dict[str, Any]:
        key = {} if self._copied else {"key": ["part"]}
        return {
            "sink": {"type": "kafka", "connection": STREAM, "topic": self._topic, **key},
            "dead_letter_queue": {"topic": self._letters},
        }

    def progress(self) -> int:
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        wanted = {TopicPartition(self._topic, number): OffsetSpec.latest() for number in range(3)}
        asked = self._admin.list_offsets(wanted, request_timeout=2)
        return sum(int(said.result().offset or 0) for said in asked.values()) // PER_BATCH

    def rows(self) -> list[Place]:
        return [(int(record.key or b"-1"), id_in(record.value)) for record in self._stored(self._topic)]

    def dead_letters(self) -> list[int]:
        return [id_in(record.value) for record in self._stored(self._letters)]

    def remove(self) -> None:
        for deleted in self._admin.delete_topics([self._topic, self._letters, self._receipts]).values():
            deleted.result(30)

    def _stored(self, topic: str) -> Sequence[Stored]:
        return stored(self._broker, topic)


class Table:
    """A table without a key, so that a duplicate would show; each statement on it takes 30 ms longer than it would."""

    ordered = False
    server: Server | None = Server.POSTGRES

    def __init__(self, servers: Servers, name: str, *, copied: bool) -> None:
        self._dsn = servers.dsn
        self._pipeline = name
        self._table = f'"{name}-out"'
        execute(
            self._dsn,
            "SET synchronous_commit = on",  # off by default at this server
            f"CREATE TABLE {self._table} (id bigint NOT NULL, part int NOT NULL, kind int NOT NULL CHECK (kind <> 0))",
            "CREATE OR REPLACE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_sleep(0.03); RETURN NULL; END $$",
            f"CREATE TRIGGER slow BEFORE INSERT ON {self._table} FOR EACH STATEMENT EXECUTE FUNCTION slow()",
        )

    def declare(self) -> dict[str, Any]:
        return {"sink": {"type": "postgres", "connection": DATABASE, "table": self._table}}

    def progress(self) -> int:
        query = "SELECT count(*) FROM ckpt_sink_receipt WHERE pipeline = %s"
        return int(scalar(self._dsn, query, [self._pipeline]))

    def rows(self) -> list[Place]:
        return [(part, number) for part, number in execute(self._dsn, f"SELECT part, id FROM {self._table}")]

    def dead_letters(self) -> list[int]:
        query = "SELECT value FROM ckpt_sink_dead_letter WHERE pipeline = %s"
        return [id_in(bytes(value)) for (value,) in execute(self._dsn, query, parameters=[self._pipeline])]

    def empty(self) -> None:
        """Truncate the table."""
        execute(self._dsn, f"TRUNCATE {self._table}")

    def remove(self) -> None:
        execute(self._dsn, f"DROP TABLE {self._table}")


class MariaDbTable:
    """A table of MariaDB without a key, so that a duplicate would show; each row takes half a millisecond longer."""

    ordered = False
    server: Server | None = Server.MARIADB

    def __init__(self, servers: Servers, name: str, *, copied: bool) -> None:
        self._server = servers.mariadb
        self._database = servers.shop
        self._pipeline = name
        self._table = f"{name}-out"
        self._server.execute(
            self._database,
            f"CREATE TABLE `{self._table}` "
            "(id bigint NOT NULL, part int NOT NULL, kind int NOT NULL CHECK (kind <> 0))",
            f"CREATE TRIGGER `{name}-slow` BEFORE INSERT ON `{self._table}` FOR EACH ROW DO SLEEP(0.0005)",
        )

    def declare(self) -> dict[str, Any]:
        return {"sink": {"type": "sql", "connection": SHOP, "table": self._table}}

    def progress(self) -> int:
        query = "SELECT COUNT(*) FROM ckpt_sink_receipt WHERE pipeline = %s"
        return int(self._server.execute(self._database, query, parameters=[self._pipeline])[0][0])

    def rows(self) -> list[Place]:
        found = self._server.execute(self._database, f"SELECT part, id FROM `{self._table}`")
        return [(part, number) for part, number in found]

    def dead_letters(self) -> list[int]:
        query = "SELECT value FROM ckpt_sink_dead_letter WHERE pipeline = %s"
        found = self._server.execute(self._database, query, parameters=[self._pipeline])
        return [id_in(value) for (value,) in found]

    def empty(self) -> None:
        """Truncate the table."""
        self._server.execute(self._database, f"TRUNCATE `{self._table}`")

    def remove(self) -> None:
        self._server.execute(self._database, f"DROP TABLE `{self._table}`")


class Delta:
    """A Delta table. Its dead letters are files beside it, which count only if a receipt names their attempt."""

    ordered = False
    server: Server | None = None

    def __init__(self, servers: Servers, name: str, *, copied: bool) -> None:
        self._place: Path = servers.folder / f"{name}-out"

    def declare(self) -> dict[str, Any]:
        return {"sink": {"type": "delta", "path": str(self._place)}}

    def progress(self) -> int:
        return sum(1 for _ in self._place.glob("*.parquet"))

    def rows(self) -> list[Place]:
        return [(row["part"], row["id"]) for row in read_delta(self._place, ["part", "id"]).to_pylist()]

    def dead_letters(self) -> None:
        return None

    def remove(self) -> None:
        shutil.rmtree(self._place)


class Iceberg:
    """An Iceberg table, whose catalog is in the database; dead letters as with Delta."""

    ordered = False
    server: Server | None = Server.POSTGRES

    def __init__(self, servers: Servers, name: str, *, copied: bool) -> None:
        self._properties = {**servers.lake, "uri": sqlalchemy_url(servers.lake["uri"])}
        self._name = name.replace("-", "_")
        self._place = servers.folder / "warehouse" / "chaos" / self._name

    def declare(self) -> dict[str, Any]:
        return {"sink": {"type": "iceberg", "connection": LAKE, "table": f"chaos.{self._name}"}}

    def progress(self) -> int:
        return sum(1 for _ in self._place.rglob("*.parquet"))

    def rows(self) -> list[Place]:
        from pyiceberg.catalog import load_catalog

        with closing(load_catalog("default", **self._properties)) as catalog:
            table = catalog.load_table(f"chaos.{self._name}")
            paths = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
        files = [ParquetFile(path).read(["part", "id"], use_threads=False).to_pylist() for path in paths]
        return [(row["part"], row["id"]) for rows in files for row in rows]

    def dead_letters(self) -> None:
        return None

    def remove(self) -> None:
        from pyiceberg.catalog import load_catalog

        with closing(load_catalog("default", **self._properties)) as catalog:
            catalog.drop_table(f"chaos.{self._name}")
        shutil.rmtree(self._place, ignore_errors=True)


class StoredDelta(Delta):
    """A Delta table in an object store."""

    server: Server | None = Server.STORE

    def __init__(self, servers: Servers, name: str, *, copied: bool) -> None:
        self._store = servers.store
        self._prefix = f"{name}-out"
        self._place = directory_of(servers, self._prefix)

    def declare(self) -> dict[str, Any]:
        return {"sink": {"type": "delta", "path": self._store.url(self._prefix), "connection": STORE}}

    def remove(self) -> None:
        self._store.clear(self._prefix)


class StoredFiles:
    """JSON lines in an object store; dead letters as with Delta."""

    ordered = False
    server: Server | None = Server.STORE

    def __init__(self, servers: Servers, name: str, *, copied: bool) -> None:
        self._store = servers.store
        self._prefix = f"{name}-out"
        self._place = directory_of(servers, self._prefix)

    def declare(self) -> dict[str, Any]:
        path = self._store.url(self._prefix)
        return {"sink": {"type": "files", "format": "jsonl", "path": path, "connection": STORE}}

    def progress(self) -> int:
        return sum(1 for _ in self._place.rglob("ckpt-*.jsonl"))

    def rows(self) -> list[Place]:
        lines = [line for path in self._place.glob("ckpt-*.jsonl") for line in path.read_bytes().splitlines()]
        return [(row["part"], row["id"]) for row in map(json.loads, lines)]

    def dead_letters(self) -> None:
        return None

    def remove(self) -> None:
        self._store.clear(self._prefix)


class StoredIceberg:
    """An Iceberg table whose catalog is in the database and whose files are in an object store."""

    ordered = False
    server: Server | None = Server.STORE

    def __init__(self, servers: Servers, name: str, *, copied: bool) -> None:
        self._servers = servers
        self._table = f"chaos.{name.replace('-', '_')}"
        self._place = directory_of(servers, f"warehouse/{self._table.replace('.', '/')}")

    def declare(self) -> dict[str, Any]:
        return {"sink": {"type": "iceberg", "connection": STORED_LAKE, "table": self._table}}

    def progress(self) -> int:
        return sum(1 for _ in self._place.rglob("*.parquet"))

    def rows(self) -> list[Place]:
        from pyiceberg.catalog import load_catalog

        data = directory_of(self._servers, "").parent
        with closing(load_catalog("default", **self._servers.direct_stored_lake)) as catalog:
            tasks = catalog.load_table(self._table).scan().plan_files()
            paths = [data / task.file.file_path.removeprefix("s3://") for task in tasks]
        files = [ParquetFile(path).read(["part", "id"], use_threads=False).to_pylist() for path in paths]
        return [(row["part"], row["id"]) for rows in files for row in rows]

    def dead_letters(self) -> None:
        return None

    def remove(self) -> None:
        from pyiceberg.catalog import load_catalog

        with closing(load_catalog("default", **self._servers.direct_stored_lake)) as catalog:
            catalog.drop_table(self._table)
        self._servers.store.clear(f"warehouse/{self._table.replace('.', '/')}")


def directory_of(servers: Servers, prefix: str) -> Path:
    """Return the directory in which the store has the objects of a prefix."""
    return servers.store.home / "data" / BUCKET / prefix


SINKS: Mapping[str, type[Sink]] = {
    "delta": Delta,
    "delta_in_s3": StoredDelta,
    "files_in_s3": StoredFiles,
    "iceberg": Iceberg,
    "iceberg_in_s3": StoredIceberg,
    "kafka": Topic,
    "mariadb": MariaDbTable,
    "postgres": Table,
}
