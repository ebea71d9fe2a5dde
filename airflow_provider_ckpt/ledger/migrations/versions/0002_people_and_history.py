"""Where a side partition ends, and which ledger's receipts a pipeline has adopted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what side partitions need."""
    with op.batch_alter_table("ckpt_partition") as table:
        table.add_column(sa.Column("side_end", sa.BigInteger()))
    with op.batch_alter_table("ckpt_pipeline") as table:
        table.add_column(sa.Column("adopted", sa.String(36)))


def downgrade() -> None:
    """Take it out again."""
    with op.batch_alter_table("ckpt_partition") as table:
        table.drop_column("side_end")
    with op.batch_alter_table("ckpt_pipeline") as table:
        table.drop_column("adopted")
