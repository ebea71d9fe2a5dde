"""Migrations on both databases create the expected schema, can be undone, and do not touch other tables."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from airflow_provider_ckpt.core.errors import LedgerUnavailableError
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate, tables
from airflow_provider_ckpt.ledger.store.database import create_engine, parse_url


def test_the_head_that_the_code_names_is_the_newest_migration() -> None:
    assert ScriptDirectory.from_config(migrate.alembic_config()).get_current_head() == migrate.head()


def test_the_migrations_make_the_very_tables_that_the_code_uses(ledger_url: str) -> None:
    engine = create_engine(parse_url(ledger_url))
    with engine.connect() as connection:
        options = {"version_table": tables.VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, tables.metadata) == []
    engine.dispose()


def test_a_ledger_goes_up_and_down_and_up_again(empty_url: str) -> None:
    assert migrate.current_revision(empty_url) is None
    migrate.upgrade(empty_url, create=True)
    assert migrate.current_revision(empty_url) == migrate.head()
    with Ledger.open(empty_url) as ledger:
        first = ledger.id
    migrate.downgrade(empty_url, "base")
    assert migrate.current_revision(empty_url) is None
    migrate.upgrade(empty_url)
    with Ledger.open(empty_url) as ledger:
        assert ledger.id != first


def test_migrating_twice_keeps_the_id(empty_url: str) -> None:
    migrate.upgrade(empty_url, create=True)
    with Ledger.open(empty_url) as ledger:
        first = ledger.id
    migrate.upgrade(empty_url, create=True)
    with Ledger.open(empty_url) as ledger:
        assert ledger.id == first


def test_other_tables_in_the_database_are_left_alone(empty_url: str) -> None:
    migrate.create_file(parse_url(empty_url))
    engine = create_engine(parse_url(empty_url))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num text)"))
    migrate.upgrade(empty_url)
    migrate.downgrade(empty_url, "base")
    assert set(sa.inspect(engine).get_table_names()) == {"alembic_version", tables.VERSION_TABLE}
    engine.dispose()


def test_two_processes_that_migrate_at_once_make_one_ledger(empty_url: str) -> None:
    migrate.create_file(parse_url(empty_url))
    engine = create_engine(parse_url(empty_url))
    engine.connect().close()
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(migrate.upgrade, [empty_url] * 2)) == [None, None]
    with engine.connect() as connection:
        assert len(connection.execute(sa.select(tables.ledger.c.id)).all()) == 1
    engine.dispose()


def test_alembics_own_command_line_finds_the_ledger_by_its_address(empty_url: str) -> None:
    migrate.create_file(parse_url(empty_url))
    config = migrate.alembic_config()
    config.set_main_option("sqlalchemy.url", empty_url.replace("%", "%%"))
    command.upgrade(config, "head")
    assert migrate.current_revision(empty_url) == migrate.head()


def test_without_leave_a_missing_file_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailableError, match="does not exist"):
        migrate.upgrade(f"sqlite:///{tmp_path}/none.db")
    assert list(tmp_path.iterdir()) == []


def test_with_leave_the_folder_is_made_too(tmp_path: Path) -> None:
    migrate.upgrade(f"sqlite:///{tmp_path}/deep/down/ledger.db", create=True)
    assert (tmp_path / "deep/down/ledger.db").exists()


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LedgerUnavailableError, match="cannot be created"):
        migrate.upgrade(f"sqlite:///{tmp_path}/file/ledger.db", create=True)
