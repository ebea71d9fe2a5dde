"""Refreshes of MariaDB and SQLite tables: batches are staged, and one transaction replaces the target's rows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Self

import pyarrow as pa
import pymysql
import pytest

from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, SinkContext
from airflow_provider_ckpt.connectors.sql import database as databases
from airflow_provider_ckpt.connectors.sql import mysql_locks, replacing_sink
from airflow_provider_ckpt.connectors.sql.connector import SqlSinkSection
from airflow_provider_ckpt.connectors.sql.mysql import MySqlDialect
from airflow_provider_ckpt.connectors.sql.replacing_sink import SqlReplacingSink
from airflow_provider_ckpt.connectors.sql.staging import staging_table
from airflow_provider_ckpt.connectors.sql.staging_writer import SqlStagingWriter
from airflow_provider_ckpt.connectors.staged_rows import StagedRows
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey, SideKind, side_partition
from airflow_provider_ckpt.core.errors import ConfigError, FencedError, SinkError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Verdict
from airflow_provider_ckpt.core.refresh import ReplaceLimits
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome
from airflow_provider_ckpt.testing.lane_writer import LaneWriter
from airflow_provider_ckpt.testing.sink_conformance import RefusingSinkConformance
from airflow_provider_ckpt.testing.sink_harness import LEDGER, SIZE, SinkHarness, content, ids, originals, task
from tests.integration.connectors.interruptions import before, once
from tests.integration.connectors.sql.sql_support import Database, MariaDb, Sqlite, pipeline, staging_tables
from tests.integration.connectors.sql.test_sink import TargetHarness
from tests.integration.connectors.sql.test_target_values import MARIADB

FULL: Mapping[str, Any] = {"mode": "full"}


class Refresh:
    """A refresh of ``target`` in a run, whose epoch is the generation.

    :param database: the target's database
    :param epoch: the epoch
    :param name: name of the pipeline
    :param sink: further keys of the section ``sink``
    """

    def __init__(self, database: Database, epoch: int = 1, name: str = "orders", **sink: Any) -> None:
        declared = pipeline(name, source=dict(FULL), sink={"mode": "replace"} | sink)
        self.context, self.epoch = SinkContext(LEDGER, name, epoch), epoch
        self.sink = SqlReplacingSink(declared, database.connection, self.context)
        self.writer = SqlStagingWriter(declared, database.connection, self.context)

    def __enter__(self) -> Self:
        self.sink.check()
        self.sink.fence(self.epoch)
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close()
        self.sink.close()

    def stage(self, *seqs: int) -> Self:
        """Begin the refresh and stage whole batches."""
        self.sink.prepare_staging(self.epoch, self.epoch, None)
        for seq in seqs:
            assert self.send(task(seq, generation=self.epoch), content(seq)).outcome is AttemptOutcome.DELIVERED
        return self

    def send(self, given: BatchTask, rows: BatchContent) -> Outcome:
        """Deliver a batch until it has a verdict; refused rows become dead letters."""
        return LaneWriter(self.writer, originals).deliver(given, rows)

    def key(self, seq: int) -> BatchKey:
        """Key of a batch."""
        return BatchKey(self.epoch, "main", seq)

    def publish(
        self,
        batches: int,
        limits: ReplaceLimits | None = None,
        *,
        instruction: Instruction = Instruction.DELIVER,
        epoch: int | None = None,
    ) -> Outcome:
        """Publish a number of batches."""
        end = batches * SIZE
        publishing = BatchTask(self.key(batches), Range(end, end + 1), 1, instruction)
        return self.sink.publish(publishing, self.epoch if epoch is None else epoch, limits)


def failure(outcome: Outcome) -> str:
    """The message of a failed outcome."""
    assert outcome.outcome is AttemptOutcome.FAILED
    assert outcome.error is not None
    return outcome.error.message


def held(database: Database) -> list[int]:
    """The ids in ``target``."""
    return [int(number) for (number,) in database.execute("SELECT id FROM target ORDER BY id")]


@pytest.fixture
def target(database: Database) -> Database:
    """A database with the table ``target``, in which other writers have put the rows 900 to 929."""
    database.execute("CREATE TABLE target (id bigint NOT NULL PRIMARY KEY CHECK (id < 1000))")
    add(database, 900, 930)
    return database


def add(database: Database, start: int, end: int) -> None:
    """Add rows, as another writer."""
    database.execute(f"INSERT INTO target (id) VALUES {', '.join(f'({number})' for number in range(start, end))}")


class StagedSink(SqlReplacingSink):
    """A sink for the suite, which takes the staged rows for those of the target, and so cannot compare their number."""

    def target_rows(self, *, exact: bool = False) -> None:
        del exact


class StagedHarness(TargetHarness):
    """``target`` with ``mode: replace``, whose rows are those that are staged."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, mode="replace")

    def sink(self, context: SinkContext) -> StagedSink:
        return StagedSink(self._declared(context), self.database.connection, context)

    def writer(self, context: SinkContext) -> SqlStagingWriter:
        with closing(databases.Database(self.database.connection, "sink")) as opened:
            for generation in (1, 2, 3):
                with opened.session("creating a staging table", writes=True) as connection:
                    found = opened.dialect.find_table(connection, None, "target")
                    name = staging_table("target", generation, context)
                    assert found is not None
                    if opened.dialect.find_table(connection, None, name) is None:
                        opened.dialect.create_staging(connection, found, name)
        return SqlStagingWriter(self._declared(context), self.database.connection, context)

    def target(self) -> list[int]:
        places = ["target", *staging_tables(self.database)]
        return sorted(int(number) for place in places for (number,) in self.database.execute(f"SELECT id FROM {place}"))

    def _declared(self, context: SinkContext) -> Any:
        return pipeline(context.pipeline, source=dict(FULL), sink=self._sink)


