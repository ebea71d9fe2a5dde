"""Sessions that the runs of one process pass on: as good as new, alive, of the same user, and closed at the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_ckpt.connectors import kept_sessions
from airflow_provider_ckpt.connectors.kept_sessions import keep_sessions
from airflow_provider_ckpt.connectors.postgres.client import give_back_psycopg, take_or_open_psycopg
from airflow_provider_ckpt.core.errors import ErrorType
from tests.integration.connectors.postgres.postgres_support import connection
from tests.services.tables import execute, scalar

SETTINGS = {"enable_seqscan": "off"}


@pytest.fixture
def take(postgres_database: str) -> Callable[..., Any]:
    """Take or open a session."""
    return lambda name="a", settings=SETTINGS: take_or_open_psycopg(
        connection(postgres_database), name, ErrorType.SINK, settings
    )


@pytest.fixture
def give(postgres_database: str) -> Callable[..., None]:
    """Give a session back."""
    return lambda session, settings=SETTINGS: give_back_psycopg(session, connection(postgres_database), settings)


def ask(session: Any, query: str) -> Any:
    """Return the only value of a query's result."""
    with session.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchone()[0]


def sessions(dsn: str) -> int:
    """Return the number of other sessions of the database, after those that end have ended."""
    time.sleep(0.2)
    others = "datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    found: int = scalar(dsn, f"SELECT count(*) FROM pg_stat_activity WHERE {others}")
    return found


def test_a_session_is_used_again_without_what_its_last_user_left(
    take: Callable[..., Any], give: Callable[..., None], postgres_database: str
) -> None:
    with keep_sessions():
        session = take("first")
        pid = session.info.backend_pid
        ask(session, "SET lock_timeout = 5; SET enable_seqscan = on; CREATE TEMP TABLE t (); SELECT 1")
        ask(session, "SELECT 1 FROM pg_advisory_lock(3)")
        give(session)
        again = take("second")

        assert (again.info.backend_pid, again.autocommit) == (pid, True)
        assert ask(again, "SELECT current_setting('application_name')") == "second"
        assert ask(again, "SELECT current_setting('lock_timeout')") == "0"
        assert ask(again, "SELECT current_setting('enable_seqscan')") == "off"
        assert ask(again, "SELECT current_setting('timezone')") == "UTC"
        assert ask(again, "SELECT to_regclass('t')") is None
        assert scalar(postgres_database, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
        give(again)
    assert sessions(postgres_database) == 0


def test_only_a_session_of_equal_address_user_and_settings_is_used(
    take: Callable[..., Any], give: Callable[..., None], postgres_database: str
) -> None:
    with keep_sessions():
        session = take()
        give(session)
        other = take(settings={})
        changed = replace(connection(postgres_database), extra={"connect_timeout": 7})
        renamed = take_or_open_psycopg(changed, "a", ErrorType.SINK, SETTINGS)
        pids = {each.info.backend_pid for each in (session, other, renamed)}
        other.close()
        renamed.close()
    assert len(pids) == 3


def test_a_session_that_the_server_has_ended_is_replaced(
    take: Callable[..., Any], give: Callable[..., None], postgres_database: str
) -> None:
    with keep_sessions():
        session = take()
        pid = session.info.backend_pid
        give(session)
        execute(postgres_database, f"SELECT pg_terminate_backend({pid}, 5000)")
        again = take()
        assert ask(again, "SELECT 1") == 1
        assert again.info.backend_pid != pid
        again.close()


def test_a_session_inside_a_transaction_or_idle_for_long_is_not_kept(
    take: Callable[..., Any], give: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with keep_sessions():
        session = take()
        ask(session, "BEGIN; SELECT 1")
        give(session)
        assert session.closed
        session = take()
        give(session)
        monkeypatch.setattr(kept_sessions, "_MAX_IDLE_SECONDS", 0.0)
        other = take()
        assert session.closed
        assert not other.closed
        other.close()


def test_without_runs_that_share_the_process_a_session_is_closed(
    take: Callable[..., Any], give: Callable[..., None]
) -> None:
    session = take()
    give(session)
    assert session.closed
    with keep_sessions(), keep_sessions():
        pass
    session = take()
    give(session)
    assert session.closed
