"""The sql sink with MariaDB and SQLite: the conformance suite, the fence as a barrier, and refusals of ``check()``."""

from __future__ import annotations

import re
import threading
import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors import dead_letter_retries
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sink_protocol import Refused, Sink, SinkContext, Writer
from airflow_provider_ckpt.connectors.sql import database as databases
from airflow_provider_ckpt.connectors.sql import mysql
from airflow_provider_ckpt.connectors.sql.sink import SqlSink
from airflow_provider_ckpt.connectors.sql.writer import SqlWriter
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType, FencedError, SinkError
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.testing.sink_conformance import RefusingSinkConformance
from airflow_provider_ckpt.testing.sink_harness import (
    Run,
    SinkHarness,
    StoredDeadLetter,
    content,
    ids,
    task,
)
from tests.integration.connectors.sql.sql_support import Database, MariaDb, Sqlite, pipeline
from tests.services.proxy import Break, Proxy

LETTERS = """
    SELECT seq, position, `key`, value, error_type FROM ckpt_sink_dead_letter
    WHERE ledger = %s AND pipeline = %s ORDER BY position
"""


class TargetHarness(SinkHarness):
    """``target``, without a key unless it is asked for, so that a duplicate would show."""

    refused = (1000,)

    def __init__(self, database: Database, column: str = "bigint", **sink: Any) -> None:
        self.database = database
        self._sink = sink
        database.execute(f"CREATE TABLE target (id {column} CHECK (id < 1000))")

    def sink(self, context: SinkContext) -> Sink:
        return SqlSink(pipeline(context.pipeline, sink=self._sink), self.database.connection, context)

    def writer(self, context: SinkContext) -> Writer:
        return SqlWriter(pipeline(context.pipeline, sink=self._sink), self.database.connection, context)

    def target(self) -> list[int]:
        return [int(row[0]) for row in self.database.execute("SELECT id FROM target ORDER BY id")]

    def dead_letters(self, context: SinkContext) -> list[StoredDeadLetter]:
        found = self.database.execute(LETTERS, parameters=[context.ledger, context.pipeline])
        return [StoredDeadLetter(*row) for row in found]


WAYS: dict[str, dict[str, Any]] = {
    "append": {"column": "bigint"},
    "upsert": {"column": "int NOT NULL PRIMARY KEY", "mode": "upsert", "key": ["id"]},
}


class TestConformance(RefusingSinkConformance):
    @pytest.fixture(params=WAYS)
    def harness(self, request: pytest.FixtureRequest, database: Database) -> SinkHarness:
        return TargetHarness(database, **WAYS[request.param])


def partly_refused(seq: int = 0) -> Any:
    """A batch whose second row the target refuses."""
    whole = content(seq)
    values = [*ids(seq)[:1], 1000, *ids(seq)[2:]]
    return replace(whole, rows=whole.rows.set_column(1, "id", pa.array(values, pa.int64())))


class TestFence:
    def test_it_waits_for_a_transaction_of_an_older_epoch(self, database: Database) -> None:
        harness = TargetHarness(database)
        with Run(harness, 1) as old, Run(harness, 2) as new:
            assert isinstance(old.take_over().writer.deliver(task(0), partly_refused()), Refused)
            timer = threading.Timer(0.7, old.writer.close)
            timer.start()
            started = time.monotonic()
            new.sink.fence(2)
            waited = time.monotonic() - started
            timer.join()

            assert waited > 0.5
            assert (new.sink.claims().epoch, harness.target()) == (2, [])

    def test_it_ends_a_transaction_of_an_older_epoch_that_does_not_end_by_itself(self, mariadb: MariaDb) -> None:
        harness = TargetHarness(mariadb)
        with Run(harness, 1) as old, Run(harness, 2) as new, Run(harness, 1, pipeline="invoices") as other:
            held = old.take_over().writer.deliver(task(0), partly_refused())
            assert isinstance(held, Refused)
            other.take_over().send(task(0), content(0))
            new.sink.fence(2)

            rest = replace(partly_refused(), rows=partly_refused().rows.filter(pa.array([True, False] + [True] * 8)))
            rest.filtered = 1
            with pytest.raises(FencedError, match="is at epoch 2"):
                old.writer.deliver(task(0), rest)
            assert harness.target() == ids(0)
            assert other.send(task(1), content(1)).outcome is AttemptOutcome.DELIVERED


