"""Fixtures of these tests: a shell, a PostgreSQL server and a ledger, as a reader of the documentation has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.airflow.fixtures import ckpt as ckpt
from tests.integration.airflow.fixtures import ledger as ledger
from tests.integration.airflow.fixtures import orders as orders
from tests.integration.docs.reader import Reader, environment
from tests.services.postgres import PostgresServer
from tests.services.terminal import Terminal
from tests.services.warm_airflow import airflow_in


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server whose databases and roles have the documentation's names."""
    with PostgresServer(in_memory=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the command ``airflow``."""
    here = tmp_path_factory.mktemp("programs")
    with airflow_in(here, environment(here)):
        yield here


@pytest.fixture
def reader(programs: Path, server: PostgresServer, tmp_path: Path) -> Iterator[Reader]:
    """A reader in an empty directory."""
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    with Terminal(tmp_path, {**environment(programs), **Reader.settings(tmp_path, server), "PATH": path}) as terminal:
        yield Reader(tmp_path, server, terminal)
