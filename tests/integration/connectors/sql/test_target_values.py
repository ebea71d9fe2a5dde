"""Each value arrives unchanged at the target, or its row is refused; in MariaDB with LOAD DATA and with INSERT."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, Refused, SinkContext
from airflow_provider_ckpt.connectors.sql.sink import SqlSink
from airflow_provider_ckpt.connectors.sql.writer import SqlWriter
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome
from tests.integration.connectors.sql.sql_support import Database, MariaDb, Sqlite, pipeline

CONTEXT = SinkContext("7a1f9c1e-0000-4000-8000-000000000001", "orders", 1)
MANY = 120
"""Rows that LOAD DATA sends; a few go by INSERT."""


@dataclass
class Delivery:
    """One batch to ``target``.

    :param outcome: its outcome; that of the rest if rows were refused
    :param refused: errors by row number
    """

    outcome: Outcome
    refused: dict[int, ErrorInfo]


def deliver(database: Database, rows: pa.Table, **sink: Any) -> Delivery:
    """Deliver one batch, without the rows that are refused."""
    declared, connection = pipeline(sink=sink), database.connection
    numbered = rows.add_column(0, ROW_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
    task = BatchTask(BatchKey(1, "main", 0), Range(0, max(rows.num_rows, 1)), 1)
    with (
        closing(SqlSink(declared, connection, CONTEXT)) as control,
        closing(SqlWriter(declared, connection, CONTEXT)) as writer,
    ):
        control.check()
        control.fence(1)
        result = writer.deliver(task, BatchContent(numbered, [], rows.num_rows, 0))
        refused: dict[int, ErrorInfo] = {}
        while isinstance(result, Refused):
            refused |= result.errors
            kept = [number for number in range(rows.num_rows) if number not in refused]
            result = writer.deliver(task, BatchContent(numbered.take(kept), [], rows.num_rows, len(refused)))
    return Delivery(result, refused)


HOSTILE = "\\N\t'\"\0\r\n\x1a%s 日本 \U0001f600\\"
MOMENT = datetime(2024, 2, 29, 23, 59, 59, 123456)

MARIADB: dict[str, tuple[str, pa.DataType, Any, Any]] = {
    "tiny": ("tinyint", pa.int8(), -128, -128),
    "flag": ("tinyint(1)", pa.bool_(), True, 1),
    "big": ("bigint unsigned", pa.decimal128(20, 0), Decimal(2**64 - 1), 2**64 - 1),
    "number": ("decimal(30,10)", pa.decimal128(30, 10), Decimal("-12345678901234567890.0000000001"), None),
    "wide": ("decimal(60,5)", pa.string(), "1" * 55 + ".00001", Decimal("1" * 55 + ".00001")),
    "double_": ("double", pa.float64(), 0.1 + 0.2, None),
    "text_": ("varchar(60)", pa.string(), HOSTILE, None),
    "latin": ("varchar(20) character set latin1", pa.string(), "Zoë — 5 €", None),
    "bytes_": ("varbinary(300)", pa.binary(), bytes(range(256)), None),
    "fixed": ("binary(2)", pa.binary(), b"\\\0", None),
    "day": ("date", pa.date32(), date(9999, 12, 31), None),
    "at": ("datetime(6)", pa.timestamp("us"), MOMENT, None),
    "instant": ("timestamp(6)", pa.timestamp("us", "UTC"), MOMENT.replace(tzinfo=UTC), MOMENT),
    "seconds": ("datetime", pa.timestamp("us"), MOMENT.replace(microsecond=0), None),
    "span": (
        "time(6)",
        pa.string(),
        "-838:59:58.000001",
        -timedelta(hours=838, minutes=59, seconds=58, microseconds=1),
    ),
    "year_": ("year", pa.int16(), 1901, None),
    "bits": ("bit(9)", pa.int32(), 0b101010101, b"\x01\x55"),
    "bit_": ("bit(1)", pa.bool_(), True, b"\x01"),
    "choice": ("enum('a','it''s')", pa.string(), "it's", None),
    "choices": ("set('a','b','c')", pa.string(), "a,c", None),
    "backslash": (r"enum('a\\b','c')", pa.string(), r"a\b", None),
    "padded": ("char(5)", pa.string(), " ab", None),
    "document": ("json", pa.string(), '{"a": [1, "\\u0000"]}', None),
    "id": ("uuid", pa.string(), "123e4567-e89b-12d3-a456-426614174000", None),
    "nothing": ("int", pa.int32(), None, None),
    "name with ` and %s": ("int", pa.int64(), 7, None),
}
"""By column: its type, the Arrow type and value that are sent, and what is stored, if Python shows it otherwise."""


@pytest.mark.parametrize("number", [1, MANY])
def test_mariadb_stores_every_value_as_it_is(mariadb: MariaDb, number: int) -> None:
    columns = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, (kind, _, _, _) in MARIADB.items())
    mariadb.execute(f"CREATE TABLE target ({columns}, total int AS (tiny + 1)) CHARACTER SET utf8mb4")
    sent = {name: pa.array([value] * number, kind) for name, (_, kind, value, _) in MARIADB.items()}

    delivery = deliver(mariadb, pa.table(sent | {"total": pa.array([0] * number)}))

    assert delivery.outcome.outcome is AttemptOutcome.DELIVERED, delivery.outcome.error
    assert delivery.refused == {}
    expected = tuple(value if shown is None else shown for _, _, value, shown in MARIADB.values())
    assert mariadb.execute("SELECT * FROM target") == [(*expected, -127)] * number


@pytest.mark.parametrize("number", [1, MANY])
def test_numbers_that_are_not_finite_have_their_usual_names_in_a_text(database: Database, number: int) -> None:
    database.execute("CREATE TABLE target (a varchar(20), b varchar(20), c varchar(20), d varchar(20), e varchar(20))")
    sent = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.5, "e": None}
    rows = pa.table({name: pa.array([value] * number, pa.float64()) for name, value in sent.items()})

    delivery = deliver(database, rows)

    assert delivery.refused == {}
    assert database.execute("SELECT * FROM target") == [("NaN", "Infinity", "-Infinity", "0.5", None)] * number


def test_sqlite_stores_every_value_as_it_is(sqlite: Sqlite) -> None:
    types = {
        "whole": ("INTEGER", pa.int64(), 2**63 - 1, None),
        "number": ("DECIMAL(15,2)", pa.decimal128(15, 2), Decimal("1234567890123.45"), 1234567890123.45),
        "exact": (
            "TEXT",
            pa.decimal128(38, 10),
            Decimal("12345678901234567890.0000000001"),
            "12345678901234567890.0000000001",
        ),
        "double_": ("REAL", pa.float64(), 0.1 + 0.2, None),
        "text_": ("VARCHAR(60)", pa.string(), HOSTILE, None),
        "bytes_": ("BLOB", pa.binary(), bytes(range(256)), None),
        "flag": ("BOOLEAN", pa.bool_(), True, 1),
        "day": ("DATE", pa.date32(), date(2024, 2, 29), "2024-02-29"),
        "at": ("DATETIME", pa.timestamp("us", "UTC"), MOMENT.replace(tzinfo=UTC), "2024-02-29 23:59:59.123456"),
        "empty": ("TEXT", pa.string(), None, None),
    }
    sqlite.execute(f"CREATE TABLE target ({', '.join(f'{name} {kind}' for name, (kind, _, _, _) in types.items())})")

    deliver(sqlite, pa.table({name: pa.array([value], kind) for name, (_, kind, value, _) in types.items()}))

    expected = tuple(value if shown is None else shown for _, _, value, shown in types.values())
    assert sqlite.execute("SELECT * FROM target") == [expected]


MISFITS: dict[str, tuple[str, pa.DataType, Any, Any, str]] = {
    "too large": ("tinyint", pa.int32(), 1, 300, "not between -128 and 127"),
    "negative": ("int unsigned", pa.int64(), 1, -1, "not between 0 and"),
    "beyond 64 bits": ("bigint", pa.decimal128(20, 0), Decimal(1), Decimal(2**63), "does not fit"),
    "fraction": ("int", pa.decimal128(9, 2), Decimal("1.00"), Decimal("1.50"), "does not fit"),
    "digits": ("decimal(5,2)", pa.string(), "1.23", "1.239", "does not fit"),
    "not a number": ("double", pa.float64(), 1.5, float("nan"), "not a finite number"),
    "long text": ("varchar(3)", pa.string(), "abc", "abcd", "more than 3 characters"),
    "encoding": ("varchar(9) character set latin1", pa.string(), "é", "日本", "Incorrect string value"),
    "long bytes": ("varbinary(2)", pa.binary(), b"ab", b"abc", "more than 2 bytes"),
    "padding": ("binary(2)", pa.binary(), b"ab", b"a", "fewer than 2 bytes"),
    "time of day": ("date", pa.timestamp("us"), datetime(2024, 1, 1), MOMENT, "time of day"),
    "microseconds": ("datetime(3)", pa.timestamp("us"), datetime(2024, 1, 1), MOMENT, "keeps 3 digits"),
    "after 2038": ("timestamp", pa.timestamp("us"), datetime(2024, 1, 1), datetime(2040, 1, 1), "Incorrect datetime"),
    "no time": ("time", pa.string(), "25:00:00", "25 hours", "not hours:minutes:seconds"),
    "long time": ("time", pa.string(), "838:59:59", "839:00:00", "Incorrect time"),
    "two-digit year": ("year", pa.int32(), 1999, 99, "neither 0 nor between"),
    "bits": ("bit(2)", pa.int32(), 3, 4, "not between 0 and 3"),
    "choice": ("enum('a','b')", pa.string(), "a", "1", "none of the column's choices"),
    "letter case of a choice": ("enum('a','b')", pa.string(), "a", "A", "none of the column's choices"),
    "letter case of a set": ("set('a','b')", pa.string(), "a,b", "a,B", "none of the column's choices"),
    "space at the end": ("char(5)", pa.string(), "ab", "ab ", "ends with a space"),
    "document": ("json", pa.string(), "[]", "{", "CONSTRAINT"),
    "null": ("int NOT NULL", pa.int32(), 1, None, "may not be NULL"),
    "null that becomes a number": ("int AUTO_INCREMENT UNIQUE", pa.int32(), None, None, "may not be NULL"),
    "not utf-8": ("text", pa.binary(), b"a", b"\xff", "does not fit"),
    "range": ("int CHECK (v < 5)", pa.int32(), 1, 5, "CONSTRAINT"),
}
"""By name: a column's type, the Arrow type, a value that fits, one that does not, and a part of the message."""


