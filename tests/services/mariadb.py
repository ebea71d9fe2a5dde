"""MariaDB server for tests: new data in a temporary directory, on a free loopback port.

Run as a script, this module starts a server, prints its address, and stops it when standard input ends or on an
interrupt.
"""

from __future__ import annotations

import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from airflow_provider_ckpt.connectors.connection import Connection
from tests.services.database_server import USER, DatabaseServer

if TYPE_CHECKING:
    import pymysql

_SETTINGS = {
    "bind-address": "127.0.0.1",
    "character-set-server": "utf8mb4",
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "32M",
    "innodb-flush-log-at-trx-commit": "1",
    "local-infile": "1",
    "skip-name-resolve": "1",
    "skip-log-bin": "1",
    "max-connections": "150",
}


def binary(name: str) -> Path:
    """A program of the server's package.

    :raises RuntimeError: if it is not there; says how to install it
    """
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin:/usr/libexec")
    if found is None:
        raise RuntimeError(f"{name} was not found: install MariaDB (Debian: apt-get install mariadb-server)")
    return Path(found)


class MariaDbServer(DatabaseServer):
    """A MariaDB server; see :class:`DatabaseServer`. Its password is no other server's, so that a test can look for it.

    :param settings: further settings, by name as in a configuration file
    :param in_memory: whether its data are put into memory
    """

    account = "mysql"
    in_order = signal.SIGTERM
    as_a_crash = signal.SIGKILL

    def __init__(self, settings: Mapping[str, str] | None = None, *, in_memory: bool = False) -> None:
        super().__init__(in_memory=in_memory)
        self.password = secrets.token_hex(16)
        self._settings = {**_SETTINGS, **(settings or {})}

    @property
    def socket(self) -> Path:
        """The server's socket, for its own client programs."""
        return self._home / "socket"

    def connection(self, database: str, name: str = "shop", *, port: int | None = None, **changes: Any) -> Connection:
        """Return a database as connectors are told of it.

        :param database: name of the database
        :param name: id of the connection
        :param port: port of a proxy that leads to the server
        :param changes: other fields of the connection
        """
        fields = {"host": "127.0.0.1", "port": port or self.port, "login": USER, "password": self.password}
        return Connection(name, "mysql", **{**fields, "schema": database, **changes})

    def start(self) -> Self:
        """Make the data if there are none yet, start the server and wait until it answers."""
        fresh = self._directory is None
        if fresh:
            self._initialise()
        self._launch(binary("mariadbd"), f"--defaults-file={self._home / 'my.cnf'}")
        self._wait()
        if fresh:
            with closing(self._connect("root", "", "mysql", socket=True)) as opened, opened.cursor() as cursor:
                for host in ("127.0.0.1", "localhost"):
                    cursor.execute(f"CREATE USER '{USER}'@'{host}' IDENTIFIED BY '{self.password}'")
                    cursor.execute(f"GRANT ALL ON *.* TO '{USER}'@'{host}' WITH GRANT OPTION")
        return self

    def new_database(self) -> str:
        """Create an empty database and return its name."""
        self._databases += 1
        name = f"test_{self._databases}"
        self.execute("mysql", f"CREATE DATABASE {name}")
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database."""
        self.execute("mysql", f"DROP DATABASE {name}")

    def execute(
        self, database: str, *statements: str, parameters: Sequence[Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """Run statements in a database, each in a transaction of its own; the rows of the last.

        :param database: name of the database
        :param statements: the statements
        :param parameters: of the last statement
        """
        with closing(self._connect(USER, self.password, database)) as opened, opened.cursor() as cursor:
            for at, statement in enumerate(statements, 1):
                cursor.execute(statement, parameters if at == len(statements) else None)
            return list(cursor.fetchall())

    def open(self, database: str) -> pymysql.connections.Connection[Any]:
        """Open a session of the tests' own, outside of any transaction."""
        return self._connect(USER, self.password, database)

    def _connect(
        self, user: str, password: str, database: str, *, socket: bool = False
    ) -> pymysql.connections.Connection[Any]:
        import pymysql

        place = {"unix_socket": str(self.socket)} if socket else {"host": "127.0.0.1", "port": self.port}
        return pymysql.connect(
            user=user, password=password, database=database, autocommit=True, charset="utf8mb4", **place
        )

    def _initialise(self) -> None:
        home = self._make_home("mariadb")
        own = {"port": str(self.port), "socket": str(self.socket), "pid-file": str(home / "pid")}
        lines = {"datadir": str(home / "data"), "tmpdir": str(home), **own, **self._settings}
        configuration = "[mysqld]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items())
        (home / "my.cnf").write_text(configuration)
        subprocess.run(
            [
                binary("mariadb-install-db"),
                f"--defaults-file={home / 'my.cnf'}",
                "--skip-test-db",
                "--auth-root-authentication-method=normal",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=home,
            **self._credentials(),  # type: ignore[call-overload]
        )

    def _wait(self, seconds: float = 60.0) -> None:
        import pymysql

        assert self._process is not None
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._connect("root", "", "mysql", socket=True).close()
                return
            except pymysql.err.OperationalError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"MariaDB did not start:\n{self.log}") from None
                time.sleep(0.03)


def main() -> None:
    """Serve until standard input ends."""
    with MariaDbServer() as server, suppress(KeyboardInterrupt):
        print(f"mysql://{USER}:{server.password}@127.0.0.1:{server.port}/{server.new_database()}", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
