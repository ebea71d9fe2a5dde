"""Add indexes with which the page in Airflow finds schema versions by position, and the events of refreshes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_REFRESHES = "kind IN ('refresh_begun', 'publication_held')"


def upgrade() -> None:
    """Create the indexes."""
    columns = ["pipeline", "partition", "position", "version"]
    op.create_index("ckpt_schema_version_by_position", "ckpt_schema_version", columns)
    where = sa.text(_REFRESHES)
    op.create_index(
        "ckpt_event_refreshes", "ckpt_event", ["pipeline", "id"], postgresql_where=where, sqlite_where=where
    )


def downgrade() -> None:
    """Drop the indexes."""
    op.drop_index("ckpt_event_refreshes", "ckpt_event")
    op.drop_index("ckpt_schema_version_by_position", "ckpt_schema_version")
