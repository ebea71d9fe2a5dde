"""Fixtures of the system tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.postgres import PostgresServer
from tests.system.machine import Machine, machine_at


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[Machine]:
    """A machine for all tests of a module; each has a pipeline of its own."""
    databases = {name: postgres_server.new_database() for name in ("shop", "store")}
    with machine_at(tmp_path_factory.mktemp("any input"), databases) as machine:
        yield machine


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder for screenshots: that of the environment variable SCREENSHOTS, or a temporary one."""
    return Path(os.environ.get("SCREENSHOTS") or tmp_path_factory.mktemp("screenshots"))
