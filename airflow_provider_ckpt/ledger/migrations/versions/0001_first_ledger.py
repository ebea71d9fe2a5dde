"""Create the ledger: its id, pipelines, leases, partitions, batches, attempts, receipts, files, actions, events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TIME = sa.DateTime(timezone=True)
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _required(name: str, kind: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=False)


def _place(*more: str) -> list[sa.Column[Any]]:
    kinds: dict[str, Any] = {
        "pipeline": sa.String(128),
        "generation": sa.Integer(),
        "partition": sa.Text(),
        "seq": sa.BigInteger(),
    }
    return [sa.Column(name, kinds[name], nullable=False, autoincrement=False) for name in ("pipeline", *more)]


def upgrade() -> None:
    """Create all tables of the first version, and store a new random id of the ledger."""
    ledger = op.create_table(
        "ckpt_ledger", sa.Column("id", sa.String(36), primary_key=True), _required("created_at", _TIME)
    )
    op.create_table(
        "ckpt_pipeline",
        sa.Column("name", sa.String(128), primary_key=True),
        _required("phase", sa.String(16)),
        _required("generation", sa.Integer()),
        sa.Column("document", sa.JSON()),
        _required("created_at", _TIME),
    )
    op.create_table(
        "ckpt_lease",
        *_place(),
        sa.Column("owner", sa.Text()),
        _required("epoch", sa.BigInteger()),
        _required("ttl_ms", sa.BigInteger()),
        _required("expires_at", _TIME),
        sa.PrimaryKeyConstraint("pipeline"),
    )
    op.create_table(
        "ckpt_partition",
        *_place("partition"),
        _required("identity", sa.Text()),
        _required("generation", sa.Integer()),
        _required("base", sa.BigInteger()),
        _required("committed", sa.BigInteger()),
        _required("next_seq", sa.BigInteger()),
        _required("planned_end", sa.BigInteger()),
        sa.Column("bound", sa.BigInteger()),
        _required("state", sa.JSON()),
        sa.PrimaryKeyConstraint("pipeline", "partition"),
    )
    op.create_table(
        "ckpt_generation",
        *_place("generation", "partition"),
        _required("base", sa.BigInteger()),
        sa.Column("committed", sa.BigInteger()),
        _required("started_at", _TIME),
        sa.Column("ended_at", _TIME),
        sa.Column("reason", sa.Text()),
        sa.PrimaryKeyConstraint("pipeline", "generation", "partition"),
    )
    _batches()
    _receipts()
    _trail()
    op.bulk_insert(ledger, [{"id": str(uuid4()), "created_at": datetime.now(UTC)}])


def _batches() -> None:
    op.create_table(
        "ckpt_batch",
        *_place("generation", "partition", "seq"),
        _required("range_start", sa.BigInteger()),
        _required("range_end", sa.BigInteger()),
        _required("state", sa.String(16)),
        sa.Column("records", sa.BigInteger()),
        _required("instruction", sa.String(16)),
        _required("attempts", sa.Integer()),
        _required("failures", sa.Integer()),
        _required("finished", sa.Integer()),
        _required("round", sa.Integer()),
        _required("deaths", sa.Integer()),
        _required("alone", sa.Boolean()),
        sa.Column("not_before", _TIME),
        sa.Column("epoch", sa.BigInteger()),
        _required("cancelled", sa.Boolean()),
        sa.Column("error", sa.JSON()),
        sa.Column("receipt", sa.JSON()),
        sa.PrimaryKeyConstraint("pipeline", "generation", "partition", "seq"),
        sa.CheckConstraint("range_start < range_end", name="ckpt_batch_range"),
    )
    op.create_table(
        "ckpt_attempt",
        *_place("generation", "partition", "seq"),
        sa.Column("attempt", sa.Integer(), nullable=False, autoincrement=False),
        _required("epoch", sa.BigInteger()),
        _required("run", sa.Text()),
        _required("began_at", _TIME),
        sa.Column("ended_at", _TIME),
        sa.Column("outcome", sa.String(16)),
        sa.Column("error_type", sa.String(32)),
        sa.PrimaryKeyConstraint("pipeline", "generation", "partition", "seq", "attempt"),
    )


def _receipts() -> None:
    op.create_table(
        "ckpt_receipt",
        *_place("generation", "partition"),
        sa.Column("range_start", sa.BigInteger(), nullable=False, autoincrement=False),
        *(
            _required(name, sa.BigInteger())
            for name in (
                "range_end",
                "read",
                "delivered",
                "filtered",
                "dead_lettered",
                "batches",
                "rejected",
                "skipped",
                "sent",
            )
        ),
        sa.PrimaryKeyConstraint("pipeline", "generation", "partition", "range_start"),
        sa.CheckConstraint("range_start < range_end", name="ckpt_receipt_range"),
    )
    op.create_table(
        "ckpt_dead_letter",
        *_place("generation", "partition", "seq"),
        _required("error_type", sa.String(32)),
        _required("attempt", sa.Integer()),
        _required("epoch", sa.BigInteger()),
        _required("range_start", sa.BigInteger()),
        _required("range_end", sa.BigInteger()),
        _required("records", sa.BigInteger()),
        _required("state", sa.String(16)),
        _required("at", _TIME),
        sa.PrimaryKeyConstraint("pipeline", "generation", "partition", "seq", "error_type"),
    )
    op.create_table(
        "ckpt_source_file",
        *_place(),
        sa.Column("ordinal", sa.BigInteger(), nullable=False, autoincrement=False),
        _required("path", sa.Text()),
        _required("base", sa.BigInteger()),
        _required("size", sa.BigInteger()),
        _required("etag", sa.Text()),
        _required("found_at", _TIME),
        sa.PrimaryKeyConstraint("pipeline", "ordinal"),
    )


def _trail() -> None:
    op.create_table(
        "ckpt_intent",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        *_place(),
        _required("kind", sa.String(32)),
        _required("argument", sa.JSON()),
        _required("who", sa.Text()),
        sa.Column("why", sa.Text()),
        _required("stored_at", _TIME),
        sa.Column("applied_at", _TIME),
        sa.Column("result", sa.JSON()),
    )
    op.create_table(
        "ckpt_event",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        *_place(),
        _required("at", _TIME),
        _required("kind", sa.String(32)),
        sa.Column("who", sa.Text()),
        sa.Column("epoch", sa.BigInteger()),
        sa.Column("generation", sa.Integer()),
        sa.Column("partition", sa.Text()),
        sa.Column("seq", sa.BigInteger()),
        _required("detail", sa.JSON()),
    )
    op.create_index("ckpt_event_by_pipeline", "ckpt_event", ["pipeline", "id"])


def downgrade() -> None:
    """Drop all tables with all of the ledger's data."""
    for name in (
        "event",
        "intent",
        "source_file",
        "dead_letter",
        "receipt",
        "attempt",
        "batch",
        "generation",
        "partition",
        "lease",
        "pipeline",
        "ledger",
    ):
        op.drop_table(f"ckpt_{name}")
