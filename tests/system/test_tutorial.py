"""The tutorial, followed literally in a new directory: a pipeline runs, is killed, and recovers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.database_server import PASSWORD, USER
from tests.services.docs import Block, blocks_of
from tests.services.postgres import PostgresServer
from tests.services.terminal import Terminal

ROWS = 1_000_000
INSTALL = "$ pip install airflow-provider-ckpt pyspark==4.2.0 pyspark-client==4.2.0\n"
SERVER = "PGHOST=localhost PGPORT=5432 PGUSER=ann PGPASSWORD=secret"


@pytest.fixture
def terminal(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[Terminal]:
    """A newcomer's shell: an empty home, no setting of Airflow's; this checkout is what is installed.

    Only the cache is the machine's, so that Spark's head start is not made anew by every test.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PG", "SPARK"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), inherited["PATH"]])
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    env = {**inherited, "PATH": path, "HOME": str(tmp_path), "XDG_CACHE_HOME": cache}
    with Terminal(tmp_path, env) as opened:
        yield opened


def tutorial(server: PostgresServer) -> list[Block]:
    """Its blocks, with this machine's server, and without the installation."""
    here = f"PGHOST=127.0.0.1 PGPORT={server.port} PGUSER={USER} PGPASSWORD={PASSWORD}"
    blocks = blocks_of("docs/tutorial.rst")
    for yours in (INSTALL, SERVER):
        assert sum(block.text.count(yours) for block in blocks) == 1
    return [block.replacing({INSTALL: "", SERVER: here}) for block in blocks]


def follow(terminal: Terminal, here: Path, blocks: list[Block], target: str, table: str) -> None:
    """Do what they say. Where one kills the run, see that it was neither too early nor too late."""
    for block in blocks:
        if block.caption:
            (here / block.caption).parent.mkdir(exist_ok=True)
            (here / block.caption).write_text(block.text)
        else:
            assert block.language == "console", f"{block}: what is a reader to do with it?"
            terminal.follow(block)
        if "kill -9" in block.text:
            assert 0 < count(terminal, target, table) < ROWS


def count(terminal: Terminal, database: str, table: str) -> int:
    """Return the number of rows in a table."""
    status, output = terminal.type(f"psql -At {database} -c 'SELECT count(*) FROM {table}'")
    assert status == 0, output
    return next(int(line) for line in output.splitlines() if line.isdecimal())  # the shell may tell of a job, too


def test_the_tutorial_as_it_is_written(terminal: Terminal, tmp_path: Path, postgres_server: PostgresServer) -> None:
    follow(terminal, tmp_path, tutorial(postgres_server), "warehouse", "visits")

    # The bad record is a dead letter, and one row came last.
    assert count(terminal, "warehouse", "visits") == count(terminal, "shop", "visits") - 1 == ROWS
