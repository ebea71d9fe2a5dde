"""Add the failure of each pipeline's newest run, and the time since which its runs have failed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns ``failure`` and ``failed_since``; a failure is known from the next run that fails."""
    op.add_column("ckpt_pipeline", sa.Column("failure", sa.Text))
    op.add_column("ckpt_pipeline", sa.Column("failed_since", sa.DateTime(timezone=True)))


def downgrade() -> None:
    """Drop both columns."""
    op.drop_column("ckpt_pipeline", "failed_since")
    op.drop_column("ckpt_pipeline", "failure")
