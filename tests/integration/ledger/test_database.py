"""Opening a ledger, and the error messages if it cannot be opened."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.core.errors import CkptError, ConfigError, LedgerStateError, LedgerUnavailableError
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from airflow_provider_ckpt.ledger.store.database import create_engine, parse_url
from tests.integration.ledger.ledger_driver import NOW, TTL, LedgerDriver
from tests.services.ledgers import new_ledger_file
from tests.services.postgres import PostgresServer


def refusal(url: str) -> str:
    """Return the error message for a ledger that cannot be opened."""
    with pytest.raises(CkptError) as caught:
        Ledger.open(url)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_ledger_keeps_its_id(ledger_url: str) -> None:
    with Ledger.open(ledger_url) as one, Ledger.open(ledger_url) as two:
        assert one.id == two.id
        assert len(one.id) == 36


def test_a_database_that_was_never_migrated_names_the_command(empty_url: str) -> None:
    if empty_url.startswith("sqlite"):
        sqlite3.connect(empty_url.removeprefix("sqlite:///")).close()
        Path(empty_url.removeprefix("sqlite:///")).touch()
    assert "`airflow ckpt db migrate`" in refusal(empty_url)


def test_a_ledger_of_another_revision_names_both_and_the_command(ledger_url: str) -> None:
    engine = create_engine(parse_url(ledger_url))
    version = sa.table("ckpt_alembic_version", sa.column("version_num"))
    with engine.begin() as connection:
        connection.execute(version.update().values(version_num="9999"))
    try:
        text = refusal(ledger_url)
    finally:
        with engine.begin() as connection:
            connection.execute(version.update().values(version_num=migrate.head()))
        engine.dispose()
    assert all(part in text for part in ("9999", migrate.head(), "`airflow ckpt db migrate`"))


def test_a_missing_file_is_never_made(tmp_path: Path) -> None:
    text = refusal(f"sqlite:///{tmp_path}/none.db")
    assert str(tmp_path / "none.db") in text
    assert "`airflow ckpt db migrate`" in text
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "letter.db"
    path.write_text("Dear ledger, " * 100)
    assert "not a database" in refusal(f"sqlite:///{path}")
    assert path.read_text().startswith("Dear ledger")


def test_a_directory_is_no_ledger(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal(f"sqlite:///{tmp_path}")


def test_a_server_that_is_down_is_named_without_the_password() -> None:
    text = refusal("postgresql://robin:sesame@127.0.0.1:1/ledger?application_name=sesame")
    assert "robin@127.0.0.1:1/ledger" in text
    assert "sesame" not in text


def test_a_wrong_password_is_not_repeated(postgres_server: PostgresServer) -> None:
    text = refusal(postgres_server.dsn.replace("ckpt-test", "open-sesame"))
    assert "password authentication failed" in text
    assert "open-sesame" not in text


def test_a_lost_file_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    new_ledger_file(path)
    with Ledger.open(f"sqlite:///{path}") as ledger:
        path.write_bytes(b"overwritten" * 1000)
        ledger.close()
        with pytest.raises(LedgerUnavailableError, match="Restore the file"):
            ledger.pipelines()


def test_a_full_disk_is_one_clear_line_and_stores_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    new_ledger_file(path)
    with Ledger.open(f"sqlite:///{path}") as ledger:
        driver = LedgerDriver(ledger).start("t")

        @sa.event.listens_for(ledger._engine, "begin")
        def fill_the_disk(connection: sa.Connection) -> None:
            connection.exec_driver_sql("PRAGMA max_page_count = 1")

        with pytest.raises(LedgerUnavailableError, match="Make room"):
            driver.plan(*range(1, 5000))
        assert driver.states() == {}


def test_a_position_beyond_64_bits_is_refused_and_nothing_is_stored(ledger: Ledger) -> None:
    driver = LedgerDriver(ledger).start("t")
    with pytest.raises(LedgerStateError, match="cannot store"):
        driver.plan(2**63)
    assert driver.states() == {}
    assert driver.plan(2**63 - 1)[0].range.end == 2**63 - 1


def test_an_open_ledger_survives_the_loss_of_its_connections(postgres_server: PostgresServer) -> None:
    url = postgres_server.new_database()
    migrate.upgrade(url)
    with Ledger.open(url) as ledger:
        driver = LedgerDriver(ledger).start("t")
        engine = sa.create_engine(parse_url(url))
        with engine.begin() as connection:
            # With a time to wait, in ms, the function answers once the server has ended the connection.
            kill = "SELECT pg_terminate_backend(pid, 9999) FROM pg_stat_activity WHERE application_name = 'ckpt-ledger'"
            assert connection.scalars(sa.text(kill + " AND datname = current_database()")).all() == [True]
        engine.dispose()
        assert driver.plan(10)[0].key.seq == 0


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://h/db", "no address at all"])
def test_an_address_that_cannot_hold_a_ledger_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        Ledger.open(url)


def test_another_process_that_holds_the_file_too_long_is_named_as_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.db"
    new_ledger_file(path)
    monkeypatch.setattr("airflow_provider_ckpt.ledger.store.database._BUSY_SECONDS", 0.1)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with Ledger.open(f"sqlite:///{path}") as ledger:
        with pytest.raises(LedgerUnavailableError, match="Another process has locked the ledger"):
            ledger.acquire("orders", "a", TTL)
        assert ledger.pipelines() == []
    holder.execute("ROLLBACK")
    holder.close()


def test_a_sqlite_ledger_is_durable_and_shared(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    new_ledger_file(path)
    with Ledger.open(f"sqlite:///{path}") as ledger:
        driver = LedgerDriver(ledger).start("t")
        driver.ledger.cancel(driver.lease, now=NOW)
        with ledger._engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
