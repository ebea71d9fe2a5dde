"""Add the table of schema versions: the columns of a source partition from a position on."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table ``ckpt_schema_version``."""
    op.create_table(
        "ckpt_schema_version",
        sa.Column("pipeline", sa.String(128), primary_key=True, nullable=False),
        sa.Column("partition", sa.Text, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("generation", sa.Integer, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("columns", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("decision", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("replanned", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
    )


def downgrade() -> None:
    """Drop the table ``ckpt_schema_version``, with all versions of source columns."""
    op.drop_table("ckpt_schema_version")
