"""Fixtures that all tests share: the services they run against."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.placement import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests.services.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the whole session."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> str:
    """The dsn of a database made for this test."""
    return postgres_server.new_database()