@pytest.mark.parametrize("number", [3, MANY])
@pytest.mark.parametrize("name", MISFITS)
def test_a_value_that_does_not_fit_costs_its_row_only(mariadb: MariaDb, name: str, number: int) -> None:
    column, kind, good, bad, message = MISFITS[name]
    mariadb.execute(f"CREATE TABLE target (n int, v {column})")
    goods = range(1, number + 1) if good is None else [good] * number
    values = [*goods, bad]

    delivery = deliver(mariadb, pa.table({"n": pa.array(range(number + 1)), "v": pa.array(values, kind)}))

    assert delivery.outcome.outcome is AttemptOutcome.DELIVERED, delivery.outcome.error
    assert {at: message in error.message for at, error in delivery.refused.items()} == {number: True}
    assert delivery.refused[number].sqlstate is not None
    assert [n for (n,) in mariadb.execute("SELECT n FROM target ORDER BY n")] == list(range(number))


@pytest.mark.parametrize("number", [2, MANY])
def test_keys_that_the_collation_takes_for_one_are_one(mariadb: MariaDb, number: int) -> None:
    mariadb.execute("CREATE TABLE target (code varchar(9) COLLATE utf8mb4_general_ci PRIMARY KEY, v int)")
    codes = [f"k{at}" for at in range(number)]
    rows = pa.table({"code": [*codes, "K0"], "v": [*range(number), 99]})

    refused = deliver(mariadb, rows).refused

    assert {at: "Duplicate entry" in error.message for at, error in refused.items()} == {number: True}
    assert mariadb.execute("SELECT v FROM target WHERE code = 'k0'") == [(0,)]
    mariadb.execute("DELETE FROM ckpt_sink_receipt")
    delivery = deliver(mariadb, rows, mode="upsert", key=["code"])
    assert (delivery.outcome.outcome, delivery.refused) == (AttemptOutcome.DELIVERED, {})
    assert mariadb.execute("SELECT code, v FROM target WHERE code = 'k0'") == [("k0", 99)]


