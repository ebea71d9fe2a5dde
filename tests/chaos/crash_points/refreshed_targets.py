"""Targets of refreshes that are disturbed, and the requests of a run that show how far a refresh has come."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import pyarrow.compute as pc

from tests.chaos.crash_points.generations import COLUMNS, VALUES, Seen, rows_of
from tests.chaos.crash_points.servers import DATABASE, SHOP, STORE, Server, Servers
from tests.chaos.crash_points.sinks import directory_of
from tests.services.delta import read_delta
from tests.services.http_proxy import Fault, Rule
from tests.services.proxy import Break, Proxy
from tests.services.tables import execute, scalar

_SEEN = "SELECT count(*), min(version), max(version) FROM {}"
_LATE = 1.0
"""Seconds that the answer of a store is late, in which something else is struck."""


class Moment(StrEnum):
    """A moment in a refresh at which something is struck."""

    STAGING = "while rows are staged"
    STAGED = "after rows were staged"
    PUBLISHING = "while the refresh is published"
    COMMITTED = "before the publication is confirmed"
    CLEANUP = "while old staging is removed"


class RefreshedTarget(Protocol):
    """One target with the columns ``id``, ``version`` and ``filler``, and the rows of version 0.

    :param servers: the servers
    :param name: of the trial, and of its pipeline

    ``server`` is the server that holds it.
    """

    server: Server

    def __init__(self, servers: Servers, name: str) -> None: ...

    def declare(self) -> dict[str, Any]:
        """Return the pipeline's section ``sink``."""

    def seen(self) -> Seen:
        """Return what a reader sees now, past the proxies."""

    def rows(self) -> list[tuple[int, int]]:
        """Return id and version of each row."""

    def leftovers(self) -> int:
        """Return the number of staging tables, or of files that are no part of the table."""

    def catch(self, moment: Moment, how: Break) -> threading.Event:
        """Break the next connection or request that a run uses at a moment; the event is set when that has happened."""

    def remove(self) -> None:
        """Remove the target."""


class SqlTarget:
    """A table that a run writes over a proxy that reads its statements.

    :param proxy: the proxy
    :param texts: by moment, regular expressions of statements that one connection sends in this order
    """

    def __init__(self, proxy: Proxy, texts: Mapping[Moment, Sequence[bytes]]) -> None:
        self._proxy, self._texts = proxy, texts

    def catch(self, moment: Moment, how: Break) -> threading.Event:
        return self._proxy.trap(*self._texts[moment], how=how)


class PostgresTarget(SqlTarget):
    """A table of PostgreSQL, replaced row by row."""

    server = Server.POSTGRES
    publishing = rb"DELETE FROM"
    """Statement with which the publishing transaction begins to change the target."""

    replace: Mapping[str, Any] = {}
    """The section ``sink.replace``."""

    def __init__(self, servers: Servers, name: str) -> None:
        staged = rb"COPY [^;]*ckpt_stage_"
        super().__init__(
            servers.rows,
            {
                Moment.STAGING: [staged],
                Moment.STAGED: [staged, rb"COMMIT(?!TED)"],
                Moment.PUBLISHING: [self.publishing],
                Moment.COMMITTED: [self.publishing, rb"COMMIT(?!TED)"],
                Moment.CLEANUP: [rb"DROP TABLE [^;]*ckpt_stage_[^;]*; SELECT 1"],
            },
        )
        self._dsn, self._name, self._table = servers.dsn, name, f'"{name}-out"'
        execute(
            self._dsn,
            "SET synchronous_commit = on",  # off by default at this server
            f"CREATE TABLE {self._table} ({COLUMNS})",
            f"INSERT INTO {self._table} {VALUES.format(version=0, rows=rows_of(0))}",
        )

    def declare(self) -> dict[str, Any]:
        sink = {"type": "postgres", "connection": DATABASE, "table": self._table, "mode": "replace"}
        return {**sink, "replace": self.replace} if self.replace else sink

    def seen(self) -> Seen:
        [(count, least, greatest)] = execute(self._dsn, _SEEN.format(self._table))
        return count, least, greatest

    def rows(self) -> list[tuple[int, int]]:
        return [(row[0], row[1]) for row in execute(self._dsn, f"SELECT id, version FROM {self._table}")]

    def leftovers(self) -> int:
        query = "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'ckpt\\_stage\\_%%' || %s"
        return int(scalar(self._dsn, query, [f"{self._name}-out"]))

    def remove(self) -> None:
        execute(self._dsn, f"DROP TABLE {self._table}")


class RenamedTarget(PostgresTarget):
    """A table of PostgreSQL whose place each refresh takes."""

    publishing = rb"LOCK TABLE [^;]* IN ACCESS EXCLUSIVE MODE|DROP TABLE (?![^;]*ckpt_stage_)"
    replace: Mapping[str, Any] = {"swap": "rename"}


