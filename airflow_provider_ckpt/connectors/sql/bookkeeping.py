"""Define the sink's bookkeeping tables beside its target (fence, receipts, dead letters, replays), and their keys.

The keys of the rows include ledger and pipeline, so several pipelines and ledgers share the tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.sql.dialect import SqlDialect
from airflow_provider_ckpt.connectors.sql.names import DEAD_LETTER
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.receipt import Receipt

if TYPE_CHECKING:
    import sqlalchemy as sa

FENCE, RECEIPT, REPLAY = "ckpt_sink_fence", "ckpt_sink_receipt", "ckpt_sink_replay"

_COUNTS = ("read", "delivered", "filtered", "dead_lettered")
_RECEIPT = (
    "generation", "partition", "seq", "range_start", "range_end", "verdict", "epoch", "attempt", *_COUNTS, "at",
    "bound", "positions",
)  # fmt: skip
_MAX_PARTITION = 500


@dataclass(frozen=True)
class Bookkeeping:
    """The bookkeeping tables of one schema, for one pipeline and ledger.

    :param dialect: the database's dialect
    :param schema: the target's schema
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    dialect: SqlDialect
    schema: str
    context: SinkContext

    @property
    def place(self) -> str:
        """The place where the fence is stored, for messages, such as ``the schema shop``."""
        return f"the schema {self.schema}"

    @cached_property
    def metadata(self) -> sa.MetaData:
        """SQLAlchemy's definition of all bookkeeping tables."""
        import sqlalchemy as sa

        metadata = sa.MetaData(schema=sa.quoted_name(self.schema, quote=True) if self.schema else None)
        self._define(metadata)
        return metadata

    def table(self, name: str) -> sa.Table:
        """Return SQLAlchemy's definition of one of the bookkeeping tables.

        :param name: name of the table, such as ``ckpt_sink_fence``
        """
        return next(table for table in self.metadata.sorted_tables if table.name == name)

    def _define(self, metadata: sa.MetaData) -> None:
        import sqlalchemy as sa
        from sqlalchemy.dialects import mysql

        def text(length: int, *, ascii_only: bool = True) -> Any:
            charset, collation = ("ascii", "ascii_bin") if ascii_only else ("utf8mb4", "utf8mb4_bin")
            return sa.String(length).with_variant(mysql.VARCHAR(length, charset=charset, collation=collation), "mysql")

        def column(name: str, kind: Any, **options: Any) -> sa.Column[Any]:
            return sa.Column(sa.quoted_name(name, quote=True), kind, **{"nullable": False, **options})

        def key(*names: str) -> list[sa.Column[Any]]:
            kinds = {
                "ledger": text(36),
                "pipeline": text(128),
                "generation": sa.Integer(),
                "partition": text(_MAX_PARTITION, ascii_only=False),
                "seq": sa.BigInteger(),
            }
            return [column(name, kinds[name], primary_key=True, autoincrement=False) for name in names]

        long_text = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")
        blob = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql")
        time = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql")
        batch = ("ledger", "pipeline", "generation", "partition", "seq")
        options = dict(self.dialect.table_options())
        number = sa.BigInteger()
        sa.Table(
            sa.quoted_name(FENCE, quote=True), metadata, *key("ledger", "pipeline"), column("epoch", number),
            column("at", time), column("target_snapshot", long_text, nullable=True), **options,
        )  # fmt: skip
        sa.Table(
            sa.quoted_name(RECEIPT, quote=True), metadata, *key(*batch), column("range_start", number),
            column("range_end", number), column("verdict", text(16)), column("epoch", number),
            column("attempt", sa.Integer()), *(column(name, number) for name in _COUNTS), column("at", time),
            column("bound", number, nullable=True), column("positions", long_text, nullable=True),
            column("added", number, nullable=True), **options,
        )  # fmt: skip
        sa.Table(
            sa.quoted_name(DEAD_LETTER, quote=True), metadata, *key(*batch),
            column("attempt", sa.Integer(), primary_key=True, autoincrement=False),
            column("epoch", number, primary_key=True, autoincrement=False),
            column("number", sa.Integer(), primary_key=True, autoincrement=False),
            column("position", number), column("key", blob, nullable=True), column("value", blob, nullable=True),
            column("error_type", text(64)), column("error", long_text),
            column("sqlstate", text(8), nullable=True), column("headers", long_text), column("at", time), **options,
        )  # fmt: skip
        sa.Table(
            sa.quoted_name(REPLAY, quote=True), metadata, *key("ledger", "pipeline", "partition"),
            column("replay", long_text), column("at", time), **options,
        )  # fmt: skip

    def mine(self, table: sa.Table) -> sa.ColumnElement[bool]:
        """Return the SQL condition for the rows of this ledger and pipeline in a bookkeeping table."""
        return (table.c.ledger == self.context.ledger) & (table.c.pipeline == self.context.pipeline)

    def of_batch(self, table: sa.Table, key: BatchKey) -> sa.ColumnElement[bool]:
        """Return the SQL condition for the rows of one batch in a bookkeeping table.

        :param table: the bookkeeping table
        :param key: the batch
        """
        columns = table.c
        return (
            self.mine(table)
            & (columns.generation == key.generation)
            & (columns.partition == key.partition)
            & (columns.seq == key.seq)
        )

    def key_values(self, key: BatchKey) -> dict[str, Any]:
        """Return the values of the columns that identify a batch, by column name.

        :param key: key of the batch
        """
        return {
            "ledger": self.context.ledger,
            "pipeline": self.context.pipeline,
            "generation": key.generation,
            "partition": key.partition,
            "seq": key.seq,
        }

    def lacks(self, connection: sa.Connection) -> bool:
        """Return whether one of the bookkeeping tables does not exist.

        :param connection: an open connection
        """
        import sqlalchemy as sa

        inspector = sa.inspect(connection)
        return not all(
            inspector.has_table(table.name, schema=self.schema or None) for table in self.metadata.sorted_tables
        )

    def receipts(self) -> sa.Select[Any]:
        """Return a query of this pipeline's receipts, whose rows :func:`.to_receipt` converts."""
        import sqlalchemy as sa

        table = self.table(RECEIPT)
        return sa.select(*(table.c[name] for name in _RECEIPT)).where(self.mine(table))

    def receipt_values(self, receipt: Receipt) -> dict[str, Any]:
        """Return the row that stores a receipt, as values by column name."""
        counts = receipt.counts
        return self.key_values(receipt.key) | {
            "range_start": receipt.range.start,
            "range_end": receipt.range.end,
            "verdict": receipt.verdict.value,
            "epoch": receipt.epoch,
            "attempt": receipt.attempt,
            **{name: getattr(counts, name) for name in _COUNTS},
            "at": receipt.at.astimezone(UTC).replace(tzinfo=None),
            "bound": receipt.bound,
            "positions": receipt.positions,
        }


def now() -> datetime:
    """Return the present time in UTC without a zone, as the bookkeeping tables store it."""
    return datetime.now(UTC).replace(tzinfo=None)
