"""A sql source on a server whose transactions run on other servers: a real replica, and servers that look like one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.source_plan import PlanRequest, RangeToPlan
from airflow_provider_ckpt.connectors.sql import mysql
from airflow_provider_ckpt.connectors.sql.source import SqlSource
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.ranges import START
from tests.integration.connectors.sql.sql_support import MariaDb, pipeline
from tests.services.database_server import USER
from tests.services.mariadb import MariaDbServer

DATABASE = "copied"


@pytest.fixture(scope="module")
def primary() -> Iterator[MariaDbServer]:
    """A server that logs what it commits to its database ``copied``, which has the table ``source``."""
    settings = {"server-id": "1", "skip-log-bin": "0", "log-bin": "primary"}
    with MariaDbServer(settings, in_memory=True) as server:
        server.execute(
            "mysql",
            "RESET MASTER",
            f"CREATE DATABASE {DATABASE}",
            f"CREATE TABLE {DATABASE}.source (id int AUTO_INCREMENT PRIMARY KEY, number int)",
        )
        yield server


@pytest.fixture(scope="module")
def replica(primary: MariaDbServer) -> Iterator[MariaDbServer]:
    """A server that repeats what the primary commits; it is not read-only."""
    with MariaDbServer({"server-id": "2"}, in_memory=True) as server:
        server.execute(
            "mysql",
            f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {primary.port}, master_user = '{USER}', "
            f"master_password = '{primary.password}', master_log_file = 'primary.000001', master_log_pos = 4",
            "START SLAVE",
        )
        yield server


def read(server: MariaDbServer) -> list[int]:
    """The ids that a server shows in its table."""
    return [number for (number,) in server.execute(DATABASE, "SELECT id FROM source ORDER BY id")]


def wait_for(server: MariaDbServer, ids: list[int]) -> None:
    """Wait until a server shows these ids."""
    deadline = time.monotonic() + 60
    while (DATABASE,) not in server.execute("mysql", "SHOW DATABASES") or read(server) != ids:
        assert time.monotonic() < deadline, server.execute("mysql", "SHOW SLAVE STATUS")
        time.sleep(0.05)


def opened(connection: Connection, **source: str) -> SqlSource:
    return SqlSource(pipeline(source={"close_wait": "0.6s", **source}), connection)


def test_a_replica_hides_the_row_that_its_primary_commits_late(
    primary: MariaDbServer, replica: MariaDbServer, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(primary.open(DATABASE)) as late:
        late.begin()
        late.cursor().execute("INSERT INTO source (number) VALUES (0)")
        primary.execute(DATABASE, "INSERT INTO source (number) VALUES (1)")
        wait_for(replica, [2])
        with closing(opened(replica.connection(DATABASE), late_rows="recover")) as source:
            source.check()
            (partition,) = source.partitions()
            bounds = source.plan(PlanRequest([RangeToPlan(partition.id, START)], None, 10**9)).bounds
        late.commit()
    wait_for(replica, [1, 2])

    assert list(bounds.values()) == [3], "row 1 is below the bound, and was not there"
    assert "connection 'shop' is a replica, so it hides the transactions of other servers" in caplog.text
    with closing(opened(primary.connection(DATABASE))) as source:
        source.check()
    with closing(opened(replica.connection(DATABASE))) as source, pytest.raises(ConfigError) as refused:
        source.check()
    assert "pipeline orders" in str(refused.value)
    assert "is a replica, so it hides the transactions of other servers" in str(refused.value)
    assert "Name a connection to the primary." in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"read_only": "ON"}, r"is read-only \(read_only\), as replicas are"),
        ({"super_read_only": "ON"}, r"is read-only \(super_read_only\)"),
        ({"innodb_read_only": "ON"}, r"is read-only \(innodb_read_only\)"),
        ({"wsrep_on": "ON"}, "belongs to a cluster with several primaries"),
        ({"group_replication_single_primary_mode": "OFF"}, "belongs to a cluster with several primaries"),
    ],
)
def test_a_server_that_may_be_a_replica_by_its_settings(
    mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], message: str
) -> None:
    mariadb.execute("CREATE TABLE source (id int PRIMARY KEY)")
    with closing(opened(mariadb.connection)) as source:
        source.check()
        monkeypatch.setattr(mysql, "server_settings", lambda _: settings)

        with pytest.raises(ConfigError, match=message):
            source.check()
