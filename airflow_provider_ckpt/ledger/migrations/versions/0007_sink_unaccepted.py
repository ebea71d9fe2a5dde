"""Add the differences of a sink that a user has started to accept, until that is finished or the pipeline moves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; no acceptance is in progress."""
    op.add_column("ckpt_pipeline", sa.Column("sink_unaccepted", sa.JSON()))


def downgrade() -> None:
    """Drop the column, with any acceptance that was started and not finished."""
    op.drop_column("ckpt_pipeline", "sink_unaccepted")
