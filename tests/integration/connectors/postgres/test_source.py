"""The postgres source with a real server: the conformance suite, cursors, closed bounds, types, and refusals."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest

from airflow_provider_ckpt.connectors.postgres import reader_session
from airflow_provider_ckpt.connectors.postgres.client import open_adbc
from airflow_provider_ckpt.connectors.postgres.full_source import PostgresFullSource
from airflow_provider_ckpt.connectors.postgres.reader import PostgresReader
from airflow_provider_ckpt.connectors.postgres.source import PostgresSource
from airflow_provider_ckpt.connectors.source_plan import Plan, PlanRequest, RangeToPlan
from airflow_provider_ckpt.connectors.source_protocol import Reader, RecordShape, Source
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask
from airflow_provider_ckpt.testing.source_conformance import ShrinkingSourceConformance
from airflow_provider_ckpt.testing.source_harness import Ledger, ShrinkingSourceHarness
from tests.integration.connectors.postgres.postgres_support import connection, pipeline
from tests.services.postgres import PostgresServer
from tests.services.tables import execute, scalar

if TYPE_CHECKING:
    import pyarrow as pa


class TableHarness(ShrinkingSourceHarness):
    """``public.source`` of numbered records, by a cursor of one kind.

    :param column: the cursor's type and constraint
    :param value: SQL for the cursor of record ``i``
    """

    def __init__(self, dsn: str, column: str = "bigint PRIMARY KEY", value: str = "i", **source: Any) -> None:
        self.dsn = dsn
        self.pipeline = pipeline(source={"cursor": "at", **source})
        self._value = value
        self._count = 0
        execute(dsn, f"CREATE TABLE source (number int, at {column})")

    def add(self, count: int) -> None:
        numbers = f"generate_series({self._count}, {self._count + count - 1}) AS i"
        execute(self.dsn, f"INSERT INTO source SELECT i, {self._value} FROM {numbers}")
        self._count += count

    def remove(self, first: int, end: int) -> None:
        execute(self.dsn, f"DELETE FROM source WHERE number >= {first} AND number < {end}")

    def open(self) -> Source:
        return PostgresSource(self.pipeline, connection(self.dsn))

    def reader(self, shape: RecordShape) -> Reader:
        return PostgresReader(self.pipeline, connection(self.dsn), shape)

    def numbers(self, records: pa.RecordBatch) -> list[int]:
        numbers: list[int] = records.column("number").to_pylist()
        return numbers


SHAPE = RecordShape(False, [("number", "int"), ("at", "date")])
CURSORS = {
    "bigint": {"column": "bigint PRIMARY KEY", "value": "i * 3 + 1"},
    "timestamptz": {
        "column": "timestamptz PRIMARY KEY",
        "value": "timestamptz '2024-03-31 00:59:59.999999Z' + i * interval '1 minute 1 microsecond'",
    },
    "integer without an index": {"column": "integer NOT NULL", "value": "i"},
}
MORE_CURSORS = {
    "smallint below zero": {"column": "smallint UNIQUE NOT NULL", "value": "i - 100"},
    "timestamp across 1970": {
        "column": "timestamp PRIMARY KEY",
        "value": "timestamp '1969-12-31 23:59:59.999999' + i * interval '0.5 second'",
    },
    "date": {"column": "date PRIMARY KEY", "value": "date '1999-12-01' + i"},
    "timestamp before Christ": {
        "column": "timestamp PRIMARY KEY",
        "value": "timestamp '0044-03-15 BC' + i * interval '1 day'",
    },
    "timestamptz without an index": {"column": "timestamptz NOT NULL", "value": "to_timestamp(i / 1000.0)"},
    "a domain": {"column": "serial_number PRIMARY KEY", "value": "i"},
}


class TestConformance(ShrinkingSourceConformance):
    @pytest.fixture(params=CURSORS)
    def harness(self, request: pytest.FixtureRequest, postgres_database: str) -> ShrinkingSourceHarness:
        return TableHarness(postgres_database, **CURSORS[request.param])


@pytest.mark.parametrize("kind", MORE_CURSORS)
def test_a_cursor_of_another_kind_does_as_well(postgres_database: str, kind: str) -> None:
    execute(postgres_database, "CREATE DOMAIN serial_number AS int CHECK (VALUE >= 0)")
    harness = TableHarness(postgres_database, **MORE_CURSORS[kind])
    with closing(harness.open()) as source:
        ledger = Ledger(harness, source)
        base = ledger.end
        harness.add(50)
        ledger.plan(20)
        harness.add(5)
        ledger.plan(20)

        assert ledger.planned[0].range.start == base
        assert [len(batch) for batch in ledger.read(ledger.planned)] == [20, 20, 10, 5]
        assert ledger.numbers(ledger.planned) == list(range(55))


@pytest.fixture
def harness(postgres_database: str) -> TableHarness:
    return TableHarness(postgres_database, close_wait="0.3s")


@pytest.fixture
def ledger(harness: TableHarness) -> Iterator[Ledger]:
    with closing(harness.open()) as source:
        yield Ledger(harness, source)


@contextmanager
def transaction(dsn: str, *statements: str) -> Iterator[Any]:
    """A transaction left open."""
    opened = psycopg2.connect(dsn)
    try:
        with opened.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
        yield opened
    finally:
        opened.close()


class TestEqualCursorValues:
    def test_rows_of_one_value_stay_together(self, postgres_database: str) -> None:
        harness = TableHarness(postgres_database, "bigint NOT NULL", "i / 4")
        execute(postgres_database, "CREATE INDEX ON source (at)")
        harness.add(40)
        with closing(harness.open()) as source:
            ledger = Ledger(harness, source)
            ledger.plan(10)

            sizes = [len(batch) for batch in ledger.read(ledger.planned)]

            assert sizes == [8, 8, 8, 8, 8]
            assert sorted(ledger.numbers(ledger.planned)) == list(range(40))

    @pytest.mark.parametrize(
        ("table", "key", "rights", "change"),
        [
            ("source", [], "SELECT", "CREATE INDEX ON source (at, number DESC)"),
            ("source", [], "SELECT (number, at)", "UPDATE source SET at = at WHERE number % 3 = 0"),
            ("source", ["number"], "SELECT", "UPDATE source SET at = at WHERE number % 3 = 0"),
            ("shown", [], "SELECT", "UPDATE source SET at = at WHERE number % 3 = 0"),
        ],
        ids=["another plan", "to one who sees two columns", "by their key", "through a view"],
    )
    def test_they_come_in_the_same_order_when_they_are_read_again(
        self,
        postgres_database: str,
        postgres_server: PostgresServer,
        table: str,
        key: list[str],
        rights: str,
        change: str,
    ) -> None:
        harness = TableHarness(postgres_database, "date NOT NULL", "date '2026-01-01' + i / 20", key=key, table=table)
        database = postgres_database.rsplit("/", 1)[1]
        user = f"rereads_{database}"
        execute(
            postgres_database,
            "CREATE VIEW shown AS SELECT number, at FROM source",
            f"CREATE ROLE {user} LOGIN PASSWORD 'again'",
            f"GRANT {rights} ON {table} TO {user}",
            f"ALTER DATABASE {database} SET enable_seqscan = off",
            f"ALTER DATABASE {database} SET enable_bitmapscan = off",
        )
        harness.add(40)
        reads = connection(postgres_server.database_dsn(database, user, "again"))

        def numbers() -> list[int]:
            with closing(PostgresReader(harness.pipeline, reads, SHAPE)) as reader:
                task = BatchTask(BatchKey(1, "public.source", 0), Range(0, 2**60), 1)
                return [number for batch in reader.read(task) for number in harness.numbers(batch)]

        first = numbers()
        execute(postgres_database, change)

        assert sorted(first) == list(range(40))
        assert numbers() == first

    @pytest.mark.parametrize("heir", [True, False])
    def test_no_order_is_asked_for_among_rows_of_a_value_that_is_unique(
        self, postgres_database: str, postgres_server: PostgresServer, heir: bool
    ) -> None:
        harness = TableHarness(postgres_database, "bigint NOT NULL UNIQUE", "i")
        if heir:  # what is unique in a table need not be in its heirs
            execute(postgres_database, "CREATE TABLE heir () INHERITS (source)")
        task = BatchTask(BatchKey(1, "public.source", 0), Range(0, 2**60), 1)
        asked = "SELECT query FROM pg_stat_activity WHERE application_name LIKE 'ckpt-read:%'"

        with closing(PostgresReader(harness.pipeline, connection(postgres_database), SHAPE)) as reader:
            assert list(reader.read(task)) == []
            ((query,),) = execute(postgres_database, asked)

        assert ("ctid" in query) is heir

    @pytest.mark.parametrize("index", [True, False])
    def test_more_of_one_value_than_a_batch_holds_make_one_batch(self, postgres_database: str, index: bool) -> None:
        harness = TableHarness(postgres_database, "bigint NOT NULL", "CASE WHEN i < 25 THEN 5 ELSE i END")
        if index:
            execute(postgres_database, "CREATE INDEX ON source (at)")
        harness.add(30)
        with closing(harness.open()) as source:
            ledger = Ledger(harness, source)
            ledger.plan(10)

            assert [len(batch) for batch in ledger.read(ledger.planned)] == [25, 5]

    @pytest.mark.parametrize("index", [True, False])
    def test_the_first_value_may_lie_far_beyond_the_start(self, postgres_database: str, index: bool) -> None:
        harness = TableHarness(postgres_database, "bigint NOT NULL", "1000000")
        if index:
            execute(postgres_database, "CREATE INDEX ON source (at)")
        harness.add(5)
        with closing(harness.open()) as source:
            ledger = Ledger(harness, source)
            ledger.plan(2)

            assert [len(batch) for batch in ledger.read(ledger.planned)] == [5]


class TestPlanning:
    def test_a_size_of_its_own_makes_at_least_four_batches_of_many_rows(
        self, harness: TableHarness, ledger: Ledger
    ) -> None:
        harness.add(21_000)

        ledger.plan(None)

        assert [batch.records for batch in ledger.planned] == [5250] * 4

    def test_a_size_of_its_own_heeds_wide_rows(self, postgres_database: str) -> None:
        harness = TableHarness(postgres_database)
        execute(
            postgres_database, "ALTER TABLE source ADD wide text", "ALTER TABLE source ALTER wide SET STORAGE PLAIN"
        )
        harness.add(20_000)
        execute(postgres_database, "UPDATE source SET wide = repeat('x', 4000)", "VACUUM FULL source", "ANALYZE source")
        with closing(harness.open()) as source:
            ledger = Ledger(harness, source)
            ledger.plan(None)

            assert 3000 < (ledger.planned[0].records or 0) < 4500

    def test_a_batch_of_pages_heeds_the_long_values_that_are_stored_outside_of_them(
        self, postgres_database: str
    ) -> None:
        harness = TableHarness(postgres_database)
        execute(
            postgres_database,
            "ALTER TABLE source ADD wide text, ADD long text",
            "ALTER TABLE source ALTER wide SET STORAGE PLAIN, ALTER long SET STORAGE EXTERNAL",
        )
        harness.add(400)
        wide = "UPDATE source SET wide = repeat('x', 2000), long = repeat('x', 100000)"
        execute(postgres_database, wide, "VACUUM FULL source", "ANALYZE source")
        full = pipeline(source={"mode": "full"}, sink={"mode": "replace"})
        with closing(PostgresFullSource(full, connection(postgres_database))) as source:
            pages = source.begin_refresh("public.source").rows_end
            planned = source.plan(PlanRequest([RangeToPlan("public.source", 0, pages)], None, 10**9)).batches

        assert 3 <= len(planned) <= 6

    def test_a_gap_whose_rows_are_gone_is_planned_as_an_empty_batch(
        self, harness: TableHarness, ledger: Ledger
    ) -> None:
        harness.add(30)
        ledger.plan(10)
        gap = ledger.planned[1].range
        execute(harness.dsn, "DELETE FROM source WHERE at BETWEEN 10 AND 19")

        again = ledger.ask(gap.start, gap.end, 10, 100)

        assert [(batch.range, batch.records) for batch in again.batches] == [(gap, 0)]
        assert ledger.read(again.batches) == [[]]

    def test_planning_walks_an_index_even_before_statistics_exist(
        self, harness: TableHarness, ledger: Ledger, caplog: pytest.LogCaptureFixture
    ) -> None:
        harness.add(1000)
        scans = "SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE relname = 'source'"
        before = scalar(harness.dsn, scans)

        ledger.plan(100)
        ledger.source.close()
        execute(harness.dsn, "SELECT pg_stat_force_next_flush()")

        assert scalar(harness.dsn, scans) == before
        assert "no index" not in caplog.text

    def test_a_missing_index_is_told(self, postgres_database: str, caplog: pytest.LogCaptureFixture) -> None:
        harness = TableHarness(postgres_database, "bigint NOT NULL")
        harness.add(3)
        with closing(harness.open()) as source:
            Ledger(harness, source).plan(1)

        assert "public.source has no index that leads with the cursor" in caplog.text

    def test_names_that_need_quotes_are_quoted(self, postgres_database: str) -> None:
        execute(
            postgres_database,
            'CREATE SCHEMA "My {0} schema"',
            'CREATE TABLE "My {0} schema"."odd ""% table" ("the {1} ""id"" %s" int PRIMARY KEY, "Wert €" text)',
            'INSERT INTO "My {0} schema"."odd ""% table" SELECT i, i FROM generate_series(1, 20) AS i',
        )
        declared = pipeline(source={"table": 'My {0} schema."odd ""% table"', "cursor": 'the {1} "id" %s'})
        with closing(PostgresSource(declared, connection(postgres_database))) as source:
            source.check()
            partition = source.partitions()[0].id
            plan = source.plan(
                PlanRequest([RangeToPlan(partition, source.start(partition, "earliest").position)], 6, 100)
            )

        assert [batch.records for batch in plan.batches] == [6, 6, 6, 2]

    def test_a_partitioned_table_is_one_source(self, postgres_database: str) -> None:
        execute(
            postgres_database,
            "CREATE TABLE source (id int PRIMARY KEY) PARTITION BY RANGE (id)",
            "CREATE TABLE low PARTITION OF source FOR VALUES FROM (0) TO (50)",
            "CREATE TABLE high PARTITION OF source FOR VALUES FROM (50) TO (100)",
            "INSERT INTO source SELECT generate_series(1, 99)",
        )
        with closing(PostgresSource(pipeline(), connection(postgres_database))) as source:
            source.check()
            plan = source.plan(PlanRequest([RangeToPlan("public.source", 0)], 40, 1000))

        assert [batch.records for batch in plan.batches] == [40, 40, 19]


class TestClosedBound:
    def plan(self, harness: TableHarness, start: int = 0, states: Any = None, wait: str = "0.2s") -> Plan:
        declared = pipeline(source={"cursor": "at", "close_wait": wait})
        with closing(PostgresSource(declared, connection(harness.dsn))) as source:
            return source.plan(PlanRequest([RangeToPlan("public.source", start)], 100, 10_000, states=states or {}))

    def test_it_is_one_past_the_greatest_cursor(self, harness: TableHarness) -> None:
        harness.add(10)

        assert self.plan(harness).bounds == {"public.source": 10}

    def test_it_costs_next_to_nothing_when_nobody_is_writing(self, harness: TableHarness) -> None:
        harness.add(10)
        self.plan(harness)
        started = time.monotonic()

        self.plan(harness, wait="30s")

        assert time.monotonic() - started < 15

    def test_a_row_committed_late_below_a_visible_one_is_not_lost(self, harness: TableHarness) -> None:
        with transaction(harness.dsn, "INSERT INTO source VALUES (0, 0)") as slow:
            execute(harness.dsn, "INSERT INTO source VALUES (1, 1)")

            early = self.plan(harness)
            slow.commit()

        assert (list(early.batches), dict(early.bounds)) == ([], {})
        assert [batch.records for batch in self.plan(harness).batches] == [2]

    def test_a_transaction_that_wrote_nothing_yet_is_waited_for(self, harness: TableHarness) -> None:
        harness.add(5)
        with transaction(harness.dsn, "SELECT 1"):
            assert self.plan(harness).bounds == {}

    def test_planning_goes_on_as_soon_as_the_transaction_ends(self, harness: TableHarness) -> None:
        harness.add(5)
        with transaction(harness.dsn, "SELECT 1") as slow:
            timer = threading.Timer(0.4, slow.rollback)
            timer.start()
            started = time.monotonic()

            plan = self.plan(harness, wait="30s")

            timer.join()
        assert plan.bounds == {"public.source": 5}
        assert 0.3 < time.monotonic() - started < 10

    def test_a_look_waits_for_a_moment_at_most(self, harness: TableHarness) -> None:
        harness.add(5)
        declared = pipeline(source={"cursor": "at", "close_wait": "30s"})
        look = PlanRequest([RangeToPlan("public.source", 0)], None, 1, lag_only=True)
        with (
            closing(PostgresSource(declared, connection(harness.dsn))) as source,
            transaction(harness.dsn, "SELECT 1") as slow,
        ):
            started = time.monotonic()
            unknown = source.plan(look)
            slow.rollback()
            known = source.plan(look)

        assert (unknown.bounds, known.bounds) == ({}, {"public.source": 5})
        assert time.monotonic() - started < 15

    def test_another_database_s_transactions_do_not_matter(
        self, harness: TableHarness, postgres_server: PostgresServer
    ) -> None:
        harness.add(5)
        with transaction(postgres_server.dsn, "SELECT 1"):
            assert self.plan(harness).bounds == {"public.source": 5}

    def test_the_snapshot_of_a_full_refresh_is_not_waited_for(
        self, harness: TableHarness, postgres_database: str
    ) -> None:
        harness.add(3)
        full = pipeline(source={"mode": "full"}, sink={"mode": "replace"})
        with closing(PostgresFullSource(full, connection(postgres_database))) as refreshed:
            refreshed.begin_refresh("public.source")

            assert dict(self.plan(harness).bounds) == {"public.source": 3}

    @pytest.mark.parametrize("application", ["ckpt-read:flights", "ckpt-snapshot:flights"])
    def test_another_user_is_waited_for_whatever_the_session_is_called(
        self, harness: TableHarness, postgres_server: PostgresServer, application: str
    ) -> None:
        harness.add(3)
        execute(harness.dsn, "CREATE ROLE other_writer LOGIN PASSWORD 'other'")
        try:
            dsn = postgres_server.database_dsn(harness.dsn.rpartition("/")[2], "other_writer", "other")
            with transaction(f"{dsn}?application_name={application}", "SELECT 1"):
                assert self.plan(harness).bounds == {}
        finally:
            execute(harness.dsn, "DROP ROLE other_writer")

    def test_a_candidate_that_did_not_close_is_used_once_it_has(self, harness: TableHarness) -> None:
        harness.add(5)
        with transaction(harness.dsn, "SELECT 1"):
            first = self.plan(harness)
        harness.add(5)
        with transaction(harness.dsn, "SELECT 1"):
            second = self.plan(harness, states=first.states)

        assert first.bounds == {}
        assert second.bounds == {"public.source": 5}
        assert [batch.range.end for batch in second.batches] == [5]

    def test_a_prepared_transaction_is_waited_for(self, harness: TableHarness) -> None:
        with transaction(harness.dsn, "INSERT INTO source VALUES (0, 0)", "PREPARE TRANSACTION 'two'"):
            execute(harness.dsn, "INSERT INTO source VALUES (1, 1)")

            waiting = self.plan(harness)
            execute(harness.dsn, "COMMIT PREPARED 'two'")

        assert waiting.bounds == {}
        assert [batch.records for batch in self.plan(harness, states=waiting.states).batches] == [2]

    def test_a_transaction_prepared_while_it_is_waited_for_is_waited_for_still(self, harness: TableHarness) -> None:
        with transaction(harness.dsn, "INSERT INTO source VALUES (0, 0)") as slow:
            execute(harness.dsn, "INSERT INTO source VALUES (1, 1)")
            first = self.plan(harness)
            with slow.cursor() as cursor:
                cursor.execute("PREPARE TRANSACTION 'late'")
            second = self.plan(harness, states=first.states)
            execute(harness.dsn, "COMMIT PREPARED 'late'")

        assert (first.bounds, second.bounds) == ({}, {})
        third = self.plan(harness, states=second.states)
        assert [batch.records for batch in third.batches] == [2]

    def test_transactions_of_other_users_are_seen_by_a_user_without_rights(
        self, harness: TableHarness, postgres_server: PostgresServer
    ) -> None:
        harness.add(5)
        execute(
            harness.dsn,
            "DROP ROLE IF EXISTS plain_reader",
            "CREATE ROLE plain_reader LOGIN PASSWORD 'plain'",
            "GRANT SELECT ON source TO plain_reader",
        )
        database = harness.dsn.rsplit("/", 1)[1]
        plain = connection(postgres_server.database_dsn(database, "plain_reader", "plain"))
        with closing(PostgresSource(harness.pipeline, plain)) as source:
            source.check()
            request = PlanRequest([RangeToPlan("public.source", 0)], 100, 1000)
            with transaction(harness.dsn, "SELECT 1"):
                held = source.plan(request)
            free = source.plan(request)
        execute(harness.dsn, "DROP OWNED BY plain_reader", "DROP ROLE plain_reader")

        assert (held.bounds, free.bounds) == ({}, {"public.source": 5})

    def test_a_row_of_today_may_still_come_so_today_stays_open(self, postgres_database: str) -> None:
        harness = TableHarness(postgres_database, "date NOT NULL", "current_date - 5 + i")
        harness.add(6)
        with closing(harness.open()) as source:
            ledger = Ledger(harness, source)
            ledger.plan()

            assert ledger.numbers(ledger.planned) in ([0, 1, 2, 3], [0, 1, 2, 3, 4])

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("timestamptz(0)", "clock_timestamp()"),
            ("timestamp(0)", "clock_timestamp() AT TIME ZONE 'Europe/Berlin'"),
            ("timestamp(0)", "clock_timestamp() AT TIME ZONE 'America/St_Johns'"),
        ],
    )
    def test_a_row_of_this_very_second_may_still_come_where_seconds_are_all_there_is(
        self, postgres_database: str, column: str, value: str
    ) -> None:
        harness = TableHarness(postgres_database, f"{column} NOT NULL", value)
        with closing(harness.open()) as source:
            ledger = Ledger(harness, source)
            ledger.plan()
            while not 0.5 < time.time() % 1 < 0.6:  # for a second from here on, all rows get the same value
                time.sleep(0.02)
            harness.add(1)
            ledger.plan()
            harness.add(1)
            time.sleep(1.1)
            ledger.plan()

            assert sum(batch.records or 0 for batch in ledger.planned) == 2


class TestReading:
    def test_every_type_comes_through_without_loss(self, postgres_database: str) -> None:
        execute(
            postgres_database,
            "CREATE TYPE mood AS ENUM ('sad', 'ok')",
            """CREATE TABLE source (id int PRIMARY KEY, n numeric, j jsonb, u uuid, a int[], m mood, i interval,
               b bytea, t time, d double precision, flag bool, z timestamptz, gone text,
               twice int GENERATED ALWAYS AS (id * 2) STORED)""",
            "ALTER TABLE source DROP gone",
            """INSERT INTO source VALUES (7, 123456789012345678901234567890.12345678901234567890, '{"a": [1, null]}',
               'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{1,NULL,3}', 'ok', '1 year 2 days 3.5 seconds', '\\x00ff',
               '23:59:59.999999', 0.1, true, '2024-01-01 00:00+02')""",
        )
        with closing(PostgresSource(pipeline(), connection(postgres_database))) as source:
            shape = source.shape()
            plan = source.plan(PlanRequest([RangeToPlan("public.source", 0)], 10, 10))
            (task,) = Ledger(TableHarness.__new__(TableHarness), source).tasks(plan.batches)
        with closing(PostgresReader(pipeline(), connection(postgres_database), shape)) as reader:
            (row,) = next(iter(reader.read(task))).to_pylist()

        assert dict(shape.columns) == {
            "id": "int", "n": "string", "j": "string", "u": "string", "a": "string", "m": "string", "i": "string",
            "b": "binary", "t": "string", "d": "double", "flag": "boolean", "z": "timestamp", "twice": "int",
        }  # fmt: skip
        assert row.pop("z").isoformat() == "2023-12-31T22:00:00+00:00"
        assert row == {
            "__pos": 7, "id": 7, "n": "123456789012345678901234567890.12345678901234567890", "j": '{"a": [1, null]}',
            "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a": "{1,NULL,3}", "m": "ok",
            "i": "1 year 2 days 00:00:03.5", "b": b"\x00\xff", "t": "23:59:59.999999", "d": 0.1, "flag": True,
            "twice": 14,
        }  # fmt: skip

    def test_only_the_columns_named_are_read(self, harness: TableHarness) -> None:
        harness.add(3)
        declared = pipeline(source={"cursor": "at", "columns": ["number"]})
        with closing(PostgresSource(declared, connection(harness.dsn))) as source:
            shape = source.shape()
            ledger = Ledger(harness, source)
            ledger.plan()
            tasks = ledger.tasks(ledger.planned)
        with closing(PostgresReader(declared, connection(harness.dsn), shape)) as reader:
            (records,) = reader.read(tasks[0])

        assert records.to_pydict() == {"__pos": [0, 1, 2], "number": [0, 1, 2]}

    def test_a_table_made_anew_is_refused(self, harness: TableHarness, ledger: Ledger) -> None:
        harness.add(3)
        identity = ledger.source.partitions()[0].identity
        ledger.plan()
        tasks = ledger.tasks(ledger.planned)
        execute(harness.dsn, "DROP TABLE source", "CREATE TABLE source (number int, at bigint PRIMARY KEY)")

        with closing(harness.reader(ledger.source.shape())) as reader, pytest.raises(SourceError, match="recreated"):
            list(reader.read(tasks[0]))
        assert ledger.source.partitions()[0].identity != identity

    def test_a_lost_connection_is_a_recoverable_error_and_the_next_read_connects_again(
        self, harness: TableHarness, ledger: Ledger
    ) -> None:
        harness.add(3)
        ledger.plan()
        (task,) = ledger.tasks(ledger.planned)
        with closing(harness.reader(ledger.source.shape())) as reader:
            list(reader.read(task))
            ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'ckpt-read:%'"
            execute(harness.dsn, ends)

            with pytest.raises(SourceError) as caught:
                list(reader.read(task))

            assert caught.value.recoverable
            assert sum(records.num_rows for records in reader.read(task)) == 3

    def test_a_connection_without_a_cursor_is_closed_and_the_next_read_connects_again(
        self, harness: TableHarness, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from adbc_driver_manager import AdbcStatusCode, dbapi

        def open_without_cursors(*given: Any) -> Any:
            opened = open_adbc(*given)
            failing.setattr(dbapi.Connection, "cursor", fail)
            return opened

        def fail(_: Any) -> None:
            raise dbapi.InternalError("no cursor", status_code=AdbcStatusCode.INTERNAL)

        harness.add(3)
        task = BatchTask(BatchKey(1, "public.source", 0), Range(0, 2**60), 1)
        with closing(PostgresReader(harness.pipeline, connection(harness.dsn), SHAPE)) as reader:
            with monkeypatch.context() as failing:
                failing.setattr(reader_session, "open_adbc", open_without_cursors)
                with pytest.raises(SourceError, match="no cursor"):
                    list(reader.read(task))
            sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'ckpt-read:%'"
            assert scalar(harness.dsn, sessions) == 0
            assert sum(batch.num_rows for batch in reader.read(task)) == 3


class TestRefusals:
    def check(self, dsn: str, **source: Any) -> str:
        with (
            closing(PostgresSource(pipeline(source=source), connection(dsn))) as opened,
            pytest.raises(ConfigError) as caught,
        ):
            opened.check()
        assert caught.value.hint
        return str(caught.value)

    def test_a_missing_table(self, postgres_database: str) -> None:
        assert "source table public.source does not exist" in self.check(postgres_database)

    def test_a_name_that_is_none(self, postgres_database: str) -> None:
        assert "is not the name of a table" in self.check(postgres_database, table="a.b.c")

    def test_a_missing_cursor(self, postgres_database: str) -> None:
        execute(postgres_database, "CREATE TABLE source (nr int)")

        assert "no column 'id', the pipeline's cursor. Its columns are: nr." in self.check(postgres_database)

    def test_a_cursor_of_a_type_without_positions(self, postgres_database: str) -> None:
        execute(postgres_database, "CREATE TABLE source (id uuid)")

        assert "cursor id of public.source has type uuid" in self.check(postgres_database)

    def test_a_missing_column(self, postgres_database: str) -> None:
        execute(postgres_database, "CREATE TABLE source (id int PRIMARY KEY)")

        assert "no column nope" in self.check(postgres_database, columns=["id", "nope"])

    def test_a_null_in_the_cursor(self, postgres_database: str) -> None:
        execute(postgres_database, "CREATE TABLE source (id int)", "INSERT INTO source VALUES (1), (NULL)")

        assert "is NULL in some rows" in self.check(postgres_database)

    @pytest.mark.parametrize(
        "column",
        ["id int GENERATED ALWAYS AS IDENTITY (CACHE 20) PRIMARY KEY", "id int DEFAULT nextval('own') PRIMARY KEY"],
    )
    def test_a_sequence_that_hands_out_blocks(self, postgres_database: str, column: str) -> None:
        execute(postgres_database, "CREATE SEQUENCE own CACHE 20", f"CREATE TABLE source ({column})")

        assert "CACHE 1" in self.check(postgres_database)

    def test_a_sequence_that_counts_down(self, postgres_database: str) -> None:
        execute(postgres_database, "CREATE TABLE source (id int GENERATED BY DEFAULT AS IDENTITY (INCREMENT -1))")

        assert "only grows" in self.check(postgres_database)

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            ("timestamptz", "infinity"),
            ("timestamptz", "-infinity"),
            ("timestamptz", "294276-12-31"),
            ("date", "5874897-12-31"),
        ],
    )
    def test_a_cursor_without_a_position(self, postgres_database: str, kind: str, value: str) -> None:
        execute(
            postgres_database,
            f"CREATE TABLE source (id {kind} PRIMARY KEY)",
            f"INSERT INTO source VALUES (now()), ('{value}')",
        )
        with (
            closing(PostgresSource(pipeline(), connection(postgres_database))) as source,
            pytest.raises(SourceError, match="contains infinity or a time after the year 294246"),
        ):
            source.plan(PlanRequest([RangeToPlan("public.source", 0)], 10, 10))

    def test_a_table_that_the_user_may_not_read(self, postgres_database: str, postgres_server: PostgresServer) -> None:
        execute(
            postgres_database,
            "CREATE TABLE source (id int PRIMARY KEY)",
            "DROP ROLE IF EXISTS stranger",
            "CREATE ROLE stranger LOGIN PASSWORD 'strange'",
        )
        database = postgres_database.rsplit("/", 1)[1]

        assert "may not read" in self.check(postgres_server.database_dsn(database, "stranger", "strange"))

    def test_a_schema_that_the_user_may_not_use(self, postgres_database: str, postgres_server: PostgresServer) -> None:
        execute(
            postgres_database,
            "DROP ROLE IF EXISTS guest",
            "CREATE ROLE guest LOGIN PASSWORD 'guest'",
            "CREATE SCHEMA private",
            "CREATE TABLE private.source (id int PRIMARY KEY)",
        )
        dsn = postgres_server.database_dsn(postgres_database.rsplit("/", 1)[1], "guest", "guest")
        source = PostgresSource(pipeline(source={"table": "private.source"}), connection(dsn))

        with pytest.raises(SourceError, match="permission denied for schema private") as caught:
            source.check()
        assert caught.value.hint is not None
        assert "USAGE" in caught.value.hint

    def test_columns_that_the_user_may_not_read(self, postgres_database: str, postgres_server: PostgresServer) -> None:
        execute(
            postgres_database,
            "DROP ROLE IF EXISTS clerk",
            "CREATE ROLE clerk LOGIN PASSWORD 'clerk'",
            'CREATE TABLE source (id int PRIMARY KEY, name text, "my pay" int)',
            "GRANT SELECT (id, name) ON source TO clerk",
        )
        dsn = postgres_server.database_dsn(postgres_database.rsplit("/", 1)[1], "clerk", "clerk")

        assert self.check(dsn).endswith(
            'may not read my pay of public.source. GRANT SELECT ("my pay") ON "public"."source" to it, or name the '
            "columns to read in source.columns."
        )
        with closing(PostgresSource(pipeline(source={"columns": ["id", "name"]}), connection(dsn))) as source:
            source.check()

    def test_a_wrong_password_is_told_without_the_password(self, postgres_database: str) -> None:
        source = PostgresSource(pipeline(), connection(postgres_database, password="hunter2"))

        with pytest.raises(SourceError, match="password authentication failed") as caught:
            source.check()
        assert not caught.value.recoverable
        assert "hunter2" not in str(caught.value)

    def test_an_unreachable_server_is_the_source_as_a_whole(self, postgres_database: str) -> None:
        source = PostgresSource(pipeline(), connection(postgres_database, port=1))

        with pytest.raises(SourceError, match=r"cannot connect to PostgreSQL at 127\.0\.0\.1:1/") as caught:
            source.check()
        assert caught.value.is_outage
        assert caught.value.recoverable

    def test_no_connection(self) -> None:
        with pytest.raises(ConfigError, match="has no connection"):
            PostgresSource(pipeline(), None)
