"""All ways to configure the ledger's location, in their order of precedence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import Connection

from airflow_provider_ckpt.core.errors import ConfigError, MissingConnectionError
from airflow_provider_ckpt.ledger_location import ledger_url, locate_ledger, resolve_connection

POSTGRES = "postgresql+psycopg2://ckpt:s3cret@db:5433/ledger"


def test_the_default_connection_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", "ckpt://ckpt:s3cret@db:5433/ledger")
    monkeypatch.setenv("AIRFLOW__CKPT__SQL_ALCHEMY_CONN", "sqlite:////elsewhere.db")

    found = locate_ledger()

    assert found.url == POSTGRES
    assert found.origin == "connection ckpt_default"


def test_without_it_the_configuration_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CKPT__SQL_ALCHEMY_CONN", "sqlite:////elsewhere.db")

    assert locate_ledger().url == "sqlite:////elsewhere.db"


def test_without_both_it_is_a_file_in_airflow_home_beside_a_sqlite_metadata_database() -> None:
    assert locate_ledger().url == f"sqlite:///{Path(AIRFLOW_HOME).absolute()}/ckpt.db"


def test_beside_a_server_there_is_no_fallback_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql+psycopg2://airflow@db/airflow")

    with pytest.raises(MissingConnectionError, match="Define the connection ckpt_default"):
        locate_ledger()


def test_a_task_takes_the_file_only_if_it_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "airflow-db-not-allowed:///")
    monkeypatch.setattr("airflow.configuration.AIRFLOW_HOME", str(tmp_path))

    with pytest.raises(MissingConnectionError, match="airflow ckpt db migrate"):
        locate_ledger()

    (tmp_path / "ckpt.db").touch()
    assert locate_ledger().url == f"sqlite:///{tmp_path}/ckpt.db"


def test_an_explicit_connection_never_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CKPT__SQL_ALCHEMY_CONN", "sqlite:////elsewhere.db")

    with pytest.raises(MissingConnectionError, match="'ledger_of_the_team' is not defined"):
        locate_ledger("ledger_of_the_team")


def test_a_variable_that_is_no_connection_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", '{"conn_type": "ckpt", "port": "many"}')

    with pytest.raises(ConfigError, match="AIRFLOW_CONN_CKPT_DEFAULT is set, but"):
        locate_ledger()


def test_where_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", "ckpt://ckpt:s3cret@db:5433/ledger")

    found = locate_ledger()

    assert "s3cret" not in found.where + repr(found)
    assert "db:5433/ledger" in found.where


@pytest.mark.parametrize(
    ("connection", "url"),
    [
        (Connection.from_uri("ckpt://ckpt:s3cret@db:5433/ledger", "c"), POSTGRES),
        (Connection.from_uri("postgres://ckpt:s3cret@db:5433/ledger", "c"), POSTGRES),
        (Connection.from_uri("ckpt://ckpt:p%40ss@db/ledger", "c"), "postgresql+psycopg2://ckpt:p%40ss@db:5432/ledger"),
        (
            Connection.from_uri("ckpt://db/ledger?sslmode=require", "c"),
            "postgresql+psycopg2://db:5432/ledger?sslmode=require",
        ),
        (Connection.from_uri("ckpt:///var/lib/ckpt.db", "c"), "sqlite:////var/lib/ckpt.db"),
        (Connection.from_uri("sqlite:////var/lib/ckpt.db", "c"), "sqlite:////var/lib/ckpt.db"),
        (
            Connection(conn_id="c", conn_type="ckpt", extra=json.dumps({"path": "/a b/ckpt.db"})),
            "sqlite:////a b/ckpt.db",
        ),
        (Connection(conn_id="c", conn_type="sqlite", host="/var/lib/ckpt.db"), "sqlite:////var/lib/ckpt.db"),
    ],
)
def test_a_connection_becomes_a_url(connection: Connection, url: str) -> None:
    assert ledger_url(connection) == url


@pytest.mark.parametrize(
    ("connection", "says"),
    [
        (Connection(conn_id="c", conn_type="ckpt"), "names no ledger"),
        (Connection(conn_id="c", conn_type="mysql", host="db", schema="ledger"), "names no ledger"),
        (Connection(conn_id="c", conn_type="ckpt", extra=json.dumps({"path": "ckpt.db"})), "not absolute"),
    ],
)
def test_a_connection_that_names_no_ledger_is_refused(connection: Connection, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ledger_url(connection)


def test_connectors_get_what_the_connection_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", "postgresql://me:s3cret@db:5433/shop?sslmode=require")

    found = resolve_connection("shop")

    assert (found.type, found.host, found.port, found.login, found.password, found.schema) == (
        "postgres", "db", 5433, "me", "s3cret", "shop",
    )  # fmt: skip
    assert found.extra == {"sslmode": "require"}
    assert "s3cret" not in repr(found)


def test_a_missing_connection_is_named_with_what_to_do() -> None:
    with pytest.raises(MissingConnectionError, match="AIRFLOW_CONN_SHOP"):
        resolve_connection("shop")
