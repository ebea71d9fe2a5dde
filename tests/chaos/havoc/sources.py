"""Where an act's records come from: files, a topic, a table. Each is made for one act and removed after it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tests.chaos.havoc.ground import DATABASE, STREAM, Ground, Server
from tests.chaos.havoc.records import SCHEMA, Record
from tests.integration.connectors.kafka_support import producer
from tests.services.tables import execute

TOO_LARGE = 3000
"""Bytes that make a bad message too large for the target of a plain copy."""


class Source(Protocol):
    """One source.

    :param name: of the act; no other has it
    :param copied: whether records go on unchanged, so that only the sink can find a bad one

    ``parts`` is how many partitions it has, ``server`` what holds it.
    """

    parts: int
    server: Server | None

    def __init__(self, ground: Ground, name: str, *, copied: bool) -> None: ...

    def fill(self, records: Sequence[Record]) -> None:
        """Put the records there."""

    def declare(self) -> dict[str, Any]:
        """The parts of the declaration that are about it: ``source``, and how ``transform`` reads it."""

    def remove(self) -> None:
        """Remove what was made."""


class Files:
    """JSON lines in five files."""

    parts = 1
    server: Server | None = None

    def __init__(self, ground: Ground, name: str, *, copied: bool) -> None:
        assert not copied, "bytes have to be decoded"
        self._place = ground.folder / f"{name}-in"

    def fill(self, records: Sequence[Record]) -> None:
        self._place.mkdir()
        for number in range(5):
            lines = [record.text() + b"\n" for record in records[number::5]]
            (self._place / f"{number}.jsonl").write_bytes(b"".join(lines))

    def declare(self) -> dict[str, Any]:
        return {
            "source": {"type": "files", "path": str(self._place)},
            "transform": {"decode": "json", "schema": SCHEMA},
        }

    def remove(self) -> None:
        shutil.rmtree(self._place)


class Topic:
    """A topic of three partitions; each message's key says in which one it is."""

    parts = 3
    server: Server | None = Server.KAFKA

    def __init__(self, ground: Ground, name: str, *, copied: bool) -> None:
        self._broker = ground.kafka
        self._copied = copied
        self._topic = self._broker.new_topic(self.parts, name=f"{name}-in")

    def fill(self, records: Sequence[Record]) -> None:
        to = producer(self._broker, **{"enable.idempotence": True})
        pad = TOO_LARGE if self._copied else 0
        for record in records:
            to.produce(self._topic, record.text(pad=pad), b"%d" % record.part, partition=record.part)
        assert to.flush(30) == 0

    def declare(self) -> dict[str, Any]:
        decode = {} if self._copied else {"decode": "json", "schema": SCHEMA}
        return {"source": {"type": "kafka", "connection": STREAM, "topic": self._topic}, "transform": decode}

    def remove(self) -> None:
        admin = self._broker.admin()
        admin.delete_topics([self._topic])[self._topic].result(30)


class Table:
    """A table, read by its id."""

    parts = 1
    server: Server | None = Server.POSTGRES

    def __init__(self, ground: Ground, name: str, *, copied: bool) -> None:
        self._dsn = ground.dsn
        self._table = f'"{name}-in"'

    def fill(self, records: Sequence[Record]) -> None:
        rows = ", ".join(f"({record.id}, {record.part}, {int(record.fate)})" for record in records)
        execute(
            self._dsn,
            f"CREATE TABLE {self._table} (id bigint PRIMARY KEY, part int NOT NULL, kind int NOT NULL)",
            f"INSERT INTO {self._table} VALUES {rows}",
        )

    def declare(self) -> dict[str, Any]:
        table = {"type": "postgres", "connection": DATABASE, "table": self._table, "cursor": "id", "close_wait": "5s"}
        return {"source": table, "transform": {}}

    def remove(self) -> None:
        execute(self._dsn, f"DROP TABLE {self._table}")


SOURCES: Mapping[str, type[Source]] = {"files": Files, "kafka": Topic, "postgres": Table}
