"""Add the tasks that plan each pipeline, the time of its last planning, and indexes, for the page in Airflow."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from alembic import op

from airflow_provider_ckpt.core.task_lease_owner import dag_run_of, task_of

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)
_UNDELIVERED = "state IN ('parked', 'parked_again', 'replaying')"
_NOT_DELIVERED = "rejected > 0 OR skipped > 0 OR sent > 0"
_MARKS = (
    "kind IN ('lease_acquired', 'lease_taken_over', 'lease_released', 'lease_broken', 'adopted', 'collected', "
    "'action_refused', 'hold', 'release', 'skip', 'cancel', 'drain', 'stop', 'force_stop', 'resume', 'rewind', "
    "'replay', 'recover', 'replay_dead_letters', 'discard_dead_letters', 'resend_to_sink', 'keep_sink', 'move')"
)


def upgrade() -> None:
    """Create the table ``ckpt_pipeline_task``, the column ``planned_at`` and the indexes.

    The table and the column are filled from the audit log.
    """
    op.add_column("ckpt_pipeline", sa.Column("planned_at", _TIME))
    op.create_table(
        "ckpt_pipeline_task",
        sa.Column("pipeline", sa.String(128), primary_key=True, nullable=False),
        sa.Column("dag_id", sa.String(250), primary_key=True),
        sa.Column("task_id", sa.Text, primary_key=True),
    )
    _create_index("ckpt_dead_letter_undelivered", "ckpt_dead_letter", ["pipeline", "at"], where=_UNDELIVERED)
    _create_index(
        "ckpt_receipt_not_delivered",
        "ckpt_receipt",
        ["pipeline", "generation", "partition", "range_start"],
        where=_NOT_DELIVERED,
    )
    _create_index("ckpt_event_marks", "ckpt_event", ["pipeline", "at"], where=_MARKS)
    op.create_index("ckpt_stored_action_by_pipeline", "ckpt_stored_action", ["pipeline", "id"])
    op.create_index("ckpt_proposal_by_pipeline", "ckpt_proposal", ["pipeline", "created_at"])
    _fill()


def _create_index(name: str, table: str, columns: list[str], *, where: str) -> None:
    op.create_index(name, table, columns, postgresql_where=sa.text(where), sqlite_where=sa.text(where))


def _fill() -> None:
    """Fill in the tasks and the time of the last planning of each pipeline, from events left in the audit log."""
    connection = op.get_bind()
    event = sa.table("ckpt_event", *map(sa.column, ("pipeline", "kind", "actor")), sa.column("at", _TIME))
    pipeline = sa.table("ckpt_pipeline", sa.column("name"), sa.column("planned_at", _TIME))
    newest = sa.select(event.c.pipeline, event.c.actor, sa.func.max(event.c.at, type_=_TIME).label("at"))
    planned = newest.where(event.c.kind == "planned").group_by(event.c.pipeline, event.c.actor)
    known = set(connection.execute(sa.select(pipeline.c.name)).scalars())
    tasks: set[tuple[str, str, str]] = set()
    times: dict[str, datetime] = {}
    for row in connection.execute(planned):
        if row.pipeline in known:
            times[row.pipeline] = max(row.at, times.get(row.pipeline, row.at))
            run, task = dag_run_of(row.actor), task_of(row.actor)
            tasks |= {(row.pipeline, run[0], task[0])} if run and task else set()
    for name, at in times.items():
        connection.execute(pipeline.update().where(pipeline.c.name == name).values(planned_at=at))
    names = ("pipeline", "dag_id", "task_id")
    if tasks:
        rows = [dict(zip(names, row, strict=True)) for row in sorted(tasks)]
        op.bulk_insert(sa.table("ckpt_pipeline_task", *map(sa.column, names)), rows)


def downgrade() -> None:
    """Drop the table ``ckpt_pipeline_task``, the column ``planned_at`` and the indexes of this revision."""
    op.drop_index("ckpt_proposal_by_pipeline", "ckpt_proposal")
    op.drop_index("ckpt_stored_action_by_pipeline", "ckpt_stored_action")
    op.drop_index("ckpt_event_marks", "ckpt_event")
    op.drop_index("ckpt_receipt_not_delivered", "ckpt_receipt")
    op.drop_index("ckpt_dead_letter_undelivered", "ckpt_dead_letter")
    op.drop_table("ckpt_pipeline_task")
    op.drop_column("ckpt_pipeline", "planned_at")
