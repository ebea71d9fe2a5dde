"""Define the ledger's tables in SQLAlchemy Core; the migrations create them, and a test checks that both agree.

Times are stored in UTC and returned with a time zone. Positions are 64-bit integers. All names begin with ``ckpt_``.
"""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

HEAD = "0012"
"""Schema revision of the ledger that this version of the package requires."""

VERSION_TABLE = "ckpt_alembic_version"
"""Name of Alembic's version table, different from the default so that the database can be shared."""


class UtcTime(sa.TypeDecorator[datetime]):
    """Column type for times with a time zone, which are stored as UTC.

    SQLite does not store the time zone, so it is added when a value is read.
    """

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _: Dialect) -> datetime | None:
        """Convert a time with a time zone to UTC before it is stored; None is stored as NULL.

        :raises ValueError: if the time has no time zone
        """
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time in the ledger must have a time zone")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, _: Dialect) -> datetime | None:
        """Return a stored time with the time zone UTC; None for NULL."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


UNDELIVERED = "state IN ('parked', 'parked_again', 'replaying')"
"""Condition of a partial index on dead letters: those that are neither replayed nor discarded."""

NOT_DELIVERED = "rejected > 0 OR skipped > 0 OR sent > 0"
"""Condition of a partial index on range receipts: those of batches that were rejected, skipped, or sent unconfirmed."""

MARKS = (
    "kind IN ('lease_acquired', 'lease_taken_over', 'lease_released', 'lease_broken', 'adopted', 'collected', "
    "'action_refused', 'hold', 'release', 'skip', 'cancel', 'drain', 'stop', 'force_stop', 'resume', 'rewind', "
    "'replay', 'recover', 'replay_dead_letters', 'discard_dead_letters', 'resend_to_sink', 'keep_sink', 'move')"
)
"""Condition of a partial index on events: those of leases and of users' actions, except acceptances of changed columns.

A query must contain the condition word for word to use the index.
"""

REFRESHES = "kind IN ('refresh_begun', 'publication_held')"
"""Condition of a partial index on events: those of refreshes.

