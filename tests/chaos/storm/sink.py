"""Sink of the storm: durable receipts in a database of their own, which are claimed behind a fence.

The first claim of a key wins. A claim locks the fence's row of its pipeline in shared mode to the end of its
transaction; raising the fence locks this row exclusively. So after :meth:`AbstractSink.fence` has returned, no older
epoch can claim any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import FencedError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, KnownReceipts, Receipt, Verdict
from airflow_provider_ckpt.ledger.store import database as engines
from airflow_provider_ckpt.ledger.store import migrate

_metadata = sa.MetaData()

_fence = sa.Table(
    "storm_fence",
    _metadata,
    sa.Column("pipeline", sa.Text, primary_key=True),
    sa.Column("epoch", sa.BigInteger, nullable=False),
)

_receipt = sa.Table(
    "storm_receipt",
    _metadata,
    sa.Column("pipeline", sa.Text, primary_key=True),
    sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("partition", sa.Text, primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("range_start", "range_end", "epoch", "attempt")),
    *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("read", "delivered", "filtered", "dead_lettered")),
    sa.Column("verdict", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
)


class AbstractSink:
    """One sink; each process opens its own.

    :param url: ``postgresql://…`` or ``sqlite:///path``
    """

    def __init__(self, url: str) -> None:
        migrate.create_file(engines.parse_url(url))
        self._engine = engines.create_engine(engines.parse_url(url))

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()

    def make(self) -> None:
        """Create the tables."""
        _metadata.create_all(self._engine)

    def epoch(self, pipeline: str) -> int:
        """Return the epoch of the fence; 0 if it was never raised."""
        with self._engine.begin() as connection:
            return connection.execute(_epoch_of(pipeline)).scalar_one_or_none() or 0

    def fence(self, pipeline: str, epoch: int) -> None:
        """Raise the fence; waits for claims that are under way.

        :raises FencedError: if a newer epoch has raised it higher
        """
        with self._engine.begin() as connection:
            connection.execute(self._insert(_fence, {"pipeline": pipeline, "epoch": 0}))
            found = connection.execute(_epoch_of(pipeline).with_for_update()).scalar_one()
            if found > epoch:
                raise FencedError(f"the fence is at {found}, above {epoch}", pipeline=pipeline)
            connection.execute(_fence.update().where(_fence.c.pipeline == pipeline).values(epoch=epoch))

    def claim(self, pipeline: str, receipt: Receipt) -> tuple[Receipt, bool]:
        """Claim a verdict, or find the one that was claimed before.

        :returns: the receipt that stands, and whether it was there before
        :raises FencedError: if the receipt's epoch is older than the fence
        """
        with self._engine.begin() as connection:
            found = connection.execute(_epoch_of(pipeline).with_for_update(read=True)).scalar_one_or_none()
            if found is None or found > receipt.epoch:
                raise FencedError(f"the fence is at {found}, above {receipt.epoch}", pipeline=pipeline)
            claim = self._insert(_receipt, _row(pipeline, receipt)).returning(_receipt.c.seq)
            if connection.execute(claim).first() is not None:
                return receipt, False
            key, c = receipt.key, _receipt.c
            here = (c.pipeline == pipeline, c.generation == key.generation, c.partition == key.partition)
            row = connection.execute(sa.select(_receipt).where(*here, c.seq == key.seq)).mappings().one()
            return _from(row), True

    def receipts(self, pipeline: str, known: Mapping[str, KnownReceipts]) -> list[Receipt]:
        """Return the receipts that the ledger does not know; all receipts of a partition for which nothing is given."""
        c = _receipt.c
        news = [
            sa.and_(
                c.partition == name,
                sa.or_(
                    c.generation > stand.generation,
                    sa.and_(c.generation == stand.generation, c.range_end > stand.position),
                ),
            )
            for name, stand in known.items()
        ]
        query = sa.select(_receipt).where(c.pipeline == pipeline, sa.or_(c.partition.not_in(list(known)), *news))
        with self._engine.begin() as connection:
            return [_from(row) for row in connection.execute(query).mappings()]

    def everything(self) -> Iterator[tuple[str, Receipt]]:
        """Every receipt with its pipeline, in order."""
        c = _receipt.c
        query = sa.select(_receipt).order_by(c.pipeline, c.generation, c.partition, c.seq)
        with self._engine.begin() as connection:
            rows = connection.execute(query).mappings().all()
        yield from ((row["pipeline"], _from(row)) for row in rows)

    def _insert(self, table: sa.Table, row: dict[str, Any]) -> sa.Insert:
        if self._engine.dialect.name == "sqlite":
            return sqlite.insert(table).values(row).on_conflict_do_nothing()
        return postgresql.insert(table).values(row).on_conflict_do_nothing()


def _epoch_of(pipeline: str) -> sa.Select[int]:
    return sa.select(_fence.c.epoch).where(_fence.c.pipeline == pipeline)


def _row(pipeline: str, receipt: Receipt) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "generation": receipt.key.generation,
        "partition": receipt.key.partition,
        "seq": receipt.key.seq,
        "range_start": receipt.range.start,
        "range_end": receipt.range.end,
        "epoch": receipt.epoch,
        "attempt": receipt.attempt,
        **receipt.counts.to_json(),
        "verdict": receipt.verdict.value,
        "at": receipt.at.isoformat(),
    }


def _from(row: Any) -> Receipt:
    return Receipt(
        BatchKey(row["generation"], row["partition"], row["seq"]),
        Range(row["range_start"], row["range_end"]),
        Verdict(row["verdict"]),
        row["epoch"],
        row["attempt"],
        Counts(row["read"], row["delivered"], row["filtered"], row["dead_lettered"]),
        datetime.fromisoformat(row["at"]).astimezone(UTC),
    )
