"""Add to each event the time at which the database recorded it, and the database user."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns ``recorded_at`` and ``database_user`` to the table of events.

    PostgreSQL fills them in, so a client cannot forge them. In older events and in SQLite they are NULL.
    """
    op.add_column("ckpt_event", sa.Column("recorded_at", sa.DateTime(timezone=True)))
    op.add_column("ckpt_event", sa.Column("database_user", sa.Text()))
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE ckpt_event ALTER COLUMN recorded_at SET DEFAULT pg_catalog.clock_timestamp()")
        op.execute("ALTER TABLE ckpt_event ALTER COLUMN database_user SET DEFAULT session_user")


def downgrade() -> None:
    """Drop the columns with their contents."""
    for name in ("database_user", "recorded_at"):
        op.drop_column("ckpt_event", name)