@pytest.mark.parametrize("value", ["O'Brien", "two\nlines", "it's' here", 'say "hello"', "secret for key 'hidden"])
def test_a_message_about_a_value_shows_no_part_of_it(mariadb: MariaDb, value: str) -> None:
    mariadb.execute("CREATE TABLE target (name varchar(50) PRIMARY KEY)")
    mariadb.execute("INSERT INTO target VALUES (%s)", parameters=(value,))
    with (
        closing(databases.Database(mariadb.connection, "sink")) as opened,
        pytest.raises(SinkError) as refused,
        opened.session("adding a row", writes=True) as connection,
    ):
        connection.exec_driver_sql("INSERT INTO target VALUES (%s)", (value,))

    assert refused.value.message.startswith("adding a row: Duplicate entry '…'")
    assert not [word for word in re.findall(r"\w+", value.replace("for key", "")) if word in refused.value.message[24:]]


def test_a_dead_letter_that_no_statement_can_hold_is_an_error_that_names_the_setting(
    mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_retries, "RETRY_SECONDS", 0.0)
    harness = TargetHarness(mariadb)
    rejected = content(0, rejected=2)
    rejected.dead_letters[1] = replace(rejected.dead_letters[1], value=b"'" * 600_000)
    [(before,)] = mariadb.execute("SELECT @@GLOBAL.max_allowed_packet")
    mariadb.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        with Run(harness, 1) as run:
            refused = run.take_over().writer.deliver(task(0), rejected)
            assert isinstance(refused, Outcome)
            assert refused.error is not None
            assert refused.error.type is ErrorType.DEAD_LETTER_QUEUE
            assert "a dead letter of main#0 takes 1,200," in refused.error.message
            assert "Raise max_allowed_packet of the server" in refused.error.message
            assert not refused.error.is_outage
            assert (harness.target(), run.receipts()) == ([], [])
    finally:
        mariadb.execute(f"SET GLOBAL max_allowed_packet = {before}")
    with Run(harness, 2) as run:
        assert run.take_over().send(task(0), rejected).outcome is AttemptOutcome.DELIVERED
        assert [len(found.value or b"") for found in harness.dead_letters(run.context)][1] == 600_000


class TestLostConnections:
    @pytest.mark.parametrize(("how", "existed"), [(Break.AFTER, True), (Break.BEFORE, False)])
    def test_a_commit_whose_answer_is_lost_is_found_out_by_the_next_attempt(
        self, mariadb: MariaDb, how: Break, existed: bool
    ) -> None:
        with Proxy().lead_to(mariadb.server.port) as proxy:
            mariadb.connection = mariadb.server.connection(mariadb.name, port=proxy.port)
            harness = TargetHarness(mariadb)
            with Run(harness, 1) as run:
                run.take_over().send(task(0), content(0))
                struck = proxy.trap(b"INSERT INTO .*target", b"COMMIT", how=how)
                outcome = run.send(task(1), content(1))

                assert struck.is_set()
                assert outcome.outcome is AttemptOutcome.FAILED
                assert outcome.error is not None
                assert outcome.error.recoverable
                assert not outcome.error.is_outage
                again = run.send(task(1, attempt=2), content(1))
                assert (again.outcome, again.receipt_existed) == (AttemptOutcome.DELIVERED, existed)
                assert harness.target() == ids(0, 1)

    def test_a_server_that_cannot_be_reached_is_an_outage_and_no_secret_is_told(self, mariadb: MariaDb) -> None:
        for changes, outage in (({"port": 9}, True), ({"password": "s3cret-wr0ng"}, False)):
            mariadb.connection = mariadb.server.connection(mariadb.name, **changes)
            sink = SqlSink(pipeline(), mariadb.connection, SinkContext("ledger", "orders"))
            with pytest.raises(SinkError) as refusal:
                sink.check()

            assert (refusal.value.is_outage, refusal.value.recoverable) == (outage, outage)
            told = f"{refusal.value} {refusal.value.__cause__!r} {mariadb.connection} {sink.location}"
            assert "s3cret" not in told
            assert mariadb.server.password not in told


