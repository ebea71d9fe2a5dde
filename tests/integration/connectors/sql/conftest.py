"""Fixtures of the tests of the sql source and sink."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.connectors.sql.sql_support import Database, MariaDb, Sqlite
from tests.services.mariadb import MariaDbServer


@pytest.fixture
def mariadb(mariadb_server: MariaDbServer) -> MariaDb:
    """A database of the MariaDB server."""
    return MariaDb(mariadb_server)


@pytest.fixture
def sqlite(tmp_path: Path) -> Sqlite:
    """A file."""
    return Sqlite(tmp_path)


@pytest.fixture(params=["mariadb", "sqlite"])
def database(request: pytest.FixtureRequest) -> Database:
    """A database of each kind."""
    found: Database = request.getfixturevalue(request.param)
    return found
