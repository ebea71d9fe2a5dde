"""Add proposals: actions that a user requests and that a user must approve, under an id that is used once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from airflow_provider_ckpt.core.errors import LedgerStateError

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)
_TABLE = "ckpt_proposal"


def upgrade() -> None:
    """Create the table of proposals.

    Proposals that wait for an approval while the ledger is migrated are not in the table and must be requested again.
    """
    op.create_table(
        _TABLE,
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("pipeline", sa.String(128), nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("act", sa.JSON(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("why", sa.Text()),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("created_at", _TIME, nullable=False),
        sa.Column("expires_at", _TIME, nullable=False),
        sa.Column("answered_at", _TIME),
        sa.Column("answered_by", sa.Text()),
        sa.Column("ended_at", _TIME),
        sa.Column("result", sa.JSON()),
    )
    op.create_index("ckpt_proposal_by_origin", _TABLE, ["origin", "created_at"])


def downgrade() -> None:
    """Drop the table of proposals.

    :raises LedgerStateError: if a proposal is approved and not carried out yet, because the older version would ignore
        it
    """
    approved = sa.text(f"SELECT id, pipeline FROM {_TABLE} WHERE state = 'approved'")
    waiting = op.get_bind().execute(approved).first()
    if waiting is not None:
        raise LedgerStateError(
            f"proposal {waiting[0]} was approved, but has not been carried out.",
            pipeline=waiting[1],
            hint="Wait until its DAG run has ended, or clear the run's task `preview`, then downgrade.",
        )
    op.drop_index("ckpt_proposal_by_origin", _TABLE)
    op.drop_table(_TABLE)
