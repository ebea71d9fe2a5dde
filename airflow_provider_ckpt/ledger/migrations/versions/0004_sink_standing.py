"""State in which the sink was left: its fence, the target's identity and place, and the newest epoch's receipts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what is new; nothing is known of any sink until the next run has fenced it."""
    op.add_column("ckpt_pipeline", sa.Column("sink_epoch", sa.BigInteger()))
    op.add_column("ckpt_pipeline", sa.Column("sink_target", sa.Text()))
    op.add_column("ckpt_pipeline", sa.Column("sink_location", sa.Text()))
    op.add_column("ckpt_partition", sa.Column("receipted", sa.JSON()))


def downgrade() -> None:
    """Take it out again; the older version does not look for a sink that went back in time."""
    op.drop_column("ckpt_partition", "receipted")
    for name in ("sink_location", "sink_target", "sink_epoch"):
        op.drop_column("ckpt_pipeline", name)
