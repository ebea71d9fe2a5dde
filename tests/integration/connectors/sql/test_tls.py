"""TLS to MariaDB: the connection is encrypted, and a server or client with the wrong certificate is refused."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sql.database import Database
from airflow_provider_ckpt.connectors.sql.mysql_load import fetch_columns
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import ConfigError, SourceError
from airflow_provider_ckpt.testing.sink_harness import Run, content, ids, task
from tests.integration.connectors.sql.sql_support import MariaDb
from tests.integration.connectors.sql.test_sink import TargetHarness
from tests.services.certificates import Certificate, make_authority, make_certificate
from tests.services.mariadb import MariaDbServer


@dataclass(frozen=True, slots=True)
class Secured:
    """A server with a certificate for its address, its authority, another authority, and a client's certificate."""

    server: MariaDbServer
    authority: Certificate
    stranger: Certificate
    client: Certificate

    def connection(self, extra: dict[str, Any], **changes: Any) -> Connection:
        """A new database, to which a connection with this extra leads."""
        return self.server.connection(self.server.new_database(), extra=extra, **changes)


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    """A server that can do TLS."""
    with tempfile.TemporaryDirectory(prefix="ckpt-certificates-") as name:
        directory = Path(name)
        directory.chmod(0o755)  # the server may be another user
        authority, stranger = make_authority(directory, "authority"), make_authority(directory, "stranger")
        own = make_certificate(directory, "server", authority, "127.0.0.1")
        client = make_certificate(directory, "client", authority)
        settings = {"ssl-ca": str(authority.path), "ssl-cert": str(own.path), "ssl-key": str(own.key_path)}
        with MariaDbServer(settings, in_memory=True) as server:
            yield Secured(server, authority, stranger, client)


def cipher(connection: Connection) -> str:
    """Return the cipher of a session; empty if it is not encrypted."""
    with closing(Database(connection, "source")) as database:
        return str(database.connect().exec_driver_sql("SHOW SESSION STATUS LIKE 'Ssl_cipher'").one()[1])


@pytest.mark.parametrize("mode", ["REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY", None])
def test_a_connection_that_wants_tls_is_encrypted(secured: Secured, mode: str | None) -> None:
    files = {} if mode == "REQUIRED" else {"ssl": {"ca": str(secured.authority.path)}}
    assert cipher(secured.connection({**files, **({"ssl_mode": mode} if mode else {})}))


def test_a_connection_without_settings_is_encrypted_if_the_server_can(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = secured.connection({})
    monkeypatch.setattr(ssl, "create_default_context", None)  # it would load the system's certificates
    assert cipher(connection)


def test_a_connection_without_tls_is_not(secured: Secured) -> None:
    assert not cipher(secured.connection({"ssl_mode": "DISABLED"}))


@pytest.mark.parametrize("mode", ["VERIFY_CA", "VERIFY_IDENTITY"])
def test_a_server_of_another_authority_is_refused(secured: Secured, mode: str) -> None:
    extra = {"ssl_mode": mode, "ssl": {"ca": str(secured.stranger.path)}}
    with pytest.raises(SourceError, match="certificate verify failed") as caught:
        cipher(secured.connection(extra))
    assert secured.server.password not in str(caught.value)


def test_a_server_of_another_name_is_refused_if_its_identity_matters(secured: Secured) -> None:
    files = {"ssl": {"ca": str(secured.authority.path)}}
    assert cipher(secured.connection({**files, "ssl_mode": "VERIFY_CA"}, host="localhost"))
    with pytest.raises(SourceError, match="certificate verify failed"):
        cipher(secured.connection({**files, "ssl_mode": "VERIFY_IDENTITY"}, host="localhost"))


def test_a_server_without_tls_is_refused_if_it_is_required(mariadb: MariaDb) -> None:
    mariadb.execute("SELECT 1")
    with pytest.raises(SourceError, match="cannot connect"):
        cipher(mariadb.server.connection(mariadb.name, extra={"ssl_mode": "REQUIRED"}))


def test_a_client_is_known_by_its_certificate(secured: Secured) -> None:
    secured.server.execute("mysql", "CREATE OR REPLACE USER card@'127.0.0.1' IDENTIFIED BY 'd' REQUIRE X509")
    secured.server.execute("mysql", "GRANT ALL ON *.* TO card@'127.0.0.1'")
    login = {"login": "card", "password": "d"}
    files = {"ca": str(secured.authority.path)}
    card = {"cert": str(secured.client.path), "key": str(secured.client.key_path)}
    assert cipher(secured.connection({"ssl": {**files, **card}}, **login))
    with pytest.raises(SourceError, match="Access denied"):
        cipher(secured.connection({"ssl": files}, **login))


def test_rows_are_sent_and_read_in_it(secured: Secured) -> None:
    database = MariaDb(secured.server)
    database.connection = secured.server.connection(
        database.name, extra={"ssl_mode": "VERIFY_CA", "ssl": {"ca": str(secured.authority.path)}}
    )
    harness = TargetHarness(database, "int NOT NULL PRIMARY KEY")
    with Run(harness, 1) as run:
        assert run.take_over().send(task(0), content(0)).outcome is AttemptOutcome.DELIVERED
    assert harness.target() == ids(0)
    with closing(Database(database.connection, "source")) as opened:
        query = sa.text("SELECT seq, REPEAT('x', 1000) FROM seq_1_to_20000")
        numbers, texts = fetch_columns(opened.connect(), query)
    assert numbers.to_pylist() == [str(number).encode() for number in range(1, 20_001)]
    assert set(texts.to_pylist()) == {b"x" * 1000}


def test_an_unknown_mode_is_refused(secured: Secured) -> None:
    with pytest.raises(ConfigError, match="ssl_mode: SOME is unknown"):
        cipher(secured.connection({"ssl_mode": "some"}))
