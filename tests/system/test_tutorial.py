"""The tutorial, followed to the letter in a fresh directory: a pipeline runs, is killed, and recovers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.docs import Block, blocks_of
from tests.services.postgres import PASSWORD, USER, PostgresServer
from tests.services.terminal import Terminal

ROWS = 1_000_000
INSTALL = "$ pip install airflow-provider-ckpt\n"
SERVER = "PGHOST=localhost PGPORT=5432 PGUSER=ann PGPASSWORD=secret"
OWN_TABLE = {
    "shop": "depot",
    "SHOP": "DEPOT",
    "warehouse": "archive",
    "WAREHOUSE": "ARCHIVE",
    "visits": "parcels",
    "cursor: id": "cursor: scanned",
    "select: {id: id, page: page, seconds: cast(seconds as int), at: at}": "select: {code: code, kilos: weight}",
    "DISTINCT id": "DISTINCT code",
    "999999": "1000000",
    "999,999": "1,000,000",
}
"""What the tutorial's last chapter says of another table: names change, and no record of this one is bad."""
OWN_SQL = {
    "depot.sql": "CREATE TABLE parcels (code text, weight numeric(8, 3), note text, scanned timestamptz);"
    "INSERT INTO parcels SELECT md5(i::text), i / 1000.0, 'fragile', '2026-01-01Z'::timestamptz + i * interval '7 ms'"
    f" FROM generate_series(1, {ROWS}) AS i;",
    "archive.sql": "CREATE TABLE parcels (code text, kilos numeric(8, 3));",
}


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
    """How many rows a table has."""
    status, output = terminal.type(f"psql -At {database} -c 'SELECT count(*) FROM {table}'")
    assert status == 0, output
    return next(int(line) for line in output.splitlines() if line.isdecimal())  # the shell may tell of a job, too


def test_the_tutorial_as_it_is_written(terminal: Terminal, tmp_path: Path, postgres_server: PostgresServer) -> None:
    follow(terminal, tmp_path, tutorial(postgres_server), "warehouse", "visits")

    # The bad record is a dead letter, and one row came last.
    assert count(terminal, "warehouse", "visits") == count(terminal, "shop", "visits") - 1 == ROWS


def test_the_tutorial_with_a_table_of_ones_own(
    terminal: Terminal, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    blocks = [block.replacing(OWN_TABLE) for block in tutorial(postgres_server)]
    recovered = next(number for number, block in enumerate(blocks) if "--against-sink" in block.text)
    mine = [block.replacing({block.text: OWN_SQL.get(block.caption, block.text)}) for block in blocks[: recovered + 1]]

    follow(terminal, tmp_path, mine, "archive", "parcels")

    assert count(terminal, "archive", "parcels") == count(terminal, "depot", "parcels") == ROWS
