"""Add columns for the state in which a run left the sink: fence, target, location, and receipts of the newest epoch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; they are NULL until the next run has fenced the sink, so the sink is not compared before."""
    op.add_column("ckpt_pipeline", sa.Column("sink_epoch", sa.BigInteger()))
    op.add_column("ckpt_pipeline", sa.Column("sink_target", sa.Text()))
    op.add_column("ckpt_pipeline", sa.Column("sink_location", sa.Text()))
    op.add_column("ckpt_partition", sa.Column("receipted", sa.JSON()))


def downgrade() -> None:
    """Drop the columns; the older version does not detect a sink that has lost commits."""
    op.drop_column("ckpt_partition", "receipted")
    for name in ("sink_location", "sink_target", "sink_epoch"):
        op.drop_column("ckpt_pipeline", name)
