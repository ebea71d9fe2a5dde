"""The sql source with MariaDB and SQLite: the conformance suite, closed bounds, exact values, and refusals."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.source_plan import Plan, PlanRequest, RangeToPlan
from airflow_provider_ckpt.connectors.source_protocol import Reader, RecordShape, Source
from airflow_provider_ckpt.connectors.sql.connector import FIRST_DAY
from airflow_provider_ckpt.connectors.sql.reader import SqlReader
from airflow_provider_ckpt.connectors.sql.source import SqlSource
from airflow_provider_ckpt.core.errors import ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import START
from airflow_provider_ckpt.testing.source_conformance import SourceConformance
from airflow_provider_ckpt.testing.source_harness import Ledger, SourceHarness
from tests.integration.connectors.sql.sql_support import Database, MariaDb, Sqlite, pipeline

NUMBERS = "WITH RECURSIVE n (i) AS (SELECT {start} UNION ALL SELECT i + 1 FROM n WHERE i < {last}) SELECT {row} FROM n"


class TableHarness(SourceHarness):
    """``source``, with a column ``number``."""

    def __init__(self, database: Database, cursor: str = "bigint PRIMARY KEY", value: str = "i * 3 + 1") -> None:
        self.database = database
        self._value = value
        self._held = 0
        database.execute(f"CREATE TABLE source (id {cursor}, number int)")

    def add(self, count: int) -> None:
        first, self._held = self._held, self._held + count
        row = f"{self._value}, i"
        self.database.execute(f"INSERT INTO source {NUMBERS.format(start=first, last=self._held - 1, row=row)}")

    def open(self, **source: Any) -> Source:
        return SqlSource(pipeline(source=source), self.database.connection)

    def reader(self, shape: RecordShape) -> Reader:
        return SqlReader(pipeline(), self.database.connection, shape)

    def numbers(self, records: pa.RecordBatch) -> list[int]:
        found: list[int] = records.column("number").to_pylist()
        return found


WAYS = {
    "mariadb": ("mariadb", {}),
    "mariadb, by time and without an index": (
        "mariadb",
        {"cursor": "datetime(6) NOT NULL", "value": "'2024-01-01 00:00:00' + INTERVAL i * 7 MICROSECOND"},
    ),
    "sqlite": ("sqlite", {"cursor": "INTEGER PRIMARY KEY AUTOINCREMENT"}),
}


class TestConformance(SourceConformance):
    @pytest.fixture(params=WAYS)
    def harness(self, request: pytest.FixtureRequest) -> SourceHarness:
        database, table = WAYS[request.param]
        return TableHarness(request.getfixturevalue(database), **table)


def plan(harness: TableHarness, start: int = START, states: Any = None, wait: str = "0.6s", **request: Any) -> Plan:
    with closing(harness.open(close_wait=wait)) as source:
        (partition,) = source.partitions()
        todo = RangeToPlan(partition.id, start)
        return source.plan(PlanRequest([todo], None, 10**9, states=states or {}, **request))


@contextmanager
def transaction(mariadb: MariaDb, *statements: str) -> Iterator[Any]:
    """A transaction that has run some statements and stays open."""
    with closing(mariadb.server.open(mariadb.name)) as opened:
        opened.begin()
        for statement in statements:
            opened.cursor().execute(statement)
        yield opened
        if opened.open:
            opened.rollback()


class TestClosedBound:
    def test_it_is_one_past_the_greatest_cursor_and_costs_little(self, mariadb: MariaDb) -> None:
        harness = TableHarness(mariadb)
        harness.add(4)
        started = time.monotonic()

        assert list(plan(harness, wait="30s").bounds.values()) == [11]
        assert time.monotonic() - started < 15

    def test_a_row_committed_late_below_a_visible_one_is_not_lost(self, mariadb: MariaDb) -> None:
        harness = TableHarness(mariadb, "int AUTO_INCREMENT PRIMARY KEY")
        with transaction(mariadb, "INSERT INTO source (number) VALUES (0)") as late:
            mariadb.execute("INSERT INTO source (number) VALUES (1)")
            first = plan(harness)
            assert (list(first.batches), dict(first.bounds)) == ([], {})
            late.commit()
        again = plan(harness, states=first.states)

        assert [batch.records for batch in again.batches] == [2]

    def test_a_transaction_that_has_only_read_so_far_is_waited_for(self, mariadb: MariaDb) -> None:
        harness = TableHarness(mariadb, "int AUTO_INCREMENT PRIMARY KEY")
        mariadb.execute("INSERT INTO source (id, number) VALUES (5, 5)")
        with transaction(mariadb, "SELECT * FROM source") as late:
            first = plan(harness)
            assert dict(first.bounds) == {}
            late.cursor().execute("INSERT INTO source (id, number) VALUES (4, 4)")
            assert dict(plan(harness, states=first.states).bounds) == {}
            late.commit()

        assert [batch.records for batch in plan(harness, states=first.states).batches] == [2]

    def test_planning_goes_on_as_soon_as_the_transaction_ends(self, mariadb: MariaDb) -> None:
        harness = TableHarness(mariadb)
        harness.add(3)
        with transaction(mariadb, "INSERT INTO source VALUES (-1, -1)") as late:
            timer = threading.Timer(0.8, late.commit)
            timer.start()
            started = time.monotonic()
            found = plan(harness, wait="30s")
            timer.join()

        assert 0.7 < time.monotonic() - started < 10
        assert [batch.records for batch in found.batches] == [4]

    def test_a_candidate_that_did_not_close_is_used_once_it_has(self, mariadb: MariaDb) -> None:
        harness = TableHarness(mariadb)
        harness.add(3)
        with transaction(mariadb, "INSERT INTO source VALUES (-1, -1)"):
            first = plan(harness)
        harness.add(2)
        with transaction(mariadb, "INSERT INTO source VALUES (-2, -2)"):
            assert list(plan(harness, states=first.states).bounds.values()) == [8]

    def test_without_the_right_to_see_transactions_all_of_close_wait_is_waited(
        self, mariadb: MariaDb, caplog: pytest.LogCaptureFixture
    ) -> None:
        harness = TableHarness(mariadb)
        harness.add(3)
        mariadb.execute(
            "CREATE OR REPLACE USER reader@'127.0.0.1' IDENTIFIED BY 'r'",
            f"GRANT SELECT ON {mariadb.name}.* TO reader@'127.0.0.1'",
        )
        mariadb.connection = replace(mariadb.connection, login="reader", password="r")
        started = time.monotonic()

        assert list(plan(harness, wait="1s").bounds.values()) == [8]
        assert time.monotonic() - started > 0.9
        assert "may not see running transactions" in caplog.text

    def test_a_row_of_this_very_second_may_still_come(self, mariadb: MariaDb) -> None:
        harness = TableHarness(mariadb, "timestamp", "UTC_TIMESTAMP()")
        harness.add(3)

        assert [batch.records for batch in plan(harness).batches] == []


class TestEqualValues:
    def batches(self, mariadb: MariaDb, values: Sequence[int], number: int) -> list[tuple[int | None, list[int]]]:
        """The planned number of records, and the cursor values that are read, of each batch."""
        harness = TableHarness(mariadb, "int NOT NULL")
        mariadb.execute(f"INSERT INTO source VALUES {', '.join(f'({value}, 0)' for value in values)}")
        with closing(harness.open()) as source:
            ledger = Ledger(harness, source)
            ledger.plan(number)
            read = ledger.read(ledger.planned)
        return [(batch.records, [at for at, _ in rows]) for batch, rows in zip(ledger.planned, read, strict=True)]

    def test_rows_of_one_value_stay_together(self, mariadb: MariaDb) -> None:
        assert self.batches(mariadb, [1, 2, 3, 3, 3, 4, 5], 3) == [(2, [1, 2]), (3, [3, 3, 3]), (2, [4, 5])]

    def test_more_of_one_value_than_a_batch_holds_make_one_batch(self, mariadb: MariaDb) -> None:
        assert self.batches(mariadb, [1, *[2] * 5, 3], 2) == [(1, [1]), (5, [2] * 5), (1, [3])]


def test_a_batch_of_long_texts_has_fewer_rows(mariadb: MariaDb) -> None:
    mariadb.execute(
        "CREATE TABLE source (id int PRIMARY KEY, number longtext)",
        "INSERT INTO source SELECT seq, repeat('x', 400000) FROM seq_1_to_100",
        "ANALYZE TABLE source",
    )
    with closing(SqlSource(pipeline(source={"close_wait": "0.6s"}), mariadb.connection)) as source:
        (partition,) = source.partitions()
        planned = source.plan(PlanRequest([RangeToPlan(partition.id, START)], None, 10**9, states={})).batches

    assert 3 <= len(planned) <= 6
    assert sum(batch.records or 0 for batch in planned) == 100


class TestLateNumbers:
    def test_a_numbering_that_was_set_back_is_refused(self, database: Database) -> None:
        cursor = "int AUTO_INCREMENT PRIMARY KEY"
        kind = cursor if isinstance(database, MariaDb) else "INTEGER PRIMARY KEY AUTOINCREMENT"
        harness = TableHarness(database, kind)
        harness.add(10)
        end = plan(harness).batches[-1].range.end
        database.execute("DELETE FROM source")
        assert list(plan(harness, end).batches) == []
        truncate = "TRUNCATE source" if isinstance(database, MariaDb) else "DELETE FROM sqlite_sequence"
        database.execute(truncate, "INSERT INTO source (number) VALUES (1)")

        with pytest.raises(
            SourceError, match=f"the next row of .*source gets id 2, but rows up to {end - 1} were read"
        ):
            plan(harness, end)
        with closing(harness.open(late_rows="recover")) as source:
            (partition,) = source.partitions()
            warned = source.plan(PlanRequest([RangeToPlan(partition.id, end)], None, 10))
        assert "was set back" in warned.notices[0]

    def test_numbers_that_sqlite_uses_again_are_told(self, sqlite: Sqlite, caplog: pytest.LogCaptureFixture) -> None:
        with closing(TableHarness(sqlite, "INTEGER PRIMARY KEY").open()) as source:
            source.check()

        assert "numbers its rows without AUTOINCREMENT" in caplog.text


def read(database: Database, **source: Any) -> tuple[RecordShape, list[dict[str, Any]]]:
    """The shape of ``source`` and all its rows."""
    declared = pipeline(source=source)
    with closing(SqlSource(declared, database.connection)) as opened:
        opened.check()
        ledger = Ledger(None, opened)  # type: ignore[arg-type]
        ledger.plan()
        shape = opened.shape()
        with closing(SqlReader(declared, database.connection, shape)) as reader:
            rows = [
                row
                for task in ledger.tasks(ledger.planned)
                for records in reader.read(task)
                for row in records.to_pylist()
            ]
    return shape, [{name: row[name] for name, _ in shape.columns if name != "id"} for row in rows]


MOMENT = datetime(2024, 2, 29, 23, 59, 59, 123456)
MARIADB: dict[str, tuple[str, str, str, Any]] = {
    "tiny": ("tinyint", "-128", "tinyint", -128),
    "whole": ("int unsigned", "4294967295", "bigint", 2**32 - 1),
    "big": ("bigint unsigned", "18446744073709551615", "decimal(20,0)", Decimal(2**64 - 1)),
    "number": ("decimal(30,10)", "-1.0000000001", "decimal(30,10)", Decimal("-1.0000000001")),
    "wide": ("decimal(65,1)", "1" * 64 + ".5", "string", "1" * 64 + ".5"),
    "single": ("float", "16777217", "float", 16777216.0),
    "double_": ("double", "0.1 + 0.2e0", "double", 0.1 + 0.2),
    "text_": ("varchar(60)", "'日本 \\\\N 😀\\0'", "string", "日本 \\N 😀\0"),
    "latin": ("varchar(20) character set latin1", "'Zoë — 5 €'", "string", "Zoë — 5 €"),
    "bytes_": ("varbinary(9)", "x'00ff5c'", "binary", b"\x00\xff\\"),
    "day": ("date", "'9999-12-31'", "date", date(9999, 12, 31)),
    "at": ("datetime(6)", f"'{MOMENT}'", "timestamp_ntz", MOMENT),
    "instant": ("timestamp(6)", f"'{MOMENT}'", "timestamp", MOMENT.replace(tzinfo=UTC)),
    "span": ("time(6)", "'-838:59:58.5'", "string", "-838:59:58.500000"),
    "year_": ("year", "1901", "smallint", 1901),
    "bits": ("bit(9)", "b'101010101'", "smallint", 0b101010101),
    "bit_": ("bit(1)", "b'1'", "boolean", True),
    "bits64": ("bit(64)", "~0", "decimal(20,0)", Decimal(2**64 - 1)),
    "choice": ("enum('a','it''s')", "2", "string", "it's"),
    "choices": ("set('a','b','c')", "'c,a'", "string", "a,c"),
    "document": ("json", "'[1, 2]'", "string", "[1, 2]"),
    "code": ("uuid", "'123e4567-e89b-12d3-a456-426614174000'", "string", "123e4567-e89b-12d3-a456-426614174000"),
    "none_": ("int", "NULL", "int", None),
    "odd ` %s": ("int", "7", "int", 7),
}
"""By column: its type, a value in SQL, the Spark type and the value that is read."""


def test_every_value_of_mariadb_is_read_as_it_is(mariadb: MariaDb) -> None:
    columns = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, (kind, *_) in MARIADB.items())
    mariadb.execute(f"CREATE TABLE source (id int PRIMARY KEY, {columns})")
    values = ", ".join(value for _, value, *_ in MARIADB.values())
    with closing(mariadb.server.open(mariadb.name)) as opened:
        opened.cursor().execute("SET time_zone = '+00:00', sql_mode = ''")
        opened.cursor().execute(f"INSERT INTO source VALUES (1, {values})")

    shape, (row,) = read(mariadb)

    assert dict(shape.columns) == {"id": "int", **{name: kind for name, (_, _, kind, _) in MARIADB.items()}}
    assert row == {name: value for name, (*_, value) in MARIADB.items()}


def test_a_zero_date_is_read_as_one_before_all_dates_so_that_the_transform_rejects_it(mariadb: MariaDb) -> None:
    mariadb.execute("CREATE TABLE source (id int PRIMARY KEY, day date, at datetime(6))")
    with closing(mariadb.server.open(mariadb.name)) as opened:
        opened.cursor().execute("SET sql_mode = ''")
        opened.cursor().execute(
            "INSERT INTO source VALUES (1, '0000-00-00', '0000-00-00'), (2, '2024-02-00', '2024-02-29 01:02:03.5')"
        )
    declared = pipeline()
    with closing(SqlSource(declared, mariadb.connection)) as source:
        ledger = Ledger(None, source)  # type: ignore[arg-type]
        ledger.plan()
        with closing(SqlReader(declared, mariadb.connection, source.shape())) as reader:
            (records,) = reader.read(ledger.tasks(ledger.planned)[0])

    assert all(day < FIRST_DAY for day in records.column("day").cast(pa.int32()).to_pylist())
    first, second = records.column("at").cast(pa.int64()).to_pylist()
    assert first < FIRST_DAY * 86_400_000_000
    assert datetime(1970, 1, 1) + timedelta(microseconds=second) == datetime(2024, 2, 29, 1, 2, 3, 500_000)


def test_every_value_of_sqlite_is_read_as_it_is(sqlite: Sqlite) -> None:
    types: dict[str, tuple[str, Any, str, Any]] = {
        "whole": ("INTEGER", 2**63 - 1, "bigint", 2**63 - 1),
        "number": ("DECIMAL(15,2)", 1234567890123.45, "decimal(15,2)", Decimal("1234567890123.45")),
        "any": ("NUMERIC", "12.5", "string", "12.5"),
        "double_": ("REAL", 0.1 + 0.2, "double", 0.1 + 0.2),
        "text_": ("VARCHAR(60)", "日本\0", "string", "日本\0"),
        "bytes_": ("BLOB", b"\x00\xff", "binary", b"\x00\xff"),
        "flag": ("BOOLEAN", 1, "boolean", True),
        "day": ("DATE", "2024-02-29", "date", date(2024, 2, 29)),
        "at": ("DATETIME", "2024-02-29 23:59:59.123456", "timestamp_ntz", MOMENT),
        "none_": ("TEXT", None, "string", None),
    }
    sqlite.execute(
        f"CREATE TABLE source (id INTEGER PRIMARY KEY, {', '.join(f'{n} {k}' for n, (k, *_) in types.items())})"
    )
    places = ", ".join("?" for _ in types)
    sqlite.execute(f"INSERT INTO source VALUES (1, {places})", parameters=[value for _, value, *_ in types.values()])

    shape, (row,) = read(sqlite)

    assert dict(shape.columns) == {"id": "bigint", **{name: kind for name, (_, _, kind, _) in types.items()}}
    assert row == {name: value for name, (*_, value) in types.items()}


def test_a_value_of_another_type_is_an_error_that_names_its_position(sqlite: Sqlite) -> None:
    sqlite.execute(
        "CREATE TABLE source (id INTEGER PRIMARY KEY, v INTEGER)",
        "INSERT INTO source VALUES (5, 1), (7, 'many')",
    )

    with pytest.raises(SourceError, match=r"position 7: column v INTEGER of main.source holds a value of another type"):
        read(sqlite)
    assert len(read(sqlite, columns=["id"])[1]) == 2


class TestRefusals:
    def check(self, database: Database, *statements: str, **source: Any) -> str:
        database.execute(*statements, "SELECT 1")
        refused = pytest.raises(ConfigError)
        with closing(SqlSource(pipeline(source=source), database.connection)) as tried, refused as refusal:
            tried.check()
        return str(refusal.value)

    def test_a_missing_table_and_a_missing_column(self, database: Database) -> None:
        assert "source table source does not exist" in self.check(database)
        made = "CREATE TABLE source (id int, note varchar(9))"
        assert "has no column other" in self.check(database, made, columns=["other"])
        assert "has no column at" in self.check(database, cursor="at")
        assert "cursor note of" in self.check(database, cursor="note")

    def test_a_cursor_that_is_null_in_a_row(self, database: Database) -> None:
        made = ("CREATE TABLE source (id int)", "INSERT INTO source VALUES (1), (NULL)")
        assert "id" in (told := self.check(database, *made))
        assert "in some rows, which therefore have no position" in told

    def test_a_cursor_that_is_a_text_in_a_row(self, sqlite: Sqlite) -> None:
        made = ("CREATE TABLE source (id int)", "INSERT INTO source VALUES (1), ('x')")
        assert "not of type INT" in self.check(sqlite, *made).upper().replace("NOT OF TYPE", "not of type")

    def test_a_zero_date_in_the_cursor(self, mariadb: MariaDb) -> None:
        mariadb.execute("CREATE TABLE source (at datetime NOT NULL)")
        with closing(mariadb.server.open(mariadb.name)) as opened:
            opened.cursor().execute("SET sql_mode = ''")
            opened.cursor().execute("INSERT INTO source VALUES ('0000-00-00'), ('2024-01-01')")
        assert "have no position" in self.check(mariadb, cursor="at")

    def test_a_cursor_beyond_64_bits(self, mariadb: MariaDb) -> None:
        harness = TableHarness(mariadb, "bigint unsigned PRIMARY KEY")
        mariadb.execute("INSERT INTO source VALUES (18446744073709551615, 1)")
        with pytest.raises(SourceError, match="reached the largest 64-bit number"):
            plan(harness)

    def test_a_column_that_cannot_be_read(self, mariadb: MariaDb) -> None:
        made = "CREATE TABLE source (id int PRIMARY KEY, place point)"
        assert "columns that cannot be read: place point" in self.check(mariadb, made)