def test_a_row_that_no_statement_can_hold_is_an_error_that_names_the_setting(mariadb: MariaDb) -> None:
    mariadb.execute("CREATE TABLE target (id int PRIMARY KEY, v longtext)")
    [(before,)] = mariadb.execute("SELECT @@GLOBAL.max_allowed_packet")
    mariadb.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        rows = pa.table({"id": [1, 2], "v": ["a" * 500_000, "'" * 600_000]})
        refused = deliver(mariadb, rows, mode="upsert", key=["id"]).outcome.error
        assert refused is not None
        assert "max_allowed_packet" in refused.message
        assert not refused.is_outage
        delivery = deliver(mariadb, rows.slice(0, 1), mode="upsert", key=["id"])
        assert delivery.outcome.outcome is AttemptOutcome.DELIVERED, delivery.outcome.error
    finally:
        mariadb.execute(f"SET GLOBAL max_allowed_packet = {before}")


def test_zero_in_a_numbered_column_stays_zero(mariadb: MariaDb) -> None:
    mariadb.execute("CREATE TABLE target (id int AUTO_INCREMENT PRIMARY KEY)")

    deliver(mariadb, pa.table({"id": [0, 5]}))

    assert mariadb.execute("SELECT id FROM target") == [(0,), (5,)]


