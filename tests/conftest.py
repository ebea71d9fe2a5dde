"""Fixtures that all tests share: the services that the tests use."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.placement import pytest_collection_modifyitems as pytest_collection_modifyitems
from tests.placement import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler
from tests.services.kafka import KafkaBroker
from tests.services.mariadb import MariaDbServer
from tests.services.object_store import ObjectStoreServer
from tests.services.object_stores import ObjectStores
from tests.services.postgres import PostgresServer

# How long an example takes says more of the machine than of the code; and the same examples each time, so that what
# fails was changed. HYPOTHESIS=random draws others.
settings.register_profile("ckpt", deadline=None, derandomize=os.environ.get("HYPOTHESIS") != "random")
settings.load_profile("ckpt")

# Airflow reads this once, when it is imported; no test may read or write the user's own.
_airflow_home = tempfile.TemporaryDirectory(prefix="ckpt-airflow-")
os.environ["AIRFLOW_HOME"] = _airflow_home.name

# A Spark that stays after a test would be no part of it; tests of the warm engine switch it on.
os.environ.setdefault("AIRFLOW__CKPT__WARM_SPARK", "False")

# Spark's JVMs live for seconds here. Most of what Java would do in them is to compile, and nobody would reap it.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_finish() -> None:
    """Keep what the collection has made, millions of objects that stay to the end, out of garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def running_postgres() -> list[PostgresServer]:
    """The PostgreSQL server of the session, once a test has asked for it."""
    return []


@pytest.fixture(scope="session")
def postgres_server(running_postgres: list[PostgresServer]) -> Iterator[PostgresServer]:
    """A PostgreSQL server for the whole session."""
    with PostgresServer(in_memory=True) as server:
        running_postgres.append(server)
        yield server
        running_postgres.clear()


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> Iterator[str]:
    """The dsn of a database made for this test."""
    dsn = postgres_server.new_database()
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDbServer]:
    """A MariaDB server for the whole session."""
    with MariaDbServer(in_memory=True) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """A Kafka broker for the whole session; a test that kills or pauses it brings it back."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def object_stores() -> Iterator[ObjectStores]:
    """Object stores for the whole session, each started when it is asked for."""
    with ObjectStores() as stores:
        yield stores


@pytest.fixture(params=ObjectStores.names())
def object_store(request: pytest.FixtureRequest, object_stores: ObjectStores) -> ObjectStoreServer:
    """Each kind of object store in turn."""
    return object_stores.get(request.param)