A query must contain the condition word for word to use the index.
"""


def _partial_index(name: str, *columns: str, where: str) -> sa.Index:
    return sa.Index(name, *columns, postgresql_where=sa.text(where), sqlite_where=sa.text(where))


metadata = sa.MetaData()
_json = sa.JSON(none_as_null=True)
_serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _pipeline(primary: bool = True) -> sa.Column[str]:
    return sa.Column("pipeline", sa.String(128), primary_key=primary, nullable=False)


def _batch_key() -> list[sa.Column[object]]:
    return [
        sa.Column("pipeline", sa.String(128), primary_key=True),
        sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("partition", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    ]


TOTALS = ("read", "delivered", "filtered", "dead_lettered", "batches", "rejected", "skipped", "sent")
"""Columns that sum up receipts: four numbers of records by outcome, then four numbers of batches by outcome."""


def _totals(nullable: bool = False) -> list[sa.Column[object]]:
    return [sa.Column(name, sa.BigInteger, nullable=nullable) for name in TOTALS]


ledger = sa.Table(
    "ckpt_ledger",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("created_at", UtcTime, nullable=False),
)

pipeline = sa.Table(
    "ckpt_pipeline",
    metadata,
    sa.Column("name", sa.String(128), primary_key=True),
    sa.Column("phase", sa.String(16), nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("document", _json),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("adopted", sa.String(36)),
    sa.Column("collected_to", sa.BigInteger),
    sa.Column("sink_epoch", sa.BigInteger),
    sa.Column("sink_target", sa.Text),
    sa.Column("sink_location", sa.Text),
    sa.Column("sink_unaccepted", _json),
    sa.Column("planned_at", UtcTime),
    sa.Column("failure", sa.Text),
    sa.Column("failed_since", UtcTime),
)

pipeline_task = sa.Table(
    "ckpt_pipeline_task",
    metadata,
    _pipeline(),
    sa.Column("dag_id", sa.String(250), primary_key=True),
    sa.Column("task_id", sa.Text, primary_key=True),
)

lease = sa.Table(
    "ckpt_lease",
    metadata,
    _pipeline(),
    sa.Column("owner", sa.Text),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("ttl_ms", sa.BigInteger, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False),
)

partition = sa.Table(
    "ckpt_partition",
    metadata,
    _pipeline(),
    sa.Column("partition", sa.Text, primary_key=True),
    sa.Column("identity", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("base", sa.BigInteger, nullable=False),
    sa.Column("committed", sa.BigInteger, nullable=False),
    sa.Column("next_seq", sa.BigInteger, nullable=False),
    sa.Column("planned_end", sa.BigInteger, nullable=False),
    sa.Column("side_end", sa.BigInteger),
    sa.Column("bound", sa.BigInteger),
    sa.Column("state", _json, nullable=False),
    sa.Column("low", sa.BigInteger, nullable=False),
    sa.Column("moved_at", UtcTime),
    sa.Column("marked_at", UtcTime),
    sa.Column("receipted", _json),
    *_totals(),
)

generation = sa.Table(
    "ckpt_generation",
    metadata,
    _pipeline(),
    sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("partition", sa.Text, primary_key=True),
    sa.Column("base", sa.BigInteger, nullable=False),
    sa.Column("committed", sa.BigInteger),
    sa.Column("started_at", UtcTime, nullable=False),
    sa.Column("ended_at", UtcTime),
    sa.Column("reason", sa.Text),
    sa.Column("single_from", sa.BigInteger),
    *_totals(nullable=True),
)

partition_snapshot = sa.Table(
    "ckpt_partition_snapshot",
    metadata,
    _pipeline(),
    sa.Column("partition", sa.Text, primary_key=True),
    sa.Column("at", UtcTime, primary_key=True),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("committed", sa.BigInteger, nullable=False),
    sa.Column("planned_end", sa.BigInteger, nullable=False),
)

batch = sa.Table(
    "ckpt_batch",
    metadata,
    *_batch_key(),
    sa.Column("range_start", sa.BigInteger, nullable=False),
    sa.Column("range_end", sa.BigInteger, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("records", sa.BigInteger),
    sa.Column("instruction", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("finished", sa.Integer, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("deaths", sa.Integer, nullable=False),
    sa.Column("alone", sa.Boolean, nullable=False),
    sa.Column("not_before", UtcTime),
    sa.Column("epoch", sa.BigInteger),
    sa.Column("cancelled", sa.Boolean, nullable=False),
    sa.Column("error", _json),
    sa.Column("receipt", _json),
    sa.CheckConstraint("range_start < range_end", name="ckpt_batch_range"),
)

attempt = sa.Table(
    "ckpt_attempt",
    metadata,
    *_batch_key(),
    sa.Column("attempt", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("run", sa.Text, nullable=False),
    sa.Column("began_at", UtcTime, nullable=False),
    sa.Column("ended_at", UtcTime),
    sa.Column("outcome", sa.String(16)),
    sa.Column("error_type", sa.String(32)),
)

receipt = sa.Table(
    "ckpt_receipt",
    metadata,
    _pipeline(),
    sa.Column("generation", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("partition", sa.Text, primary_key=True),
    sa.Column("range_start", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("range_end", sa.BigInteger, nullable=False),
    *_totals(),
    sa.Column("at", UtcTime),
    sa.CheckConstraint("range_start < range_end", name="ckpt_receipt_range"),
    _partial_index(
        "ckpt_receipt_not_delivered", "pipeline", "generation", "partition", "range_start", where=NOT_DELIVERED
    ),
)

dead_letter = sa.Table(
    "ckpt_dead_letter",
    metadata,
    *_batch_key(),
    sa.Column("error_type", sa.String(32), primary_key=True),
    sa.Column("ordinal", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("range_start", sa.BigInteger, nullable=False),
    sa.Column("range_end", sa.BigInteger, nullable=False),
    sa.Column("records", sa.BigInteger, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("replays", sa.Integer, nullable=False),
    sa.Column("replay", sa.Text),
    _partial_index("ckpt_dead_letter_undelivered", "pipeline", "at", where=UNDELIVERED),
)

source_file = sa.Table(
    "ckpt_source_file",
    metadata,
    _pipeline(),
    sa.Column("ordinal", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("base", sa.BigInteger, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("etag", sa.Text, nullable=False),
    sa.Column("found_at", UtcTime, nullable=False),
)

schema_version = sa.Table(
    "ckpt_schema_version",
    metadata,
    _pipeline(),
    sa.Column("partition", sa.Text, primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("columns", _json, nullable=False),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("decision", _json, nullable=False),
    sa.Column("replanned", _json, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Index("ckpt_schema_version_by_position", "pipeline", "partition", "position", "version"),
)

stored_action = sa.Table(
    "ckpt_stored_action",
    metadata,
    sa.Column("id", _serial, primary_key=True, autoincrement=True),
    _pipeline(primary=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("argument", _json, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("stored_at", UtcTime, nullable=False),
    sa.Column("applied_at", UtcTime),
    sa.Column("result", _json),
    sa.Index("ckpt_stored_action_by_pipeline", "pipeline", "id"),
)

DATABASE_COLUMNS = ("id", "recorded_at", "database_user")
"""Columns of an event that PostgreSQL fills in; the runtime role may not write them."""

event = sa.Table(
    "ckpt_event",
    metadata,
    sa.Column("id", _serial, primary_key=True, autoincrement=True),
    _pipeline(primary=False),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("actor", sa.Text),
    sa.Column("epoch", sa.BigInteger),
    sa.Column("generation", sa.Integer),
    sa.Column("partition", sa.Text),
    sa.Column("seq", sa.BigInteger),
    sa.Column("detail", _json, nullable=False),
    sa.Column("recorded_at", UtcTime),
    sa.Column("database_user", sa.Text),
    sa.Index("ckpt_event_by_pipeline", "pipeline", "id"),
    _partial_index("ckpt_event_marks", "pipeline", "at", where=MARKS),
    _partial_index("ckpt_event_refreshes", "pipeline", "id", where=REFRESHES),
)

proposal = sa.Table(
    "ckpt_proposal",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    _pipeline(primary=False),
    sa.Column("origin", sa.Text, nullable=False),
    sa.Column("action", _json, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("created_at", UtcTime, nullable=False),
    sa.Column("expires_at", UtcTime, nullable=False),
    sa.Column("answered_at", UtcTime),
    sa.Column("answered_by", sa.Text),
    sa.Column("ended_at", UtcTime),
    sa.Column("result", _json),
    sa.Index("ckpt_proposal_by_origin", "origin", "created_at"),
    sa.Index("ckpt_proposal_by_pipeline", "pipeline", "created_at"),
)

for _name, _default in (("recorded_at", "pg_catalog.clock_timestamp()"), ("database_user", "session_user")):
    _fill_in = sa.DDL(f"ALTER TABLE {event.name} ALTER COLUMN {_name} SET DEFAULT {_default}")  # type: ignore[no-untyped-call]
    sa.event.listen(event, "after_create", _fill_in.execute_if(dialect="postgresql"))
