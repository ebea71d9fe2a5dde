"""Command line, hook and database manager find the same ledger, however its location is configured.

The system tests check the same for a real task and a real trigger.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy.orm import Session

from airflow_provider_ckpt.db_manager import CkptDBManager
from airflow_provider_ckpt.hooks.ckpt import CkptHook
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from tests.integration.airflow.ckpt import Ckpt
from tests.services.postgres import sqlalchemy_url

WAYS = ["a URI", "JSON", "a secrets backend", "an SQLite path", "the configuration"]


@pytest.fixture(params=WAYS)
def url(request: pytest.FixtureRequest, tmp_path: Path, postgres_database: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The SQLAlchemy URL of a ledger that the environment names in some way."""
    monkeypatch.delenv("AIRFLOW__CKPT__SQL_ALCHEMY_CONN", raising=False)
    uri = postgres_database.replace("postgresql:", "ckpt:", 1)
    found = sqlalchemy_url(postgres_database)
    if request.param == "a URI":
        monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", uri)
    elif request.param == "JSON":
        _, _, rest = uri.partition("://")
        (login, password), (where, name) = rest.split("@")[0].split(":"), rest.split("@")[1].split("/")
        host, port = where.split(":")
        parts = {"conn_type": "ckpt", "login": login, "password": password, "host": host, "port": int(port)}
        monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", json.dumps({**parts, "schema": name}))
    elif request.param == "a secrets backend":
        file = tmp_path / "connections.json"
        file.write_text(json.dumps({"ckpt_default": uri}))
        backend = "airflow.secrets.local_filesystem.LocalFilesystemBackend"
        monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND", backend)
        monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND_KWARGS", json.dumps({"connections_file_path": str(file)}))
    elif request.param == "an SQLite path":
        found = f"sqlite:///{tmp_path}/of my own.db"
        extra = {"path": f"{tmp_path}/of my own.db"}
        monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", json.dumps({"conn_type": "ckpt", "extra": extra}))
    else:
        monkeypatch.setenv("AIRFLOW__CKPT__SQL_ALCHEMY_CONN", found)
    return found


def test_everyone_finds_the_same_ledger(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    manager = CkptDBManager(cast("Session", None))
    manager.upgradedb()

    with Ledger.open(url) as ledger, CkptHook().get_ledger() as seen:
        assert seen.id == ledger.id
    assert manager.get_alembic_config().get_main_option("sqlalchemy.url") == url
    assert manager.get_current_revision() == migrate.head()
    checked = Ckpt(capfd).json("db", "check")
    works, said = CkptHook().test_connection()
    assert works
    assert said.startswith(f"{checked['ledger']} (named by {checked['from']}) holds a ledger at revision")


def test_a_ledger_that_does_not_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CKPT_DEFAULT", "ckpt://nobody@127.0.0.1:1/ledger")

    assert CkptDBManager(cast("Session", None)).check_migration() is False