class TestLostRows:
    def delivered(self, database: Database, **sink: Any) -> TargetHarness:
        harness = TargetHarness(database, "bigint NOT NULL PRIMARY KEY", **sink)
        with Run(harness, 1) as run:
            run.take_over().send(task(0), content(0))
            run.send(task(1), content(1))
            run.sink.store_target_snapshot(1)  # type: ignore[attr-defined]
        return harness

    def evidence(self, harness: TargetHarness) -> str | None:
        with Run(harness, 2) as run:
            return run.sink.claims().loss_evidence

    def test_an_emptied_target_is_told_until_a_new_fence_accepts_it(self, database: Database) -> None:
        harness = self.delivered(database)
        database.execute("DELETE FROM target")

        assert "target is empty, but contained rows" in str(self.evidence(harness))
        with Run(harness, 2) as run:
            run.sink.store_target_snapshot(1)  # type: ignore[attr-defined]
        assert self.evidence(harness) is not None
        with Run(harness, 2) as run:
            run.sink.fence(2)
        assert self.evidence(harness) is None

    def test_a_target_without_its_newest_rows_is_told(self, database: Database) -> None:
        harness = self.delivered(database)
        database.execute("DELETE FROM target", "INSERT INTO target VALUES (-5)")

        assert "contains none of the 20 rows" in str(self.evidence(harness))

    def test_rows_that_are_removed_as_they_age_are_no_loss(self, database: Database) -> None:
        harness = self.delivered(database)
        database.execute("DELETE FROM target WHERE id < 15")

        assert self.evidence(harness) is None

    def test_a_target_that_may_be_emptied_is_not_told(self, sqlite: Sqlite) -> None:
        harness = self.delivered(sqlite, may_be_emptied=True)
        sqlite.execute("DELETE FROM target")

        assert self.evidence(harness) is None


