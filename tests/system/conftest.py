"""Fixtures of the system tests."""

from __future__ import annotations

import pytest

from tests.services.postgres import PostgresServer
from tests.system.machine import Machine


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Machine:
    """A machine for all tests of a module; each has a pipeline of its own."""
    databases = {name: postgres_server.new_database() for name in ("shop", "store")}
    return Machine(tmp_path_factory.mktemp("any input"), databases)
