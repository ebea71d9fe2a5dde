"""Receipts beside a target of MariaDB or SQLite: a check reads all that the ledger does not know, and only these."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.sql import database as databases
from airflow_provider_ckpt.connectors.sql.bookkeeping import RECEIPT, Bookkeeping
from airflow_provider_ckpt.connectors.sql.receipts import read_unknown
from airflow_provider_ckpt.connectors.sql.sink import SqlSink
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, KnownReceipts, Receipt, Verdict
from tests.integration.connectors.sql.sql_support import Database, pipeline

if TYPE_CHECKING:
    import sqlalchemy as sa

SIZE = 10
CONTEXT = SinkContext("ledger", "orders", 1)
AT = datetime(2026, 1, 1, tzinfo=UTC)


def receipt(seq: int, generation: int = 1, partition: str = "main") -> Receipt:
    """The receipt of a batch of ten records."""
    positions = Range(seq * SIZE, (seq + 1) * SIZE)
    counts = Counts(SIZE, SIZE, 0, 0)
    return Receipt(BatchKey(generation, partition, seq), positions, Verdict.DELIVERED, 1, 1, counts, AT)


@contextmanager
def stored(database: Database, *receipts: Receipt) -> Iterator[tuple[sa.Connection, Bookkeeping]]:
    """Store receipts beside a new table ``target``."""
    database.execute("CREATE TABLE target (id bigint)")
    with closing(SqlSink(pipeline(), database.connection, CONTEXT)) as sink:
        sink.create_bookkeeping()
    with closing(databases.Database(database.connection, "sink")) as opened:
        with opened.session("storing receipts", writes=True) as connection:
            found = opened.dialect.find_table(connection, None, "target")
            assert found is not None
            bookkeeping = Bookkeeping(opened.dialect, found.schema, CONTEXT)
            connection.execute(bookkeeping.table(RECEIPT).insert(), [bookkeeping.receipt_values(it) for it in receipts])
        with opened.session("reading receipts") as connection:
            yield connection, bookkeeping


def test_a_receipt_is_unknown_by_its_positions_whatever_its_number(database: Database) -> None:
    """A gap that a restored ledger has left is filled by batches of greater numbers and lower positions."""
    beyond, filling = receipt(9), replace(receipt(2), key=BatchKey(1, "main", 10))
    with stored(database, beyond, filling) as (connection, bookkeeping):
        known = {"main": KnownReceipts(1, filling.range.end)}
        assert read_unknown(connection, bookkeeping, known) == [beyond]


def test_all_that_is_unknown_is_read_in_the_order_of_the_keys(database: Database) -> None:
    receipts = [
        *(receipt(seq) for seq in range(1200)),
        receipt(0, 1, "other"),
        receipt(3, 2, "main"),
        receipt(0, 4, "dlq:1:main"),
    ]
    with stored(database, *reversed(receipts)) as (connection, bookkeeping):
        everything = read_unknown(connection, bookkeeping, {})
        assert everything == sorted(receipts, key=lambda it: it.key)

        known = {"main": KnownReceipts(1, 5 * SIZE), "other": KnownReceipts(2, 0)}
        newer = [it for it in everything if it.key.partition != "other" and it.key >= receipt(5).key]
        assert read_unknown(connection, bookkeeping, known) == newer
        assert read_unknown(connection, bookkeeping, {"main": KnownReceipts(9, 0)})[0].key.partition != "main"


@pytest.mark.parametrize("count", [0, 499, 500, 501, 1000])
def test_any_number_of_receipts_is_read_whole(database: Database, count: int) -> None:
    receipts = [receipt(seq) for seq in range(count)] or [receipt(0, 1, "elsewhere")]
    with stored(database, *receipts) as (connection, bookkeeping):
        assert read_unknown(connection, bookkeeping, {}) == receipts
