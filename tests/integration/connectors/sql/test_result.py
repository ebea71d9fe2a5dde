"""Query results of MariaDB as Arrow columns: values of every length, rows of several packets, errors between rows."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Timer
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from airflow_provider_ckpt.connectors.sql.database import Database
from airflow_provider_ckpt.connectors.sql.mysql_load import fetch_columns
from tests.integration.connectors.sql.sql_support import MariaDb

MIB = 1 << 20


@pytest.fixture
def connection(mariadb: MariaDb) -> Iterator[sa.Connection]:
    """An open connection."""
    database = Database(mariadb.connection, "source")
    yield database.connect()
    database.close()


def fetch(connection: sa.Connection, query: str) -> list[list[Any]]:
    return [column.to_pylist() for column in fetch_columns(connection, sa.text(query))]


def test_values_of_every_length_are_read(connection: sa.Connection) -> None:
    lengths = [0, 1, 250, 251, 252, 255, 256, 65_535, 65_536, 70_000, 5 * MIB, 3]
    rows = (f"SELECT {at} AS number, REPEAT('x', {length}), NULL" for at, length in enumerate(lengths))
    numbers, texts, nothing = fetch(connection, f"{' UNION ALL '.join(rows)} ORDER BY number")
    assert numbers == [str(at).encode() for at in range(len(lengths))]
    assert [len(text) for text in texts] == lengths
    assert {bytes(set(text)) for text in texts} == {b"", b"x"}
    assert nothing == [None] * len(lengths)


def test_a_row_of_several_packets_is_one(connection: sa.Connection) -> None:
    parts = ", ".join(f"REPEAT('{letter}', {9 * MIB} + seq)" for letter in "abcd")
    found = fetch(connection, f"SELECT seq, {parts}, 'last' FROM seq_1_to_2 ORDER BY seq")
    assert found[0] == [b"1", b"2"]
    for letter, column in zip(b"abcd", found[1:5], strict=True):
        assert column == [bytes([letter]) * (9 * MIB + number) for number in (1, 2)]
    assert found[5] == [b"last", b"last"]


def test_a_row_that_fills_packets_to_the_last_byte_is_read(connection: sa.Connection) -> None:
    # Each value has four bytes of its length before it, and the last packet is empty.
    half = 0xFFFFFF // 2 - 4
    first, second = fetch(connection, f"SELECT REPEAT('a', {half}), REPEAT('b', {half + 1})")
    assert (first, second) == ([b"a" * half], [b"b" * (half + 1)])


def test_a_result_without_rows_has_its_columns(connection: sa.Connection) -> None:
    assert fetch(connection, "SELECT seq, 1 FROM seq_1_to_2 WHERE seq > 2") == [[], []]


def test_an_error_between_rows_is_raised_and_the_connection_stays(connection: sa.Connection) -> None:
    one_or_two = "(SELECT seq FROM seq_1_to_2 AS few WHERE few.seq = 1 OR many.seq > 900)"
    query = f"SELECT REPEAT('x', 99), {one_or_two} FROM seq_1_to_1000 AS many"
    with pytest.raises(DBAPIError, match="more than 1 row"):
        fetch(connection, query)
    assert fetch(connection, "SELECT 7") == [[b"7"]]


def test_a_session_that_is_killed_between_rows_is_lost(connection: sa.Connection, mariadb: MariaDb) -> None:
    [[session]] = fetch(connection, "SELECT CONNECTION_ID()")
    killer = Timer(0.3, mariadb.execute, [f"KILL {int(session)}"])
    killer.start()
    with pytest.raises(DBAPIError) as caught:
        fetch(connection, "SELECT REPEAT('x', 999), SLEEP(0.001) FROM seq_1_to_100000")
    killer.join()
    assert caught.value.connection_invalidated


def test_statements_after_it_have_python_values(connection: sa.Connection) -> None:
    fetch(connection, "SELECT 7")
    assert connection.execute(sa.text("SELECT 7, 'a'")).one() == (7, "a")