def test_the_server_s_lax_mode_does_not_matter(mariadb: MariaDb) -> None:
    mode = mariadb.execute("SELECT @@GLOBAL.sql_mode")[0][0]
    mariadb.execute("SET GLOBAL sql_mode = ''", "CREATE TABLE target (v varchar(9) character set latin1)")
    try:
        assert list(deliver(mariadb, pa.table({"v": ["a", "日本"]})).refused) == [1]
    finally:
        mariadb.execute(f"SET GLOBAL sql_mode = '{mode}'")


def test_many_bad_rows_are_isolated(database: Database) -> None:
    database.execute("CREATE TABLE target (id bigint CHECK (id % 3 <> 0))")
    ids = list(range(1, 2001))

    delivery = deliver(database, pa.table({"id": ids}))

    assert len(delivery.refused) == 666
    assert [row[0] for row in database.execute("SELECT id FROM target ORDER BY id")] == [n for n in ids if n % 3]


def test_a_backslash_in_any_row_of_a_load_is_escaped(mariadb: MariaDb) -> None:
    mariadb.execute("CREATE TABLE target (n int PRIMARY KEY, v text)")
    numbers = [0, 0, *range(2, 702)]  # the duplicate has the rows sent again, in parts of 512
    texts = [*["plain"] * 701, "a\\b"]  # which LOAD DATA reads without a warning as a backspace, if it is not escaped

    delivery = deliver(mariadb, pa.table({"n": pa.array(numbers), "v": pa.array(texts)}))

    assert list(delivery.refused) == [1]
    expected = [(n, text) for at, (n, text) in enumerate(zip(numbers, texts, strict=True)) if at != 1]
    assert mariadb.execute("SELECT n, v FROM target ORDER BY n") == expected


def test_without_local_infile_rows_are_inserted(mariadb: MariaDb) -> None:
    mariadb.connection = mariadb.server.connection(mariadb.name, extra={"local_infile": False})
    mariadb.execute("CREATE TABLE target (id int)")

    deliver(mariadb, pa.table({"id": list(range(MANY))}))

    assert mariadb.execute("SELECT COUNT(*) FROM target") == [(MANY,)]
