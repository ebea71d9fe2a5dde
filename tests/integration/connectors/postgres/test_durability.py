"""Batches that the postgres sink has committed survive a crash of the server, whatever the server's defaults."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.connectors.batch_content import DeadLetter
from airflow_provider_ckpt.connectors.postgres.dead_letter_store import PostgresDeadLetterStore
from airflow_provider_ckpt.connectors.postgres.sink import PostgresSink
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import ConfigError, ErrorInfo, ErrorType
from airflow_provider_ckpt.testing.sink_harness import LEDGER, Run, content, ids, task
from tests.integration.connectors.postgres.postgres_support import connection, pipeline
from tests.integration.connectors.postgres.test_sink import TargetHarness
from tests.services.database_server import USER
from tests.services.postgres import PostgresServer
from tests.services.tables import execute, scalar

_LAZY = {"wal_writer_delay": "10s", "wal_writer_flush_after": "0"}
"""The log is flushed by whoever asks for it, and by nobody else for ten seconds."""


@pytest.fixture(scope="module")
def lazy_server() -> Iterator[PostgresServer]:
    """A server that loses what was not flushed when it is killed."""
    with PostgresServer(_LAZY, in_memory=True) as server:
        yield server


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found


def crash(server: PostgresServer, dsn: str) -> None:
    """Kill every process of the server at once, as a loss of power would, and start it again."""
    postmaster = int((Path(scalar(dsn, "SHOW data_directory")) / "postmaster.pid").read_text().split()[0])
    victims = _children(postmaster)
    for pid in (postmaster, *victims):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in victims) and time.monotonic() < deadline:
        time.sleep(0.01)
    server.stop(signal.SIGKILL, keep=True)
    server.start()


def _loosen(dsn: str, where: str, value: str) -> None:
    name = USER if where == "ROLE" else dsn.rsplit("/", 1)[1]
    execute(dsn, f'ALTER {where} "{name}" SET synchronous_commit = {value}')


@pytest.fixture
def database(lazy_server: PostgresServer) -> Iterator[str]:
    """A database of a server whose settings go back to the defaults."""
    dsn = lazy_server.new_database()
    yield dsn
    execute(dsn, f"ALTER ROLE {USER} RESET synchronous_commit")


@pytest.mark.parametrize("where", ["ROLE", "DATABASE"])
def test_an_acknowledged_batch_survives_a_crash_of_a_server_that_need_not_flush(
    lazy_server: PostgresServer, database: str, where: str
) -> None:
    harness = TargetHarness(database)
    with Run(harness, 1) as first:
        first.take_over()
        execute(database, "CHECKPOINT")
        _loosen(database, where, "off")
    with Run(harness, 2) as run:
        run.take_over()
        outcome = run.send(task(0), content(0, rejected=1))
        crash(lazy_server, database)

    assert outcome.outcome is AttemptOutcome.DELIVERED
    with Run(harness, 2) as after:
        assert after.sink.claims().epoch == 2
        assert after.receipts() == [outcome.receipt]
        assert harness.target() == ids(0)[1:]
        assert len(harness.dead_letters(after.context)) == 1


def test_a_raised_fence_survives_a_crash(lazy_server: PostgresServer, database: str) -> None:
    harness = TargetHarness(database)
    _loosen(database, "DATABASE", "off")
    with Run(harness, 1) as run:
        run.take_over()
    execute(database, "CHECKPOINT")
    with Run(harness, 7) as run:
        run.sink.fence(7)
        crash(lazy_server, database)

    with Run(harness, 7) as after:
        assert after.sink.claims().epoch == 7


def test_dead_letters_kept_elsewhere_survive_a_crash(lazy_server: PostgresServer, database: str) -> None:
    declared = pipeline(dead_letter_queue={"sink": "postgres", "connection": "warehouse", "table": "parked"})
    _loosen(database, "DATABASE", "off")
    box = PostgresDeadLetterStore(declared, connection(database), SinkContext(LEDGER, "orders", 1))
    box.check()
    execute(database, "CHECKPOINT")

    box.store(task(0), [DeadLetter(1, None, b"x", ErrorInfo(ErrorType.GENERIC, "bad"))], 0)
    box.close()
    crash(lazy_server, database)

    assert scalar(database, "SELECT count(*) FROM parked") == 1


@pytest.mark.parametrize(
    ("default", "expected"),
    [("off", "on"), ("local", "on"), ("remote_write", "on"), ("on", "on"), ("remote_apply", "remote_apply")],
)
def test_a_stricter_setting_stays_as_it_is(database: str, default: str, expected: str) -> None:
    harness = TargetHarness(database)
    execute(
        database,
        "CREATE TABLE seen (setting text)",
        "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN INSERT INTO seen VALUES (current_setting(''synchronous_commit'')); RETURN NULL; END'",
        "CREATE TRIGGER look AFTER INSERT ON target FOR EACH STATEMENT EXECUTE FUNCTION look()",
    )
    _loosen(database, "DATABASE", default)
    with Run(harness, 1) as run:
        run.take_over()
        run.send(task(0), content(0))

    assert set(execute(database, "SELECT setting FROM seen")) == {(expected,)}


def _check(dsn: str, **changes: Any) -> None:
    with closing(PostgresSink(pipeline(**changes), connection(dsn), SinkContext(LEDGER, "orders"))) as sink:
        sink.check()
        sink.create_bookkeeping()


_UNLOGGED = {
    "the table": ("CREATE UNLOGGED TABLE target (id int)",),
    "a partition": (
        "CREATE TABLE target (id int) PARTITION BY RANGE (id)",
        "CREATE TABLE kept PARTITION OF target FOR VALUES FROM (0) TO (5)",
        "CREATE UNLOGGED TABLE lost PARTITION OF target FOR VALUES FROM (5) TO (10)",
    ),
    "a partition of a partition": (
        "CREATE TABLE target (id int) PARTITION BY RANGE (id)",
        "CREATE TABLE half PARTITION OF target FOR VALUES FROM (0) TO (5) PARTITION BY RANGE (id)",
        "CREATE UNLOGGED TABLE lost PARTITION OF half FOR VALUES FROM (0) TO (3)",
    ),
}


@pytest.mark.parametrize("made", _UNLOGGED.values(), ids=_UNLOGGED)
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_target_that_a_crash_empties_is_refused_by_name(
    postgres_database: str, made: tuple[str, ...], delivery: str
) -> None:
    execute(postgres_database, *made)
    name = "lost" if len(made) > 1 else "target"

    with pytest.raises(ConfigError, match="is unlogged or temporary") as caught:
        _check(postgres_database, delivery=delivery)

    assert f'ALTER TABLE "public"."{name}" SET LOGGED;' in str(caught.value)
    execute(postgres_database, f"ALTER TABLE {name} SET LOGGED")
    _check(postgres_database, delivery=delivery)


def test_what_may_be_lost_may_go_into_an_unlogged_target(postgres_database: str) -> None:
    execute(postgres_database, *_UNLOGGED["the table"])

    _check(postgres_database, delivery="at_most_once")


def test_a_partition_on_another_server_is_refused_by_name(postgres_database: str) -> None:
    execute(
        postgres_database,
        "CREATE EXTENSION postgres_fdw",
        "CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw",
        "CREATE TABLE target (id int) PARTITION BY RANGE (id)",
        "CREATE FOREIGN TABLE away PARTITION OF target FOR VALUES FROM (0) TO (5) SERVER far",
    )

    with pytest.raises(ConfigError, match=r'partitions on other servers \("public"."away"\)'):
        _check(postgres_database)


@pytest.mark.parametrize("table", ["ckpt_sink_fence", "ckpt_sink_receipt", "ckpt_sink_dead_letter", "ckpt_sink_replay"])
def test_bookkeeping_that_a_crash_empties_is_refused_by_name(postgres_database: str, table: str) -> None:
    execute(postgres_database, "CREATE TABLE target (id int)")
    _check(postgres_database)
    execute(postgres_database, f"ALTER TABLE {table} SET UNLOGGED")

    with pytest.raises(ConfigError, match=f'ALTER TABLE "public"."{table}" SET LOGGED'):
        _check(postgres_database)


def test_a_dead_letter_table_that_a_crash_empties_is_refused_by_name(postgres_database: str) -> None:
    declared = pipeline(dead_letter_queue={"sink": "postgres", "connection": "warehouse", "table": "parked"})
    box = PostgresDeadLetterStore(declared, connection(postgres_database), SinkContext(LEDGER, "orders", 1))
    box.check()
    execute(postgres_database, "ALTER TABLE parked SET UNLOGGED")

    with pytest.raises(ConfigError, match=r'ALTER TABLE "public"\."parked" SET LOGGED'):
        box.check()
    box.close()


def test_a_server_that_does_not_flush_at_all_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with PostgresServer({"full_page_writes": "off"}, fsync=False, in_memory=True) as server:
        dsn = server.new_database()
        execute(dsn, "CREATE TABLE target (id int)")
        _check(dsn)

    assert [record.args[2] for record in caplog.records if isinstance(record.args, tuple)] == [
        "fsync",
        "full_page_writes",
    ]


def test_the_setting_is_made_in_the_transaction_itself(postgres_database: str) -> None:
    """A session between two transactions is as it was: a pooler may hand it to somebody else."""
    execute(postgres_database, "CREATE TABLE target (id int)")
    _loosen(postgres_database, "DATABASE", "off")
    with closing(PostgresSink(pipeline(), connection(postgres_database), SinkContext(LEDGER, "orders"))) as sink:
        sink.check()
        sink.fence(1)
        with sink._client.cursor() as cursor:
            cursor.execute("SHOW synchronous_commit")
            assert cursor.fetchone() == ("off",)
