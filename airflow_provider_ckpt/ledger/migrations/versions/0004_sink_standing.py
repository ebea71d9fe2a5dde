"""Add the state in which the sink was left: fence, target identity, location, and receipts of the newest epoch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; they are empty until the next run has fenced the sink."""
    op.add_column("ckpt_pipeline", sa.Column("sink_epoch", sa.BigInteger()))
    op.add_column("ckpt_pipeline", sa.Column("sink_target", sa.Text()))
    op.add_column("ckpt_pipeline", sa.Column("sink_location", sa.Text()))
    op.add_column("ckpt_partition", sa.Column("receipted", sa.JSON()))


def downgrade() -> None:
    """Drop the columns; the older version does not detect a sink that was restored to an older state."""
    op.drop_column("ckpt_partition", "receipted")
    for name in ("sink_location", "sink_target", "sink_epoch"):
        op.drop_column("ckpt_pipeline", name)
