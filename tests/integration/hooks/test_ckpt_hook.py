"""The *Test* button of Airflow's connection form: its message for every state of a ledger, without secrets."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from airflow.models.connection import Connection

from airflow_provider_ckpt.ledger.store import migrate
from tests.services.ledgers import new_ledger_file
from tests.services.postgres import sqlalchemy_url


def press(monkeypatch: pytest.MonkeyPatch, uri: str) -> tuple[bool, str]:
    """Test a connection as Airflow's API does: put the form's connection into the environment, ask its hook."""
    monkeypatch.setenv("AIRFLOW_CONN_FROM_THE_FORM", uri)
    return answer_of(Connection(conn_id="from_the_form", uri=uri))


def answer_of(connection: Connection) -> tuple[bool, str]:
    """Return the result and message that Airflow shows beside the button."""
    answer: tuple[bool, str] = connection.test_connection()  # type: ignore[no-untyped-call]
    return answer


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """Return a possible location of a ledger: the connection's URI, and SQLAlchemy's."""
    if request.param == "sqlite":
        return f"ckpt://{tmp_path}/s3cret.db", f"sqlite:///{tmp_path}/s3cret.db"
    dsn: str = request.getfixturevalue("postgres_database")
    return dsn.replace("postgresql:", "ckpt:", 1), sqlalchemy_url(dsn)


def test_where_there_is_none_it_says_so_and_what_to_run(
    place: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    works, said = press(monkeypatch, place[0])

    assert not works
    assert "holds no ledger yet. Run `airflow ckpt db migrate`." in said


def test_one_of_an_older_version_must_be_migrated(place: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    migrate.upgrade(place[1], create=True)
    migrate.downgrade(place[1], "0002")

    works, said = press(monkeypatch, place[0])

    assert not works
    assert f"at revision 0002; this version needs {migrate.head()}. Run `airflow ckpt db migrate`." in said


def test_one_that_is_ready_is_named_with_its_kind_and_revision(
    place: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate.upgrade(place[1], create=True)

    works, said = press(monkeypatch, place[0])

    assert works
    assert said.startswith("SQLite file /" if "sqlite" in place[1] else "PostgreSQL ckpt@127.0.0.1:")
    assert f"(named by connection from_the_form) holds a ledger at revision {migrate.head()}" in said


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("ckpt://ckpt:s3cret-word@127.0.0.1:{port}/{name}", "password authentication failed"),
        ("ckpt://ckpt:s3cret-word@127.0.0.1:1/{name}", "reported an error"),
        ("ckpt://ckpt:s3cret-word@/nowhere", "names no ledger|does not exist|holds no ledger"),
        ("ckpt://ckpt:s3cret-word@127.0.0.1:{port}/{name}?no_such_option=s3cret-word", "no_such_option"),
        ("ckpt://?path=s3cret.db", "is not absolute"),
    ],
)
def test_what_is_wrong_is_said_without_the_password(
    wrong: str, says: str, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = urlsplit(postgres_database)

    works, said = press(monkeypatch, wrong.format(port=parts.port, name=parts.path[1:]))

    assert not works
    assert any(part in said for part in says.split("|")), said
    assert "s3cret-word" not in said


def test_the_form_s_own_fields_name_an_embedded_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_ledger_file(tmp_path / "ledger.db")
    form = json.dumps({"conn_type": "ckpt", "extra": {"path": f"{tmp_path}/ledger.db", "sslmode": None}})
    monkeypatch.setenv("AIRFLOW_CONN_FROM_THE_FORM", form)

    works, said = answer_of(Connection.from_json(form, "from_the_form"))

    assert works, said
