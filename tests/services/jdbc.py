"""JDBC drivers for tests, and H2 databases, which show that the jdbc source does not depend on PostgreSQL."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.jdbc.jvm import Jvm
from tests.services.kafka import jars

VERSION = "42.7.11"
CONNECTION = "shop"
"""The id of the one connection."""

_USER, _PASSWORD = "sa", "h2-s3cret"


def drivers() -> list[str]:
    """The paths of all drivers' jars."""
    return sorted(str(path) for path in jars(f"jdbc-{VERSION}").iterdir())


def to_postgres(dsn: str, **changes: Any) -> Connection:
    """A PostgreSQL database as the jdbc source is told of it."""
    parts = urlsplit(dsn)
    values: dict[str, Any] = {
        "id": CONNECTION,
        "type": "jdbc",
        "host": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}",
        "login": parts.username,
        "password": parts.password,
    }
    return Connection(**values | changes)


class Lent:
    """Stands for the Java process of a source, so that a test need not wait for one of its own."""

    def __init__(self, jvm: Jvm) -> None:
        self.java = jvm.java

    def close(self) -> None:
        """Leave it as it is."""


class H2Server:
    """Databases in the memory of a Java process, which others reach by TCP."""

    def __init__(self) -> None:
        self._databases = 0

    def lend(self) -> Lent:
        """Its Java process, which has all drivers."""
        return Lent(self._jvm)

    def new_database(self) -> H2Database:
        """An empty one."""
        self._databases += 1
        return H2Database(self._jvm.java, self._port, f"test_{self._databases}")

    def __enter__(self) -> Self:
        self._jvm = Jvm(drivers(), ("-Dh2.bindAddress=127.0.0.1",))
        texts = self._jvm.array("java.lang.String", ["-tcpPort", "0", "-ifNotExists"])
        self._port: int = self._jvm.packages.org.h2.tools.Server.createTcpServer(texts).start().getPort()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._jvm.close()


class H2Database:
    """One database.

    :param java: of the process that holds it
    """

    def __init__(self, java: Any, port: int, name: str) -> None:
        self._java = java
        self._local = f"jdbc:h2:mem:{name};DB_CLOSE_DELAY=-1"
        self.connection = Connection(
            CONNECTION, "jdbc", f"jdbc:h2:tcp://127.0.0.1:{port}/mem:{name}", login=_USER, password=_PASSWORD
        )
        self.execute("SELECT 1")

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own."""
        opened = self._java.sql.DriverManager.getConnection(self._local, _USER, _PASSWORD)
        try:
            asked = opened.createStatement()
            for statement in statements:
                asked.execute(statement)
        finally:
            opened.close()
