"""PostgreSQL server for tests: a new cluster in a temporary directory, on a free loopback port.

Run as a script, this module starts a server, prints its DSN, and stops it when standard input ends or on an interrupt.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from tests.services.database_server import PASSWORD, USER, DatabaseServer
from tests.services.proxy import Proxy

# A password has to be right, and is looked at in a fraction of the time that SCRAM takes for thousands of connections.
_INITDB = ("--no-sync", "--auth", "md5", "--encoding", "UTF8", "--locale", "C")
_SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "max_connections": "100",
    "max_prepared_transactions": "20",
    "shared_buffers": "256MB",
    "max_wal_size": "1GB",
    "log_line_prefix": "'%m [%p] %q%a %x '",
    "log_statement": "none",
    "logging_collector": "off",
    "timezone": "'UTC'",
}

LARGE_WAL = {"max_wal_size": "4GB"}
"""Settings with which no checkpoint disturbs a benchmark."""


def binaries() -> Path:
    """The directory of the newest PostgreSQL server binaries on this machine.

    :raises RuntimeError: if there are none; says how to install them
    """
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if found:
        return max(found, key=lambda path: float(path.parent.name))
    for candidate in (shutil.which("initdb"), *map(str, Path("/usr").glob("pgsql-*/bin/initdb"))):
        if candidate:
            return Path(candidate).resolve().parent
    raise RuntimeError("no PostgreSQL server found: install one (Debian: apt-get install postgresql)")


class PostgresServer(DatabaseServer):
    """A PostgreSQL cluster; see :class:`DatabaseServer`.

    :param settings: further lines of postgresql.conf
    :param fsync: False trades durability against a crash of the machine for speed
    :param in_memory: whether the cluster is put into memory
    """

    account = "postgres"
    in_order = signal.SIGINT
    as_a_crash = signal.SIGQUIT

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, fsync: bool = True, in_memory: bool = False
    ) -> None:
        super().__init__(in_memory=in_memory)
        self._settings = {**_SETTINGS, "fsync": "on" if fsync else "off", **(settings or {})}
        self._bin = binaries()
        self._dropped_later: set[str] = set()
        self._templates: dict[str, str] = {}

    @property
    def dsn(self) -> str:
        """libpq URL of the maintenance database, as a superuser."""
        return self.database_dsn("postgres")

    @property
    def sqlalchemy_url(self) -> str:
        """The same for SQLAlchemy with psycopg2."""
        return sqlalchemy_url(self.dsn)

    def database_dsn(self, name: str, user: str = USER, password: str = PASSWORD) -> str:
        """libpq URL of a database."""
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{name}"

    def start(self) -> Self:
        """Make the cluster if there is none yet, start the server and wait until it answers."""
        if self._directory is None:
            self._initialise()
        self._launch(self._bin / "postgres", "-D", self._home / "data", "-p", str(self.port), "-k", self._home)
        self._wait()
        return self

    def restore(self, *, new_timeline: bool = False) -> None:
        """Put the copy in place of the cluster, as a restored backup or a standby that takes over would be."""
        self._put_back()
        self._templates.clear()
        if new_timeline:
            signal_file = self._home / "data" / "standby.signal"
            signal_file.touch()
            shutil.chown(signal_file, *((self._user.pw_uid, self._user.pw_gid) if self._user else (os.geteuid(),)))
        self.start()
        if new_timeline:
            self.promote()

    def promote(self) -> None:
        """Make a standby the primary, on a timeline of its own."""
        import psycopg2

        with closing(psycopg2.connect(self.dsn)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_promote()")
            assert cursor.fetchone() == (True,)

    def standby(self, settings: Mapping[str, str] | None = None) -> PostgresServer:
        """Start another server that follows this one, by a base backup and streaming.

        :param settings: further lines of its configuration
        """
        other = PostgresServer(self._settings | dict(settings or {}), in_memory=self._parent is not None)
        home = other._make_home("postgres")
        subprocess.run(
            [self._bin / "pg_basebackup", "-d", self.dsn, "-D", home / "data", "-R", "-c", "fast"],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=home,
            **self._credentials(),  # type: ignore[call-overload]
        )
        with (home / "data" / "postgresql.auto.conf").open("a") as conf:
            conf.writelines(f"{name} = {value}\n" for name, value in (settings or {}).items())
        other._databases = self._databases
        return other.start()

    def new_database(self, *, kept: bool = False, template: str = "template1") -> str:
        """Create a database and return its dsn.

        :param kept: whether :meth:`drop_databases` leaves it
        :param template: name of the database that is copied, an empty one by default; nobody may be connected to it
        """
        self._databases += 1
        name = f"test_{self._databases}"
        if not kept:
            self._dropped_later.add(name)
        # Copying the template's files costs two checkpoints, which cost nothing in memory.
        strategy = " STRATEGY file_copy" if self._parent else ""
        self._administer(f'CREATE DATABASE "{name}" TEMPLATE "{template}"{strategy}')
        return self.database_dsn(name)

    def copied_database(self, content: str, fill: Callable[[str], None]) -> str:
        """Create a database with content that takes longer to make than to copy, and return its dsn.

        :param content: name of the content
        :param fill: called with the dsn of the database that is copied, once
        """
        if content not in self._templates:
            dsn = self.new_database(kept=True)
            fill(dsn)
            self._templates[content] = dsn.rpartition("/")[2]
        return self.new_database(template=self._templates[content])

    def drop_database(self, dsn: str) -> None:
        """Drop a database, whoever is still connected to it."""
        name = dsn.rpartition("/")[2]
        self._administer(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        self._dropped_later.discard(name)

    def drop_databases(self) -> None:
        """Drop all databases that are not kept: each takes 8 MB, and they are many."""
        for name in sorted(self._dropped_later):
            self.drop_database(self.database_dsn(name))

    def _administer(self, statement: str) -> None:
        import psycopg2

        with closing(psycopg2.connect(self.dsn)) as connection:
            connection.autocommit = True
            connection.cursor().execute(statement)

    def _initialise(self) -> None:
        home = self._make_home("postgres")
        secret = home / "password"
        secret.write_text(PASSWORD)
        if self._user is not None:
            os.chown(secret, self._user.pw_uid, self._user.pw_gid)
        subprocess.run(
            [self._bin / "initdb", "-D", home / "data", "-U", USER, "--pwfile", secret, *_INITDB],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=home,
            **self._credentials(),  # type: ignore[call-overload]
        )
        with (home / "data" / "postgresql.auto.conf").open("a") as conf:
            conf.writelines(f"{name} = {value}\n" for name, value in self._settings.items())

    def _wait(self, seconds: float = 30.0) -> None:
        import psycopg2

        assert self._process is not None
        deadline = time.monotonic() + seconds
        while True:
            try:
                psycopg2.connect(self.dsn, connect_timeout=5).close()
                return
            except psycopg2.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL did not start:\n{self.log}") from None
                time.sleep(0.03)


def sqlalchemy_url(dsn: str) -> str:
    """A libpq URL as SQLAlchemy wants it, with psycopg2."""
    return urlunsplit(urlsplit(dsn)._replace(scheme="postgresql+psycopg2"))


def through(proxy: Proxy, dsn: str) -> str:
    """The same libpq URL, by way of a proxy that leads to the server."""
    return re.sub(r"@127\.0\.0\.1:\d+/", f"@127.0.0.1:{proxy.port}/", dsn)


def main() -> None:
    """Serve until standard input ends."""
    with PostgresServer() as server, suppress(KeyboardInterrupt):
        print(server.dsn, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
