"""Connections that are looked up outside of a task equal those that Airflow itself finds there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.models import crypto
from airflow.models.connection import Connection as CoreConnection
from cryptography.fernet import Fernet
from sqlalchemy.orm import Session
from sqlalchemy.pool import StaticPool

from airflow_provider_ckpt.core.errors import ConfigError, LedgerUnavailableError
from airflow_provider_ckpt.server_connections import find_connection

_SHOWN = ("conn_id", "conn_type", "host", "schema", "login", "password", "port", "extra_dejson")


def shown(connection: Any) -> dict[str, Any]:
    """The attributes of a connection that connectors use."""
    return {name: getattr(connection, name) for name in _SHOWN}


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A metadata database with a table of connections, and a key that encrypts what is secret in them."""
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", Fernet.generate_key().decode())
    crypto.get_fernet.cache_clear()
    engine = sa.create_engine("sqlite://", poolclass=StaticPool)
    CoreConnection.__table__.create(engine)

    @contextmanager
    def create_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session

    monkeypatch.setattr("airflow.utils.session.create_session", create_session)
    with Session(engine) as session:
        yield session
    crypto.get_fernet.cache_clear()


def test_a_stored_connection_is_decrypted(database: Session) -> None:
    stored = CoreConnection(
        "store", "postgres", host="db", login="ckpt", password="s3cret-pw", schema="shop", port=5433, extra='{"a": "b"}'
    )
    database.add(stored)
    database.commit()
    assert "s3cret-pw" not in database.execute(sa.text("SELECT password FROM connection")).scalar_one()

    assert shown(find_connection("store")) == shown(stored)
    assert find_connection("other") is None


def test_a_variable_comes_before_the_database(database: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    database.add(CoreConnection("store", "postgres", host="stored"))
    database.commit()
    for text in ("postgres://ckpt:s%40cret@db:5433/shop?sslmode=require", '{"conn_type": "postgres", "host": "db"}'):
        monkeypatch.setenv("AIRFLOW_CONN_STORE", text)

        assert shown(find_connection("store")) == shown(CoreConnection.get_connection_from_secrets("store"))


def test_a_secrets_backend_is_asked_by_airflow_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND", "a.backend")
    monkeypatch.setattr(CoreConnection, "get_connection_from_secrets", lambda name: f"connection {name} of the backend")

    assert str(find_connection("store")) == "connection store of the backend"


def test_a_connection_does_not_count_as_undefined_while_the_database_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def create_session() -> Any:
        raise sa.exc.OperationalError("SELECT", {}, Exception("down"))

    monkeypatch.setattr("airflow.utils.session.create_session", create_session)

    with pytest.raises(LedgerUnavailableError, match="'store' could not be looked up in Airflow's metadata database"):
        find_connection("store")


def test_a_database_that_was_never_migrated_has_no_connections(database: Session) -> None:
    database.execute(sa.text("DROP TABLE connection"))

    assert find_connection("store") is None


def test_a_connection_of_another_key_is_an_error_that_names_the_key(
    database: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.add(CoreConnection("store", "postgres", host="db", password="s3cret-pw"))
    database.commit()
    monkeypatch.setenv("AIRFLOW__CORE__FERNET_KEY", Fernet.generate_key().decode())
    crypto.get_fernet.cache_clear()

    with pytest.raises(ConfigError, match="'store' was encrypted with another key"):
        find_connection("store")


def test_the_secrets_of_a_connection_are_masked_in_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.common.compat.sdk import redact

    monkeypatch.setenv(
        "AIRFLOW_CONN_STORE", '{"conn_type": "s", "password": "pa/ss-4711", "extra": {"token": "t0ken-4711"}}'
    )

    assert find_connection("store") is not None

    assert redact("pa/ss-4711 pa%2Fss-4711 t0ken-4711") == "*** *** ***"
