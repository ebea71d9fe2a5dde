"""The tutorial of a database of fifty tables, followed literally: roles, loads, DAG runs, and a failing table."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg2
import pytest

from tests.services.database_server import PASSWORD, USER
from tests.services.docs import Block, blocks_of
from tests.services.postgres import PostgresServer
from tests.services.tables import scalar
from tests.services.terminal import Terminal
from tests.services.warm_airflow import airflow_in
from tests.services.warm_spark import WarmSpark

PAGE = "docs/tutorial-database.rst"
INSTALL = "$ pip install airflow-provider-ckpt pyspark==4.2.0 pyspark-client==4.2.0\n"
SERVER = "PGHOST=localhost PGPORT=5432 PGUSER=ann PGPASSWORD=secret"
AT_ONCE = 4
"""Number of tables of one process that work at a time."""
BEGUN = 8
"""Largest number of tables of one process that are in progress."""
LANES = 2
"""Largest number of lanes of a table while others wait, by ``lanes_per_table``, unless there is but one core."""
LEDGER = 6
"""Largest number of connections to the ledger that a process has."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server whose databases and roles have the tutorial's names."""
    with PostgresServer(in_memory=True) as opened:
        yield opened


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A newcomer's shell, in which ``airflow`` is imported once, with standing drivers that end with the test."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PG"))}
    programs = tmp_path / "programs"
    programs.mkdir()
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), inherited["PATH"]])
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    with WarmSpark(tmp_path / "runtime") as warm:
        env = {**inherited, "PATH": path, "HOME": str(tmp_path), "XDG_CACHE_HOME": cache, **warm.environment}
        imported = {**env, "AIRFLOW_HOME": str(tmp_path / "airflow"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
        with airflow_in(programs, imported), Terminal(tmp_path, env) as opened:
            yield opened
            assert len(warm.states()) == 1, "the tasks of a DAG find the driver that the command line started"


@contextmanager
def most_connections(server: PostgresServer) -> Iterator[dict[str, int]]:
    """Count the sessions of runs by database again and again; the block's end completes their maxima."""
    most: dict[str, int] = {}
    ended = threading.Event()

    def watch() -> None:
        with closing(psycopg2.connect(server.dsn)) as connection, connection.cursor() as cursor:
            connection.autocommit = True
            while not ended.wait(0.05):
                cursor.execute(
                    "SELECT datname, count(*) FROM pg_stat_activity WHERE application_name LIKE 'ckpt%' GROUP BY 1"
                )
                for name, count in cursor.fetchall():
                    most[name] = max(most.get(name, 0), count)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield most
    finally:
        ended.set()
        watching.join()


def test_the_tutorial_of_a_database_as_it_is_written(
    terminal: Terminal, tmp_path: Path, server: PostgresServer
) -> None:
    here = f"PGHOST=127.0.0.1 PGPORT={server.port} PGUSER={USER} PGPASSWORD={PASSWORD}"
    blocks = blocks_of(PAGE)
    for yours in (INSTALL, SERVER):
        assert sum(block.text.count(yours) for block in blocks) == 1

    with most_connections(server) as most:
        for block in blocks:
            _follow(terminal, tmp_path, block.replacing({INSTALL: "", SERVER: here}))

    for table in ("customers", "orders", "countries", "returns", *(f"sales_{number:02}" for number in range(1, 48))):
        source, target = (_rows(server, database, table) for database in ("shop", "warehouse"))
        assert target == source, table
    lanes = min(LANES, os.cpu_count() or 1)
    refreshed = 1
    assert AT_ONCE <= most["shop"] <= BEGUN + AT_ONCE * lanes + refreshed, most
    assert AT_ONCE <= most["warehouse"] <= BEGUN + AT_ONCE * lanes + refreshed, most
    assert 1 <= most["ledger"] <= LEDGER, most


def _follow(terminal: Terminal, here: Path, block: Block) -> None:
    if block.caption:
        (here / block.caption).parent.mkdir(exist_ok=True)
        (here / block.caption).write_text(block.text)
    else:
        assert block.language == "console", f"{block}: what is a reader to do with it?"
        terminal.follow(block)


def _rows(server: PostgresServer, database: str, table: str) -> str:
    """Return all rows of a table as text, in order."""
    found = scalar(
        server.database_dsn(database), f"SELECT string_agg(t::text, E'\\n' ORDER BY t::text) FROM {table} AS t"
    )
    return str(found)
