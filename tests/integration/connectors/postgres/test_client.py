"""Tests of a lane's connections: settings that all share, and settings of each one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.postgres.client import open_adbc, open_psycopg
from airflow_provider_ckpt.connectors.postgres.table import adbc_fetch
from airflow_provider_ckpt.core.errors import ErrorType, SinkError
from tests.integration.connectors.postgres.postgres_support import connection
from tests.services.tables import execute


def opened(dsn: str, application: str, settings: Mapping[str, str] | None = None) -> closing[Any]:
    """A lane's connection, closed at the end of the block."""
    return closing(open_adbc(connection(dsn), application, ErrorType.SINK, dict(settings or {})))


def test_each_connection_has_its_own_name_and_settings(postgres_database: str) -> None:
    shown = "SELECT current_setting('application_name'), current_setting('work_mem'), current_setting('timezone')"
    with (
        opened(postgres_database, "it's \\one", {"work_mem": "7MB"}) as one,
        opened(postgres_database, "two") as two,
        one.cursor() as first,
        two.cursor() as second,
    ):
        assert adbc_fetch(first)(shown, []) == [("it's \\one", "7MB", "UTC")]
        assert adbc_fetch(second)(shown, []) == [("two", "4MB", "UTC")]


@pytest.mark.parametrize("open_one", [open_adbc, open_psycopg])
def test_a_name_that_nobody_resolves_is_an_outage(open_one: Callable[..., Any]) -> None:
    nowhere = connection("postgresql://nobody@database.invalid:5432/shop")

    with pytest.raises(SinkError, match="could not translate host name") as failure:
        open_one(nowhere, "one", ErrorType.SINK)

    assert (failure.value.info.recoverable, failure.value.info.is_outage) == (True, True)


def test_closing_one_connection_leaves_the_others(postgres_database: str) -> None:
    with opened(postgres_database, "two") as two, two.cursor() as cursor:
        with opened(postgres_database, "one"):
            pass
        assert adbc_fetch(cursor)("SELECT 1", []) == [(1,)]


def test_no_session_outlives_its_connection(postgres_database: str) -> None:
    with opened(postgres_database, "one"):
        pass

    left = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name IN ('one', 'ckpt')"
    )
    deadline = time.monotonic() + 10
    while execute(postgres_database, left) != [(0,)] and time.monotonic() < deadline:
        time.sleep(0.02)  # a session ends a moment after its client has gone
    assert execute(postgres_database, left) == [(0,)]


def test_a_type_made_after_the_first_connection_can_be_written_and_read(postgres_database: str) -> None:
    with opened(postgres_database, "first"):
        pass
    execute(postgres_database, "CREATE TYPE mood AS ENUM ('sad', 'ok')", "CREATE TABLE target (id int, m mood)")

    with opened(postgres_database, "second") as later, later.cursor() as cursor:
        rows = pa.table({"id": pa.array([1, 2], pa.int32()), "m": ["ok", None]})
        cursor.adbc_ingest("target", rows, mode="append", db_schema_name="public")
        cursor.execute("SELECT id, m::text FROM target ORDER BY id")

        assert cursor.fetchall() == [(1, "ok"), (2, None)]


def test_a_setting_that_the_server_refuses_is_an_error_with_its_reason(postgres_database: str) -> None:
    with pytest.raises(SinkError, match="work_mem"):
        open_adbc(connection(postgres_database), "one", ErrorType.SINK, {"work_mem": "nonsense"})
