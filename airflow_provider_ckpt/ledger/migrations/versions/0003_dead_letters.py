"""Extend the dead letter index, so that parts of a batch's dead letters can be replayed or discarded."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from airflow_provider_ckpt.core.errors import LedgerStateError

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_TABLE, _ASIDE = "ckpt_dead_letter", "ckpt_dead_letter_aside"
_TIME = sa.DateTime(timezone=True)
_PLACE = ("pipeline", "generation", "partition", "seq", "error_type")
_KEPT = (*_PLACE, "attempt", "epoch", "range_start", "range_end", "records", "state", "at")


def upgrade() -> None:
    """Allow several entries of the dead letter index per batch and error type.

    Each entry then stands for consecutive dead letters; the new key column ``ordinal`` is the number of the first of
    them. The columns ``replays`` and ``replay`` are added. An existing entry covers all dead letters of its batch and
    error type: it gets the ordinal 0, zero replays, and no side partition of a replay.
    """
    _copy_aside()
    _create(
        [sa.Column("ordinal", sa.BigInteger(), nullable=False)],
        [sa.Column("replays", sa.Integer(), nullable=False), sa.Column("replay", sa.Text())],
        (*_PLACE, "ordinal"),
    )
    names = ", ".join(map(_quoted, _KEPT))
    op.execute(f"INSERT INTO {_TABLE} ({names}, ordinal, replays) SELECT {names}, 0, 0 FROM {_ASIDE}")
    op.drop_table(_ASIDE)


def downgrade() -> None:
    """Go back to one entry of the dead letter index per batch and error type.

    The entries of a batch and error type are summed. The numbers of replays and the names of their side partitions are
    lost.

    :raises LedgerStateError: if a replay or a stored action on dead letters is not finished, or entries that would be
        summed have different states
    """
    _refuse_what_would_be_lost()
    _copy_aside()
    _create([], [], _PLACE)
    names = ", ".join(map(_quoted, _KEPT))
    same = ", ".join(_quoted(name) for name in _KEPT if name != "records")
    values = names.replace('"records"', 'CAST(sum("records") AS bigint)')
    op.execute(f"INSERT INTO {_TABLE} ({names}) SELECT {values} FROM {_ASIDE} GROUP BY {same}")
    op.drop_table(_ASIDE)


def _copy_aside() -> None:
    op.execute(f"CREATE TABLE {_ASIDE} AS SELECT * FROM {_TABLE}")
    op.drop_table(_TABLE)


def _create(key: list[sa.Column[Any]], more: list[sa.Column[Any]], primary: tuple[str, ...]) -> None:
    op.create_table(
        _TABLE,
        sa.Column("pipeline", sa.String(128), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("error_type", sa.String(32), nullable=False),
        *key,
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("range_start", sa.BigInteger(), nullable=False),
        sa.Column("range_end", sa.BigInteger(), nullable=False),
        sa.Column("records", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("at", _TIME, nullable=False),
        *more,
        sa.PrimaryKeyConstraint("pipeline", *primary[1:]),
    )


def _refuse_what_would_be_lost() -> None:
    connection = op.get_bind()
    open_replay = (
        'SELECT pipeline, "partition" FROM ckpt_partition WHERE "partition" LIKE \'dlq:%\' AND committed < side_end'
    )
    going_on = connection.execute(sa.text(open_replay)).first()
    if going_on is not None:
        raise LedgerStateError(
            f"side partition {going_on[1]!r} has dead letters left to replay; the older version would mistake their "
            "numbers for positions of the source.",
            pipeline=going_on[0],
            hint="Run the pipeline until `airflow ckpt status` shows that partition as done, then downgrade.",
        )
    waiting = connection.execute(
        sa.text("SELECT pipeline FROM ckpt_intent WHERE applied_at IS NULL AND kind LIKE '%_letters'")
    ).first()
    if waiting is not None:
        raise LedgerStateError(
            "a stored action on dead letters has not been applied, and the older version does not know such actions.",
            pipeline=waiting[0],
            hint="Run the pipeline once, which applies it, then downgrade.",
        )
    columns = ", ".join(map(_quoted, _PLACE))
    several = f'SELECT pipeline, "partition", seq FROM {_TABLE} GROUP BY {columns} HAVING count(DISTINCT state) > 1'
    parts = connection.execute(sa.text(several)).first()
    if parts is not None:
        raise LedgerStateError(
            f"some dead letters of batch {parts[1]}#{parts[2]} were replayed or discarded, and others were not; the "
            "older version stores one state for all of them.",
            pipeline=parts[0],
            hint="Replay or discard the rest, or stay at this revision.",
        )


def _quoted(name: str) -> str:
    return f'"{name}"'