class TestRefusals:
    def check(self, database: Database, *statements: str, **sink: Any) -> str:
        database.execute(*statements, "SELECT 1")
        tried = SqlSink(pipeline(sink=sink), database.connection, SinkContext("ledger", "orders", 1))
        with pytest.raises(ConfigError) as refusal:
            tried.check()
        tried.close()
        assert database.execute("SELECT 1") == [(1,)]
        return str(refusal.value)

    def test_a_missing_table(self, database: Database) -> None:
        assert "target table target does not exist" in self.check(database)

    def test_a_view(self, database: Database) -> None:
        assert "is a view" in self.check(database, "CREATE TABLE t (id int)", "CREATE VIEW target AS SELECT * FROM t")

    def test_a_table_with_history(self, mariadb: MariaDb) -> None:
        made = "CREATE TABLE target (id int PRIMARY KEY) WITH SYSTEM VERSIONING"
        assert "target keeps older versions of its rows (system versioning)" in self.check(mariadb, made)

    @pytest.mark.parametrize("engine", ["MyISAM", "Aria", "MEMORY"])
    def test_an_engine_without_transactions(self, mariadb: MariaDb, engine: str) -> None:
        assert "has no transactions" in self.check(mariadb, f"CREATE TABLE target (id int) ENGINE = {engine}")

    @pytest.mark.parametrize(
        ("columns", "key", "message"),
        [
            ("id int, b int", ["id"], "has no unique key"),
            ("id int UNIQUE, b int", ["id"], "has no unique key"),
            ("id int NOT NULL, b int NOT NULL, PRIMARY KEY (id, b)", ["id"], "has no unique key"),
            ("id int", ["other"], "has no column other"),
        ],
    )
    def test_a_key_that_does_not_identify_rows(
        self, database: Database, columns: str, key: list[str], message: str
    ) -> None:
        assert message in self.check(database, f"CREATE TABLE target ({columns})", mode="upsert", key=key)

    def test_another_unique_key_by_which_rows_would_be_replaced(self, mariadb: MariaDb) -> None:
        table = "CREATE TABLE target (id int PRIMARY KEY, email varchar(20) UNIQUE)"

        assert "has other unique keys than id (email)" in self.check(mariadb, table, mode="upsert", key=["id"])

    def test_a_user_without_rights(self, mariadb: MariaDb) -> None:
        mariadb.execute(
            "CREATE TABLE target (id int)",
            "CREATE OR REPLACE USER reader@'127.0.0.1' IDENTIFIED BY 'r'",
            f"GRANT SELECT ON {mariadb.name}.* TO reader@'127.0.0.1'",
        )
        mariadb.connection = replace(mariadb.connection, login="reader", password="r")
        tried = SqlSink(pipeline(), mariadb.connection, SinkContext("ledger", "orders", 1))

        with pytest.raises(ConfigError, match="INSERT command denied"):
            tried.check()
        with pytest.raises(ConfigError, match="may not create the sink's bookkeeping tables"):
            tried.create_bookkeeping()
        tried.close()

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"wsrep_on": "ON"}, "several primaries"),
            ({"group_replication_single_primary_mode": "OFF"}, "several primaries"),
            ({"read_only": "ON"}, "read-only"),
            ({"log_bin": "ON", "binlog_format": "STATEMENT"}, "logs statements"),
        ],
    )
    def test_a_server_that_cannot_keep_the_promise(
        self, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], message: str
    ) -> None:
        monkeypatch.setattr(mysql, "server_settings", lambda _: settings)

        assert message in self.check(mariadb, "CREATE TABLE target (id int)")

    def test_a_dialect_that_nobody_has_tested(self) -> None:
        connection = Connection("shop", "postgresql", "127.0.0.1", 9)
        for sink in ({}, {"untested_dialect": True}):
            tried = SqlSink(pipeline(sink=sink), connection, SinkContext("ledger", "orders", 1))
            expected = SinkError if sink else ConfigError
            with pytest.raises(expected, match="cannot connect" if sink else "nobody has tested"):
                tried.check()

    def test_a_connection_to_no_sql_database(self) -> None:
        with pytest.raises(ConfigError, match="has type 'kafka', which is no SQL database"):
            SqlSink(pipeline(), Connection("shop", "kafka"), SinkContext("ledger", "orders", 1))

    @pytest.mark.parametrize("name", ["shop#2.sqlite", "shop?2.sqlite", "ключ 2.sqlite"])
    def test_a_file_is_the_one_of_its_whole_name(self, sqlite: Sqlite, name: str) -> None:
        sqlite.execute("CREATE TABLE target (id bigint)")
        sqlite.path.rename(sqlite.path.with_name("shop"))
        other = Sqlite(sqlite.path.parent, name)
        other.execute("CREATE TABLE target (id bigint)")
        with closing(databases.Database(other.connection, "sink")) as opened, opened.session("looking") as connection:
            assert opened.dialect.server_identity(connection) == str(other.path)

    def test_a_file_that_does_not_exist_is_not_created(self, sqlite: Sqlite) -> None:
        missing = sqlite.path.with_name("missing.sqlite")
        tried = SqlSink(pipeline(), replace(sqlite.connection, host=str(missing)), SinkContext("ledger", "orders", 1))

        with pytest.raises(SinkError, match="unable to open database file") as refusal:
            tried.check()
        assert not refusal.value.recoverable
        assert not missing.exists()
        assert str(missing) in refusal.value.message
        assert "the file must exist" in str(refusal.value.hint)
        assert "create files in its directory" in str(refusal.value.hint)

    def test_columns_that_lose_values(self, database: Database) -> None:
        database.execute("CREATE TABLE target (id int NOT NULL, at date, note varchar(20))")
        sink = SqlSink(pipeline(), database.connection, SinkContext("ledger", "orders", 1))
        good = [("id", "bigint"), ("at", "date"), ("note", "decimal(9,2)")]
        sink.check_columns(good)
        for columns, message in (
            ([("id", "string")], "id is string in the rows"),
            ([("id", "int"), ("at", "timestamp")], "at is timestamp in the rows"),
            ([("id", "int"), ("note", "array<int>")], r"note is array<int> in the rows"),
            ([("note", "string")], "requires id"),
            ([("id", "int"), ("nothing", "int")], "has no column nothing"),
        ):
            with pytest.raises(ConfigError, match=message):
                sink.check_columns(columns)
        sink.close()


def test_a_trigger_that_swallows_rows_fails_the_batch(sqlite: Sqlite) -> None:
    harness = TargetHarness(sqlite)
    sqlite.execute(
        "CREATE TRIGGER swallow BEFORE INSERT ON target WHEN NEW.id = 3 BEGIN SELECT RAISE(IGNORE); END",
    )
    with Run(harness, 1) as run:
        outcome = run.take_over().send(task(0), content(0))

        assert outcome.error is not None
        assert "10 rows were sent, and the server has taken 9" in outcome.error.message
        assert (harness.target(), run.receipts()) == ([], [])


def test_a_replay_replaces_no_row_that_may_be_newer(database: Database) -> None:
    harness = TargetHarness(database, **WAYS["upsert"])
    with Run(harness, 1) as run:
        run.take_over().send(task(0), content(0))

        again = run.send(task(0, generation=2), content(0))
        replayed = run.writer.deliver(task(0, generation=3, partition="dlq:3:main"), content(0))

        assert again.outcome is AttemptOutcome.DELIVERED
        assert isinstance(replayed, Refused)
        assert {(number, error.sqlstate) for number, error in replayed.errors.items()} == {(n, "23000") for n in ids(0)}
        assert harness.target() == ids(0)
