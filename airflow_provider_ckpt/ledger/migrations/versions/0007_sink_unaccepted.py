"""Differences of a sink that a person began to accept, kept until that is done or the pipeline moves on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; no acceptance is under way."""
    op.add_column("ckpt_pipeline", sa.Column("sink_unaccepted", sa.JSON()))


def downgrade() -> None:
    """Take it out again, with any acceptance that was begun and not finished."""
    op.drop_column("ckpt_pipeline", "sink_unaccepted")
