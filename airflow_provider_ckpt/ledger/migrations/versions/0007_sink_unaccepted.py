"""Add a column for the differences of a changed sink that a user has begun to accept.

The column is set until the acceptance is complete or the pipeline moves to another sink.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, which is NULL for all pipelines: no acceptance is in progress."""
    op.add_column("ckpt_pipeline", sa.Column("sink_unaccepted", sa.JSON()))


def downgrade() -> None:
    """Drop the column; an acceptance that was started and not finished is forgotten."""
    op.drop_column("ckpt_pipeline", "sink_unaccepted")
