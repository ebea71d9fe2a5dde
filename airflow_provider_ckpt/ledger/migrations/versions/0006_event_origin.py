"""Each event of the audit trail says when the database took it, and from which of its users."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both; PostgreSQL fills them in. SQLite knows no users: there they stay empty, as those of older events."""
    op.add_column("ckpt_event", sa.Column("recorded_at", sa.DateTime(timezone=True)))
    op.add_column("ckpt_event", sa.Column("database_user", sa.Text()))
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE ckpt_event ALTER COLUMN recorded_at SET DEFAULT pg_catalog.clock_timestamp()")
        op.execute("ALTER TABLE ckpt_event ALTER COLUMN database_user SET DEFAULT session_user")


def downgrade() -> None:
    """Take them out again, and what they hold."""
    for name in ("database_user", "recorded_at"):
        op.drop_column("ckpt_event", name)