class MariaDbTarget(SqlTarget):
    """A table of MariaDB."""

    server = Server.MARIADB

    def __init__(self, servers: Servers, name: str) -> None:
        staged = rb"(?:LOAD DATA|INSERT INTO)[^;]*ckpt_stage_"
        super().__init__(
            servers.sales,
            {
                Moment.STAGING: [staged],
                Moment.STAGED: [staged, rb"COMMIT(?!TED)"],
                Moment.PUBLISHING: [rb"DELETE FROM"],
                Moment.COMMITTED: [rb"DELETE FROM", rb"COMMIT(?!TED)"],
                Moment.CLEANUP: [rb"DROP TABLE [^;]*ckpt_stage_"],
            },
        )
        self._servers, self._name, self._table = servers, name, f"{name}-out"
        values = ", ".join(f"({number}, 0, 'x')" for number in range(1, rows_of(0) + 1))
        self._execute(f"CREATE TABLE `{self._table}` ({COLUMNS})", f"INSERT INTO `{self._table}` VALUES {values}")

    def declare(self) -> dict[str, Any]:
        return {"type": "sql", "connection": SHOP, "table": self._table, "mode": "replace"}

    def seen(self) -> Seen:
        [(count, least, greatest)] = self._execute(_SEEN.format(f"`{self._table}`"))
        return count, least, greatest

    def rows(self) -> list[tuple[int, int]]:
        return [(row[0], row[1]) for row in self._execute(f"SELECT id, version FROM `{self._table}`")]

    def leftovers(self) -> int:
        query = "SELECT table_name FROM information_schema.tables WHERE table_schema = database()"
        names = [str(row[0]) for row in self._execute(query)]
        return sum(name.startswith("ckpt_stage_") and name.endswith(self._table) for name in names)

    def remove(self) -> None:
        self._execute(f"DROP TABLE `{self._table}`")

    def _execute(self, *statements: str) -> list[tuple[Any, ...]]:
        return self._servers.mariadb.execute(self._servers.shop, *statements)


class StoredDeltaTarget:
    """A Delta table in an object store, over a proxy that reads requests."""

    server = Server.STORE

    def __init__(self, servers: Servers, name: str) -> None:
        import pyarrow as pa
        from deltalake import write_deltalake

        self._servers, self._prefix = servers, f"{name}-out"
        self._place: Path = directory_of(servers, self._prefix)
        count = rows_of(0)
        write_deltalake(
            self._place,
            pa.table(
                {
                    "id": pa.array(range(1, count + 1), pa.int64()),
                    "version": pa.array([0] * count, pa.int64()),
                    "filler": pa.array(["x"] * count),
                }
            ),
        )

    def declare(self) -> dict[str, Any]:
        return {"type": "delta", "path": self._servers.store.url(self._prefix), "connection": STORE, "mode": "replace"}

    def seen(self) -> Seen:
        versions = read_delta(self._place, ["version"]).column("version")
        found = pc.min_max(versions).as_py()
        return len(versions), found["min"], found["max"]

    def rows(self) -> list[tuple[int, int]]:
        return [(row["id"], row["version"]) for row in read_delta(self._place, ["id", "version"]).to_pylist()]

    def leftovers(self) -> int:
        """Return 0: files that a killed lane left without a receipt stay until the table is vacuumed."""
        return 0

    def catch(self, moment: Moment, how: Break) -> threading.Event:
        """Let the next request of a moment fail; a publication is a commit that removes files."""
        fault = {Break.BEFORE: Fault.CUT, Break.AFTER: Fault.LOST, Break.HOLD: Fault.SLOW}[how]
        data, log = rf"{self._prefix}/.*ckpt-.*\.parquet", rf"{self._prefix}/_delta_log/\d+\.json"
        method, path, body = {
            Moment.STAGING: ("PUT|POST", data, b""),
            Moment.STAGED: ("PUT|POST", log, rb'\A(?!(?s:.)*"remove":)'),
            Moment.PUBLISHING: ("PUT|POST", log, rb'"remove":'),
            Moment.COMMITTED: ("PUT|POST", log, rb'"remove":'),
            Moment.CLEANUP: ("DELETE|POST", rf"{data}|[?&]delete", b""),
        }[moment]
        return self._servers.requests.fail(Rule(fault, method, path, body, seconds=_LATE)).sprung

    def remove(self) -> None:
        self._servers.store.clear(self._prefix)


REFRESHED: Mapping[str, type[RefreshedTarget]] = {
    "postgres": PostgresTarget,
    "postgres_renamed": RenamedTarget,
    "mariadb": MariaDbTarget,
    "delta_in_s3": StoredDeltaTarget,
}