class TestConformance(RefusingSinkConformance):
    @pytest.fixture
    def harness(self, database: Database) -> SinkHarness:
        return StagedHarness(database)


class TestPublication:
    def test_one_transaction_replaces_all_rows_those_of_other_writers_too(self, target: Database) -> None:
        with Refresh(target) as first:
            first.stage(0, 1)
            assert (held(target), first.sink.row_counts(first.key(2))) == ([*range(900, 930)], (20, 30))
            assert len(staging_tables(target)) == 1

            published = first.publish(2)
            again = first.publish(2)

            assert (published.outcome, published.receipt_existed) == (AttemptOutcome.DELIVERED, False)
            assert (again.receipt, again.receipt_existed) == (published.receipt, True)
        assert (held(target), staging_tables(target)) == (ids(0, 1), [])
        added = "SELECT added FROM ckpt_sink_receipt WHERE seq = 2"
        assert target.execute(added) == [(20,)]

    def test_a_batch_that_was_given_up_leaves_the_target(self, target: Database) -> None:
        with Refresh(target) as given_up:
            outcome = given_up.stage(0).publish(1, instruction=Instruction.VOID)

            assert outcome.receipt is not None
            assert outcome.receipt.verdict is Verdict.VOID
            assert held(target) == [*range(900, 930)]
        with Refresh(target, 2) as second:
            second.stage(1)
            assert len(staging_tables(target)) == 1
            assert second.publish(2).outcome is AttemptOutcome.FAILED, "positions 0 to 10 were never staged"

    def test_it_publishes_only_what_is_complete(self, target: Database) -> None:
        with Refresh(target) as run:
            assert "its staging table does not exist" in failure(run.publish(0))
            run.stage(0)
            assert "positions [10, 20) of it are not staged" in failure(run.publish(2))
            target.execute("UPDATE ckpt_sink_receipt SET verdict = 'void'")
            assert "positions [0, 10) of it are not staged" in failure(run.publish(1))
            target.execute("UPDATE ckpt_sink_receipt SET verdict = 'delivered'")
            [staging] = staging_tables(target)
            target.execute(f"DELETE FROM {staging} WHERE id = 3")
            assert "count 10 rows, and 9 are staged" in failure(run.publish(1))
            assert not run.sink.is_staged(run.key(1), 10)
            target.execute(f"INSERT INTO {staging} VALUES (3)")

            assert (run.sink.is_staged(run.key(2), 20), run.sink.is_staged(run.key(1), 10)) == (False, True)
            assert held(target) == [*range(900, 930)]
            assert run.publish(1).outcome is AttemptOutcome.DELIVERED
            assert not run.sink.is_staged(run.key(1), 10)
        assert held(target) == ids(0)

    def test_a_stale_run_neither_publishes_nor_removes_what_the_newest_has_staged(self, target: Database) -> None:
        with Refresh(target) as old, Refresh(target, 2) as new:
            new.stage(0)
            add_to = staging_tables(target)

            with pytest.raises(FencedError, match="is at epoch 2"):
                old.publish(0)
            with pytest.raises(FencedError):
                new.publish(1, epoch=1)
            with pytest.raises(FencedError):
                old.sink.prepare_staging(1, 1, None)
            assert "not at this run's epoch 3" in failure(new.publish(1, epoch=3))

            assert (held(target), staging_tables(target)) == ([*range(900, 930)], add_to)
            assert new.publish(1).outcome is AttemptOutcome.DELIVERED

    def test_a_new_run_ends_a_publication_that_does_not_end_by_itself(
        self, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mariadb.execute("CREATE TABLE target (id bigint)")
        with Refresh(mariadb) as old, Refresh(mariadb, 1) as new:
            old.stage(0)
            new.epoch = 2
            monkeypatch.setattr(StagedRows, "refuse_missing", lambda *_: new.sink.fence(2))

            outcome = old.publish(1)

            assert outcome.outcome is AttemptOutcome.FAILED
            assert outcome.error is not None
            assert outcome.error.recoverable
            with pytest.raises(FencedError):
                old.publish(1)
        assert held(mariadb) == []

    def test_a_new_run_ends_a_run_that_prepares_its_staging(
        self, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mariadb.execute("CREATE TABLE target (id bigint)")
        with Refresh(mariadb) as old, Refresh(mariadb, 1) as new:
            old.stage()  # leaves a staging table; MariaDB commits the open transaction when it is dropped
            raised = before(MySqlDialect.create_staging, once(lambda: new.sink.fence(2)))
            monkeypatch.setattr(MySqlDialect, "create_staging", raised)

            with pytest.raises(SinkError) as ended:
                old.sink.prepare_staging(1, 1, None)

        assert ended.value.recoverable
        assert staging_tables(mariadb) == []

    def test_rows_that_a_refresh_replaces_are_not_lost(self, target: Database) -> None:
        with Refresh(target) as first:
            first.stage(0).publish(1)
            first.sink.store_target_snapshot(1)
        with Refresh(target, 2) as second:
            second.stage().publish(0)
            assert held(target) == []
            assert second.sink.claims().loss_evidence is None

    def test_the_declaration_knows_the_name_of_the_staging_table(self, target: Database) -> None:
        with Refresh(target) as run:
            run.stage(0)
            declared = pipeline(source=dict(FULL), sink={"mode": "replace"}).sink

            assert isinstance(declared, SqlSinkSection)
            assert [declared.staging_table(1, run.context)] == staging_tables(target)

    def test_staging_tables_of_other_pipelines_stay(self, target: Database) -> None:
        with Refresh(target) as one, Refresh(target, name="invoices") as other:
            one.stage(0)
            other.stage(1)
            assert len(staging_tables(target)) == 2
            with Refresh(target, 2) as again:
                again.stage(2)
                assert len(staging_tables(target)) == 2
            other.send(task(0, generation=1), content(0))
            assert other.publish(2).outcome is AttemptOutcome.DELIVERED
        assert held(target) == ids(0, 1)

    def test_a_staging_table_that_cannot_be_dropped_is_dropped_by_the_next_refresh(
        self, target: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(*_: object) -> None:
            raise SinkError("the connection was lost")

        with Refresh(target) as run, monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
            run.stage(0)
            patched.setattr(replacing_sink, "drop_table", fail)
            assert run.publish(1).outcome is AttemptOutcome.DELIVERED
        assert "the connection was lost. The next refresh drops the table." in caplog.text
        assert len(staging_tables(target)) == 1
        with Refresh(target, 2) as second:
            second.stage(1)
            assert len(staging_tables(target)) == 1

    def test_a_staging_table_that_others_use_is_not_waited_for_without_a_limit(
        self, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mysql_locks, "DDL_WAIT", 1)
        mariadb.execute("CREATE TABLE target (id bigint NOT NULL PRIMARY KEY)")
        with Refresh(mariadb) as first:
            first.stage(0)
        [staging] = staging_tables(mariadb)
        with closing(mariadb.server.open(mariadb.name)) as other, Refresh(mariadb, 2) as second:
            with other.cursor() as cursor:
                cursor.execute("START TRANSACTION")
                cursor.execute(f"SELECT * FROM {staging}")
                cursor.execute("SELECT CONNECTION_ID()")
                [(session,)] = cursor.fetchall()
            with pytest.raises(SinkError, match="open transactions use it") as refused:
                second.stage(1)

            assert f"staging table {mariadb.name}.{staging} cannot be dropped" in refused.value.message
            assert f": session {session} of " in refused.value.message
            assert (refused.value.pipeline, refused.value.recoverable) == ("orders", True)
            assert "end their sessions" in str(refused.value.hint)
            assert mariadb.execute(f"SELECT count(*) FROM {staging}") == [(10,)]
            other.rollback()
            second.stage(1)
            assert staging_tables(mariadb) != [staging]

    def test_a_published_staging_table_that_others_use_stays_until_the_next_refresh(
        self, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(mysql_locks, "DDL_WAIT", 1)
        mariadb.execute("CREATE TABLE target (id bigint NOT NULL PRIMARY KEY)")
        with Refresh(mariadb) as run, closing(mariadb.server.open(mariadb.name)) as other:
            run.stage(0)
            with other.cursor() as cursor:
                cursor.execute("START TRANSACTION")
                cursor.execute(f"SELECT * FROM {staging_tables(mariadb)[0]}")
            with caplog.at_level(logging.WARNING):
                assert run.publish(1).outcome is AttemptOutcome.DELIVERED
            other.rollback()

        assert held(mariadb) == ids(0)
        assert "open transactions use it" in caplog.text

    def test_a_replayed_dead_letter_goes_to_the_target(self, target: Database) -> None:
        with Refresh(target) as run:
            run.stage(0).publish(1)
            replayed = task(5, partition=side_partition(SideKind.DLQ, 1, "main"))
            assert run.send(replayed, content(5)).outcome is AttemptOutcome.DELIVERED
        assert held(target) == ids(0, 5)


class TestLimits:
    def test_they_are_compared_with_the_rows_that_are_replaced(self, target: Database) -> None:
        with Refresh(target) as run:
            run.stage(0)
            assert run.publish(1, ReplaceLimits()).outcome is AttemptOutcome.NOT_ATTEMPTED
            assert held(target) == [*range(900, 930)]
            assert run.publish(1, ReplaceLimits(max_shrink=Decimal("0.7"))).outcome is AttemptOutcome.DELIVERED
        with Refresh(target, 2) as empty:
            empty.stage()
            assert empty.publish(0, ReplaceLimits()).outcome is AttemptOutcome.NOT_ATTEMPTED
            assert held(target) == ids(0)
            assert empty.publish(0, ReplaceLimits(allow_empty=True)).outcome is AttemptOutcome.DELIVERED
        assert held(target) == []

    @pytest.mark.parametrize("isolated", [False, True])
    def test_rows_that_others_commit_while_it_waits_for_them_count(self, mariadb: MariaDb, isolated: bool) -> None:
        mariadb.execute("CREATE TABLE target (id bigint NOT NULL PRIMARY KEY)")
        add(mariadb, 900, 910)
        with snapshot_isolation(mariadb, isolated=isolated), Refresh(mariadb) as run:
            run.stage(0)
            for limits, start in ((ReplaceLimits(), 910), (None, 940)):
                with closing(mariadb.server.open(mariadb.name)) as other, other.cursor() as cursor:
                    cursor.execute("BEGIN")
                    cursor.execute(f"INSERT INTO target VALUES {', '.join(f'({start + n})' for n in range(30))}")
                    timer = threading.Timer(0.7, other.commit)
                    timer.start()
                    outcome = run.publish(1, limits)
                    timer.join()
                assert outcome.outcome is (AttemptOutcome.NOT_ATTEMPTED if limits else AttemptOutcome.DELIVERED)
        assert held(mariadb) == ids(0)

    def test_others_add_no_rows_between_the_deletion_and_the_commit(
        self, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mariadb.execute("CREATE TABLE target (id bigint)")
        add(mariadb, 900, 905)
        refused: list[int] = []

        def insert() -> None:
            with closing(mariadb.server.open(mariadb.name)) as other, other.cursor() as cursor:
                cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")
                for number in (0, 902, 999):
                    with pytest.raises(pymysql.err.OperationalError) as waited:
                        cursor.execute("INSERT INTO target VALUES (%s)", (number,))
                    refused.append(waited.value.args[0])

        monkeypatch.setattr(StagedRows, "refuse_missing", before(StagedRows.refuse_missing, once(insert)))
        with Refresh(mariadb) as run:
            assert run.stage(0).publish(1).outcome is AttemptOutcome.DELIVERED

        assert refused == [1205, 1205, 1205]
        assert held(mariadb) == ids(0)


@contextmanager
def snapshot_isolation(mariadb: MariaDb, *, isolated: bool) -> Iterator[None]:
    """Let new sessions fail if they lock a row that is newer than their snapshot, as servers from 11.6 on do."""
    mariadb.execute(f"SET GLOBAL innodb_snapshot_isolation = {isolated:d}")
    try:
        yield
    finally:
        mariadb.execute("SET GLOBAL innodb_snapshot_isolation = 0")


class TestValues:
    def test_mariadb_publishes_every_value_as_it_is(self, mariadb: MariaDb) -> None:
        columns = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, (kind, _, _, _) in MARIADB.items())
        mariadb.execute(
            f"CREATE TABLE target ({columns}, total int AS (tiny + 1), stored int AS (tiny + 2) STORED,"
            " num bigint AUTO_INCREMENT UNIQUE KEY) CHARACTER SET utf8mb4"
        )
        sent = {name: pa.array([value, None], kind) for name, (_, kind, value, _) in MARIADB.items()}
        rows = pa.table({ROW_NUMBER: [0, 1], **sent, "num": pa.array([0, 70], pa.int64())})

        with Refresh(mariadb) as run:
            run.sink.prepare_staging(1, 1, None)
            delivered = run.send(task(0), BatchContent(rows, [], 2, 0))
            assert delivered.outcome is AttemptOutcome.DELIVERED, delivered.error
            outcome = run.publish(1)
            assert outcome.outcome is AttemptOutcome.DELIVERED, outcome.error

        expected = tuple(value if shown is None else shown for _, _, value, shown in MARIADB.values())
        assert mariadb.execute("SELECT * FROM target ORDER BY num") == [
            (*expected, -127, -126, 0),
            (*[None] * len(MARIADB), None, None, 70),
        ]
        mariadb.execute("INSERT INTO target (tiny) VALUES (5)")
        assert mariadb.execute("SELECT num FROM target WHERE tiny = 5") == [(71,)]

    def test_sqlite_publishes_every_value_as_it_is(self, sqlite: Sqlite) -> None:
        sqlite.execute(
            """
            CREATE TABLE target(
                "a (b" INTEGER PRIMARY KEY AUTOINCREMENT, -- the first column
                amount DECIMAL(15,2), note TEXT DEFAULT '(', data BLOB, flag BOOLEAN, day DATE, at DATETIME,
                twice INTEGER AS ("a (b" * 2), kept INTEGER AS ("a (b" * 3) STORED, CHECK (amount < 100)
            )
            """,
            "CREATE UNIQUE INDEX [by note] ON target(note COLLATE NOCASE) WHERE note <> ''",
            "CREATE INDEX plain ON target(day)",
        )
        day, moment = date(2024, 2, 29), datetime(2024, 2, 29, 23, 59, 59, 123456, UTC)
        columns = {
            "a (b": pa.array([1, 70, 71, 72], pa.int64()),
            "amount": pa.array([Decimal("99.99"), None, Decimal("100.00"), None], pa.decimal128(15, 2)),
            "note": pa.array(["ß", None, "c", "SS"], pa.string()),
            "data": pa.array([b"\0\xff", None, b"", None], pa.binary()),
            "flag": pa.array([True, None, False, None]),
            "day": pa.array([day, None, day, None]),
            "at": pa.array([moment, None, moment, None], pa.timestamp("us", "UTC")),
        }
        rows = pa.table({ROW_NUMBER: range(4), **columns}).set_column(3, "note", [["ß", None, "c", "SS"]])

        with Refresh(sqlite) as run:
            run.sink.prepare_staging(1, 1, None)
            delivered = run.send(task(0), BatchContent(rows, [], 4, 0))
            assert delivered.receipt is not None
            assert (delivered.receipt.counts.delivered, delivered.receipt.counts.dead_lettered) == (3, 1)
            assert run.publish(1).outcome is AttemptOutcome.DELIVERED

        assert sqlite.execute("SELECT * FROM target") == [
            (1, 99.99, "ß", b"\0\xff", 1, "2024-02-29", "2024-02-29 23:59:59.123456", 2, 3),
            (70, None, None, None, None, None, None, 140, 210),
            (72, None, "SS", None, None, None, None, 144, 216),
        ]

    @pytest.mark.parametrize("columns", ["id bigint UNIQUE", "id bigint PRIMARY KEY", "id bigint"])
    def test_a_duplicate_is_a_dead_letter_when_it_is_staged(self, database: Database, columns: str) -> None:
        database.execute(f"CREATE TABLE target ({columns})")
        if columns == "id bigint":
            database.execute("CREATE UNIQUE INDEX target_id ON target (id)")
        twice = replace(content(0), rows=content(0).rows.set_column(1, "id", pa.array([*ids(0)[:9], 0], pa.int64())))
        with Refresh(database) as run:
            run.sink.prepare_staging(1, 1, None)
            delivered = run.send(task(0), twice)
            assert delivered.receipt is not None
            assert (delivered.receipt.counts.delivered, delivered.receipt.counts.dead_lettered) == (9, 1)
            assert run.publish(1).outcome is AttemptOutcome.DELIVERED
        assert held(database) == ids(0)[:9]

    def test_a_trigger_that_drops_rows_fails_the_publication_unless_it_is_declared(self, sqlite: Sqlite) -> None:
        sqlite.execute(
            "CREATE TABLE target (id bigint)",
            "CREATE TRIGGER swallow BEFORE INSERT ON target WHEN NEW.id = 3 BEGIN SELECT RAISE(IGNORE); END",
        )
        with Refresh(sqlite) as run:
            assert "10 rows were staged, and the target would have 9" in failure(run.stage(0).publish(1))
            assert held(sqlite) == []
        with Refresh(sqlite, 2, rows_may_differ=True) as run:
            assert run.stage(0).publish(1).outcome is AttemptOutcome.DELIVERED
        assert held(sqlite) == [number for number in ids(0) if number != 3]


class TestForeignKeys:
    def test_those_that_refer_to_the_target_are_kept_when_sqlite_commits(self, sqlite: Sqlite) -> None:
        sqlite.execute(
            "CREATE TABLE target (id bigint NOT NULL PRIMARY KEY)",
            "INSERT INTO target VALUES (5), (99)",
            "CREATE TABLE cities (country bigint REFERENCES target)",
            "INSERT INTO cities VALUES (5), (99)",
        )
        with Refresh(sqlite) as run:
            assert "FOREIGN KEY constraint failed" in failure(run.stage(0).publish(1))
            assert held(sqlite) == [5, 99]
            sqlite.execute("DELETE FROM cities WHERE country = 99")
            assert run.publish(1).outcome is AttemptOutcome.DELIVERED
        assert held(sqlite) == ids(0)
        assert sqlite.execute("SELECT * FROM cities") == [(5,)]

    def test_the_targets_own_are_kept_in_mariadb(self, mariadb: MariaDb) -> None:
        mariadb.execute(
            "CREATE TABLE numbers (id bigint NOT NULL PRIMARY KEY)",
            "INSERT INTO numbers VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8)",
            "CREATE TABLE target (id bigint, FOREIGN KEY (id) REFERENCES numbers (id))",
            "INSERT INTO target VALUES (8)",
        )
        with Refresh(mariadb) as run:
            assert "a foreign key constraint fails" in failure(run.stage(0).publish(1))
            assert held(mariadb) == [8]
            mariadb.execute("INSERT INTO numbers VALUES (9)")
            assert run.publish(1).outcome is AttemptOutcome.DELIVERED
        assert held(mariadb) == ids(0)


class TestRefusals:
    def check(self, database: Database, *statements: str) -> str:
        database.execute(*statements)
        run = Refresh(database)
        with closing(run.sink), pytest.raises(ConfigError) as refusal:
            run.sink.check()
        return str(refusal.value)

    @pytest.mark.parametrize("action", ["", "ON DELETE CASCADE"])
    def test_foreign_keys_that_refer_to_a_target_in_mariadb(self, mariadb: MariaDb, action: str) -> None:
        table = f"CREATE TABLE cities (country int, FOREIGN KEY (country) REFERENCES target (id) {action})"

        assert f"foreign keys of {mariadb.name}.cities refer to target" in self.check(
            mariadb, "CREATE TABLE target (id int PRIMARY KEY)", table
        )

    @pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "RESTRICT"])
    def test_foreign_keys_with_an_action_that_refer_to_a_target_in_sqlite(self, sqlite: Sqlite, action: str) -> None:
        table = f"CREATE TABLE cities (country int REFERENCES Target (id) ON DELETE {action})"

        assert "foreign keys of cities with ON DELETE refer to target" in self.check(
            sqlite, "CREATE TABLE target (id int PRIMARY KEY)", table
        )

    def test_a_target_with_foreign_keys_in_sqlite(self, sqlite: Sqlite) -> None:
        own = "CREATE TABLE target (id int PRIMARY KEY, parent int REFERENCES target)"

        assert "has foreign keys" in self.check(sqlite, own)

    def test_a_virtual_table(self, sqlite: Sqlite) -> None:
        assert "definition of target main.target cannot be copied" in self.check(
            sqlite, "CREATE VIRTUAL TABLE target USING fts5(id)"
        )

    def test_a_dialect_without_replacement(self, sqlite: Sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
        kind = type(Refresh(sqlite).sink._database.dialect)
        monkeypatch.delattr(kind, "replacement_problem")

        assert "SQLite has no mode: replace" in self.check(sqlite, "CREATE TABLE target (id int)")

    @pytest.mark.parametrize(
        ("granted", "refused"),
        [
            ("SELECT, INSERT, UPDATE, CREATE, DROP", "DELETE command denied"),
            ("SELECT, INSERT, UPDATE, DELETE", "may not create and drop staging tables in the schema"),
        ],
    )
    def test_a_user_without_rights(self, mariadb: MariaDb, granted: str, refused: str) -> None:
        mariadb.execute(
            "CREATE TABLE target (id int)",
            "CREATE OR REPLACE USER replacer@'127.0.0.1' IDENTIFIED BY 'r'",
            f"GRANT {granted} ON {mariadb.name}.* TO replacer@'127.0.0.1'",
        )
        with Refresh(mariadb) as owner:
            owner.stage(0)
        mariadb.connection = replace(mariadb.connection, login="replacer", password="r")
        run = Refresh(mariadb)

        def begin() -> None:
            run.sink.check()
            run.sink.prepare_staging(1, 1, None)

        with closing(run.sink), pytest.raises(ConfigError, match=refused):
            begin()
