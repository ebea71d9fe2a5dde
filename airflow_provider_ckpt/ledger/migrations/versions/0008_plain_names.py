"""Rename tables and columns of the ledger to the words that the documentation uses.

For example, ``ckpt_intent`` becomes ``ckpt_stored_action``, and the columns ``who`` and ``why`` become ``actor`` and
``reason``.
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_TABLES = (("ckpt_intent", "ckpt_stored_action"), ("ckpt_mark", "ckpt_partition_snapshot"))
_COLUMNS = (
    ("ckpt_stored_action", "who", "actor"),
    ("ckpt_stored_action", "why", "reason"),
    ("ckpt_event", "who", "actor"),
    ("ckpt_proposal", "act", "action"),
    ("ckpt_proposal", "who", "actor"),
    ("ckpt_proposal", "why", "reason"),
)


def upgrade() -> None:
    """Rename the tables in ``_TABLES`` and the columns in ``_COLUMNS``; the stored rows do not change."""
    for old, new in _TABLES:
        op.rename_table(old, new)
    for table, old, new in _COLUMNS:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")


def downgrade() -> None:
    """Rename the tables and columns back to their former names."""
    for table, old, new in _COLUMNS:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {new} TO {old}")
    for old, new in _TABLES:
        op.rename_table(new, old)
