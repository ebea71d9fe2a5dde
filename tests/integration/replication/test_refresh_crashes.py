"""Refreshes that are killed at any point: readers see complete generations, each at least as new as the last."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.chaos.crash_points.generations import Oracle, change_source, create_source, rows_of
from tests.chaos.crash_points.run_spec import RunSpec
from tests.integration.replication.crashed_targets import PIPELINE, TARGETS, Target
from tests.integration.replication.refresh_driver import CRASH_POINTS
from tests.services.ledgers import new_ledger_database
from tests.services.postgres import PostgresServer, sqlalchemy_url
from tests.services.replication import DATABASE, connection_to

_ROOT = Path(__file__).parents[3]


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
    create_source(postgres_database, "countries")
    ledger_dsn = new_ledger_database(postgres_server)
    with Ledger.open(sqlalchemy_url(ledger_dsn)) as ledger:
        make = TARGETS[request.param]
        target = make(postgres_database, tmp_path, ledger.id, lambda: request.getfixturevalue("mariadb_server"))
        target.create(rows_of(0))
        yield Stage(target, ledger_dsn, driver)


def test_readers_see_whole_generations_whatever_is_killed(stage: Stage) -> None:
    target = stage.target
    oracle = Oracle(target.seen, partial(change_source, target.dsn, "countries"))
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
