"""Refreshes that are killed at any point: readers see whole generations, each newer than the one before."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.chaos.crash_points.run_spec import RunSpec
from tests.integration.replication.crashed_targets import PIPELINE, TARGETS, VALUES, Target
from tests.integration.replication.refresh_driver import CRASH_POINTS
from tests.services.ledgers import new_ledger_database
from tests.services.postgres import PostgresServer, sqlalchemy_url
from tests.services.replication import DATABASE, connection_to
from tests.services.tables import execute

_ROOT = Path(__file__).parents[3]
_HERTZ = 50
_VERSIONS = 7


def rows_of(version: int) -> int:
    """Return the number of rows of a version of the source."""
    return 400 + 37 * (version % _VERSIONS)


class Oracle:
    """Changes the source, and reads the target, while refreshes run and are killed.

    :param target: the target
    :ivar seen: what the reader saw, without repetitions: number of rows, least and greatest version
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self.seen: list[tuple[int, int | None, int | None]] = []
        self.reads = 0
        self._ended = threading.Event()
        self._failures: list[BaseException] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Change and read in the background."""
        threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self._read, self._change)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()
        assert self._failures == []

    def broken(self) -> list[tuple[str, tuple[int, int | None, int | None]]]:
        """Return what the reader saw that it must not see, each with the name of the invariant that forbids it."""
        newest, found = 0, []
        for seen in self.seen:
            count, least, greatest = seen
            if least is None or least != greatest or count != rows_of(least):
                found.append(("ReadersSeeOneGeneration", seen))
            elif least < newest:
                found.append(("PublishMonotonic", seen))
            else:
                newest = least
        return found

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # the thread's boundary
            self._failures.append(error)

    def _read(self) -> None:
        while not self._ended.wait(1 / _HERTZ):
            found = self._target.seen()
            self.reads += 1
            if not self.seen or self.seen[-1] != found:
                self.seen.append(found)

    def _change(self) -> None:
        version = 1
        while not self._ended.wait(0.15):
            version += 1
            if version % _VERSIONS == 0:
                execute(self._target.dsn, "VACUUM countries")  # or each refresh would have more pages than the last
            execute(
                self._target.dsn,
                f"BEGIN; DELETE FROM countries WHERE id > {rows_of(version)};"
                f"UPDATE countries SET version = {version};"
                f"INSERT INTO countries SELECT i, {version}, repeat('x', 300) FROM"
                f" generate_series((SELECT count(*) FROM countries) + 1, {rows_of(version)}) AS i; COMMIT",
            )


class Stage:
    """A target that is refreshed by processes of their own."""

    def __init__(self, target: Target, ledger_dsn: str, driver: subprocess.Popen[str]) -> None:
        self.target, self._driver = target, driver
        document = {
            "name": PIPELINE,
            "source": {"type": "postgres", "connection": DATABASE, "table": "countries", "mode": "full"},
            "sink": {**target.sink, "mode": "replace"},
            "commit_strategy": {"commit_interval": 150},
            "lease": {"wait": "30s"},
        }
        connections = {DATABASE: connection_to(target.dsn), **target.connections}
        self._spec = RunSpec(document, sqlalchemy_url(ledger_dsn), connections)

    def run(self, point: str = "none") -> int:
        """Refresh in a process that dies at a point; return its exit code."""
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        self._driver.stdin.write(json.dumps([point, self._spec.to_json()]) + "\n")
        self._driver.stdin.flush()
        return int(self._driver.stdout.readline())


@pytest.fixture(scope="module")
def driver() -> Iterator[subprocess.Popen[str]]:
    """The process that the refreshing ones are forked from."""
    command = [sys.executable, "-m", "tests.integration.replication.refresh_driver"]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.fixture(params=TARGETS)
def stage(
    request: pytest.FixtureRequest,
    postgres_server: PostgresServer,
    postgres_database: str,
    tmp_path: Path,
    driver: subprocess.Popen[str],
) -> Iterator[Stage]:
    """A source with version 1, and a target with the rows of version 0."""
    execute(
        postgres_database,
        "CREATE TABLE countries (id bigint PRIMARY KEY, version bigint NOT NULL, filler text NOT NULL)",
        f"INSERT INTO countries {VALUES.format(version=1, rows=rows_of(1))}",
    )
    ledger_dsn = new_ledger_database(postgres_server)
    with Ledger.open(sqlalchemy_url(ledger_dsn)) as ledger:
        make = TARGETS[request.param]
        target = make(postgres_database, tmp_path, ledger.id, lambda: request.getfixturevalue("mariadb_server"))
        target.create(rows_of(0))
        yield Stage(target, ledger_dsn, driver)


def test_readers_see_whole_generations_whatever_is_killed(stage: Stage) -> None:
    target = stage.target
    oracle = Oracle(target)
    moments = random.Random(time.time())
    with oracle.watching():
        for point in CRASH_POINTS[target.sink["type"]]:
            assert stage.run(point) == (0 if point == "none" else -9), point
        for _ in range(4):
            assert stage.run(str(moments.randrange(20, 600))) in (0, -9)
        assert stage.run() == 0

    assert oracle.broken() == []
    published = target.published()
    assert published == sorted(published)
    assert len(published) >= 3
    assert target.leftovers() == 0
    assert oracle.reads > 50
