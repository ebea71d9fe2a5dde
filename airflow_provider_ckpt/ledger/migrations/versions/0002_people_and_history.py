"""Add side partitions, adopted receipts, the low watermark, snapshots of partitions' positions, and running totals."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from alembic import op

from airflow_provider_ckpt.core.errors import LedgerStateError

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)
_TOTALS = ("read", "delivered", "filtered", "dead_lettered", "batches", "rejected", "skipped", "sent")
_PLACE = ("pipeline", "generation", "partition")


def upgrade() -> None:
    """Add the columns and tables of this revision, and fill the columns of existing partitions and generations.

    Their totals are the sums of the stored receipts, and the low watermark of each partition is its checkpoint.
    """
    for name in ("adopted", "collected_to"):
        kind: Any = sa.String(36) if name == "adopted" else sa.BigInteger()
        op.add_column("ckpt_pipeline", sa.Column(name, kind))
    for name in ("side_end", "low", *_TOTALS):
        op.add_column("ckpt_partition", sa.Column(name, sa.BigInteger()))
    for name in ("moved_at", "marked_at"):
        op.add_column("ckpt_partition", sa.Column(name, _TIME))
    for name in ("single_from", *_TOTALS):
        op.add_column("ckpt_generation", sa.Column(name, sa.BigInteger()))
    op.add_column("ckpt_receipt", sa.Column("at", _TIME))
    op.create_table(
        "ckpt_mark",
        sa.Column("pipeline", sa.String(128), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("committed", sa.BigInteger(), nullable=False),
        sa.Column("planned_end", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "partition", "at"),
    )
    _fill()
    with op.batch_alter_table("ckpt_partition") as table:
        for name in ("low", *_TOTALS):
            table.alter_column(name, existing_type=sa.BigInteger(), nullable=False)


def _fill() -> None:
    connection = op.get_bind()
    partition = sa.table("ckpt_partition", *map(sa.column, (*_PLACE, "committed", "low", *_TOTALS)))
    partition.append_column(sa.column("moved_at", _TIME))
    generation = sa.table("ckpt_generation", *map(sa.column, (*_PLACE, "ended_at", *_TOTALS)))
    receipt = sa.table("ckpt_receipt", *map(sa.column, (*_PLACE, *_TOTALS)))
    nothing = dict.fromkeys(_TOTALS, 0)
    connection.execute(partition.update().values(low=partition.c.committed, moved_at=datetime.now(UTC), **nothing))
    connection.execute(generation.update().where(generation.c.ended_at.is_not(None)).values(**nothing))
    places = [receipt.c[name] for name in _PLACE]
    sums = [sa.cast(sa.func.sum(receipt.c[name]), sa.BigInteger).label(name) for name in _TOTALS]
    for row in connection.execute(sa.select(*places, *sums).group_by(*places)).mappings().all():
        totals = {name: row[name] for name in _TOTALS}
        for table, more in ((partition, []), (generation, [generation.c.ended_at.is_not(None)])):
            here = [table.c[name] == row[name] for name in _PLACE]
            connection.execute(table.update().where(*here, *more).values(**totals))


def downgrade() -> None:
    """Drop the columns and tables of this revision.

    Side partitions that have ended are deleted, because the older version does not know side partitions.

    :raises LedgerStateError: if a side partition has not ended, or a pipeline has adopted receipts; the older version
        would treat them wrongly
    """
    _refuse_what_would_be_lost()
    op.execute("DELETE FROM ckpt_partition WHERE side_end IS NOT NULL")
    op.drop_table("ckpt_mark")
    op.drop_column("ckpt_receipt", "at")
    for name in ("single_from", *_TOTALS):
        op.drop_column("ckpt_generation", name)
    for name in ("side_end", "low", "moved_at", "marked_at", *_TOTALS):
        op.drop_column("ckpt_partition", name)
    for name in ("adopted", "collected_to"):
        op.drop_column("ckpt_pipeline", name)


def _refuse_what_would_be_lost() -> None:
    connection = op.get_bind()
    adopted = connection.execute(sa.text("SELECT name FROM ckpt_pipeline WHERE adopted IS NOT NULL")).scalars().first()
    if adopted is not None:
        raise LedgerStateError(
            "the pipeline has adopted another ledger's receipts, which the older version cannot read.",
            pipeline=adopted,
            hint="Stay at this revision: the pipeline cannot run with the older version.",
        )
    side = connection.execute(
        sa.text('SELECT pipeline, "partition" FROM ckpt_partition WHERE side_end IS NOT NULL AND committed < side_end')
    ).first()
    if side is not None:
        raise LedgerStateError(
            f"side partition {side[1]!r} is not done, and the older version would read beyond its end.",
            pipeline=side[0],
            hint="Run the pipeline until `airflow ckpt status` shows that partition as done, then downgrade.",
        )
