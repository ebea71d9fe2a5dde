"""Bookkeeping tables of the sink, in the same file as the target: fence, receipts, dead letters and documents."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import datetime

from airflow_provider_ckpt.connectors.batch_content import DeadLetter, StoredDeadLetter, split_headers
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ErrorInfo
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt
from airflow_provider_ckpt.core.wave_messages import BatchTask
from ckpt_sqlite.database import table_sql, transaction

_TABLES = """
CREATE TABLE IF NOT EXISTS ckpt_fence (
    ledger TEXT, pipeline TEXT, epoch INTEGER NOT NULL, PRIMARY KEY (ledger, pipeline)
) STRICT;
CREATE TABLE IF NOT EXISTS ckpt_receipt (
    ledger TEXT, pipeline TEXT, partition TEXT, generation INTEGER, seq INTEGER, range_end INTEGER NOT NULL,
    receipt TEXT NOT NULL, PRIMARY KEY (ledger, pipeline, partition, generation, seq)
) STRICT;
CREATE TABLE IF NOT EXISTS ckpt_dead_letter (
    ledger TEXT, pipeline TEXT, partition TEXT, generation INTEGER, seq INTEGER, attempt INTEGER, epoch INTEGER,
    number INTEGER, position INTEGER NOT NULL, key BLOB, value BLOB, error TEXT NOT NULL, headers TEXT NOT NULL,
    at TEXT NOT NULL, PRIMARY KEY (ledger, pipeline, partition, generation, seq, attempt, epoch, number)
) STRICT;
CREATE TABLE IF NOT EXISTS ckpt_document (
    ledger TEXT, pipeline TEXT, kind TEXT, name TEXT, document TEXT NOT NULL,
    PRIMARY KEY (ledger, pipeline, kind, name)
) STRICT;
"""


class Bookkeeping:
    """Fence, receipts, dead letters and documents of a pipeline and ledger.

    :param database: the file that has the target
    :param context: ids of ledger and pipeline, and the epoch of the run
    """

    def __init__(self, database: sqlite3.Connection, context: SinkContext) -> None:
        self._database = database
        self._context = context
        self._owner = [context.ledger, context.pipeline]

    def create(self) -> None:
        """Create the tables that are missing."""
        with transaction(self._database):
            for statement in _TABLES.split(";")[:-1]:
                self._database.execute(statement)

    def exists(self) -> bool:
        """Return whether the tables exist; they are created together."""
        return table_sql(self._database, "ckpt_fence") is not None

    def fences(self) -> dict[str, int]:
        """Return the epochs of the pipeline's fences, by ledger."""
        if not self.exists():
            return {}
        return dict(self._database.execute("SELECT ledger, epoch FROM ckpt_fence WHERE pipeline = ?", self._owner[1:]))

    def epoch(self) -> int:
        """Return the epoch of this ledger's fence; 0 if it was never raised."""
        return self.fences().get(self._context.ledger, 0)

    def raise_fence(self, epoch: int) -> None:
        """Raise the fence, in the caller's transaction."""
        self._database.execute("INSERT OR REPLACE INTO ckpt_fence VALUES (?, ?, ?)", [*self._owner, epoch])

    def receipt(self, key: BatchKey) -> Receipt | None:
        """Return the receipt of a batch; None if it has none."""
        sql = (
            "SELECT receipt FROM ckpt_receipt"
            " WHERE ledger = ? AND pipeline = ? AND partition = ? AND generation = ? AND seq = ?"
        )
        row = self._database.execute(sql, [*self._owner, key.partition, key.generation, key.seq]).fetchone()
        return Receipt.from_json(json.loads(row[0])) if row else None

    def receipts(self, partition: str, known: KnownReceipts | None) -> Iterator[Receipt]:
        """Yield the receipts of a partition that the ledger does not know."""
        sql = (
            "SELECT receipt FROM ckpt_receipt WHERE ledger = ? AND pipeline = ? AND partition = ?"
            " AND (generation, range_end) > (?, ?)"
        )
        for (text,) in self._database.execute(sql, [*self._owner, partition, *(known or (0, 0))]):
            yield Receipt.from_json(json.loads(text))

    def partitions(self) -> list[str]:
        """Return the partitions that have receipts."""
        sql = "SELECT DISTINCT partition FROM ckpt_receipt WHERE ledger = ? AND pipeline = ?"
        return [name for (name,) in self._database.execute(sql, self._owner)]

    def store_receipt(self, receipt: Receipt) -> None:
        """Store a receipt, in the caller's transaction."""
        key, text = receipt.key, json.dumps(receipt.to_json())
        values = [*self._owner, key.partition, key.generation, key.seq, receipt.range.end, text]
        self._database.execute("INSERT INTO ckpt_receipt VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def store_dead_letters(self, task: BatchTask, dead_letters: Sequence[DeadLetter], at: datetime) -> None:
        """Store the dead letters of an attempt, in the caller's transaction."""
        key = task.key
        attempt = [*self._owner, key.partition, key.generation, key.seq, task.attempt, self._context.epoch]
        for number, letter in enumerate(dead_letters):
            error, headers = json.dumps(letter.error.to_json()), json.dumps(letter.header_texts())
            values = [*attempt, number, letter.position, letter.key, letter.value, error, headers, at.isoformat()]
            self._database.execute(f"INSERT INTO ckpt_dead_letter VALUES ({', '.join('?' * len(values))})", values)

    def dead_letters(self, source: AttemptKey) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of an attempt, in a stable order."""
        key = source.key
        sql = (
            "SELECT position, key, value, error, headers, at FROM ckpt_dead_letter WHERE ledger = ? AND pipeline = ?"
            " AND partition = ? AND generation = ? AND seq = ? AND attempt = ? AND epoch = ? ORDER BY number"
        )
        values = [*self._owner, key.partition, key.generation, key.seq, source.attempt, source.epoch]
        for position, record_key, value, error, headers, at in self._database.execute(sql, values):
            info = ErrorInfo.from_json(json.loads(error))
            letter = DeadLetter(position, record_key, value, info, *split_headers(json.loads(headers)))
            yield StoredDeadLetter(source, letter, datetime.fromisoformat(at))

    def store_document(self, kind: str, name: str, document: object) -> None:
        """Store a replay or a list of source files; it replaces one of the same name."""
        values = [*self._owner, kind, name, json.dumps(document)]
        self._database.execute("INSERT OR REPLACE INTO ckpt_document VALUES (?, ?, ?, ?, ?)", values)

    def documents(self, kind: str) -> dict[str, object]:
        """Return the replays or lists of source files, by name."""
        sql = "SELECT name, document FROM ckpt_document WHERE ledger = ? AND pipeline = ? AND kind = ?"
        return {name: json.loads(text) for name, text in self._database.execute(sql, [*self._owner, kind])}
