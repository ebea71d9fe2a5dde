"""Who may run a pipeline: the lease and its epoch. Time decides only who may take over, never what is true.

Expiry is judged by the database's clock, so that two machines with different clocks agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.errors import LeaseBusyError, StaleEpochError
from airflow_provider_ckpt.core.partition import Phase
from airflow_provider_ckpt.ledger import tables
from airflow_provider_ckpt.ledger.bulk import insert_missing
from airflow_provider_ckpt.ledger.records import Lease

_L = tables.lease.c


@dataclass(frozen=True, slots=True)
class Held:
    """The lease row, read under its lock.

    :param owner: None while nobody holds it
    """

    owner: str | None
    epoch: int
    ttl: timedelta
    expires_at: datetime


def nobody_is_dead(_owner: str) -> bool:
    """Knows of no owner's death; only time frees a lease."""
    return False


def now(connection: Connection) -> datetime:
    """The database's clock: PostgreSQL's own, or the host's for SQLite."""
    if connection.dialect.name == "sqlite":
        return datetime.now(UTC)
    moment: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
    return moment.astimezone(UTC)


def lock(connection: Connection, pipeline: str) -> Held | None:
    """Lock the pipeline's lease row to the end of the transaction, and read it."""
    row = connection.execute(
        sa.select(_L.owner, _L.epoch, _L.ttl_ms, _L.expires_at).where(_L.pipeline == pipeline).with_for_update()
    ).one_or_none()
    return None if row is None else Held(row[0], row[1], timedelta(milliseconds=row[2]), row[3])


def check(connection: Connection, pipeline: str, epoch: int, owner: str) -> Held:
    """Lock the lease and make sure that this epoch still holds it.

    :raises StaleEpochError: if a newer epoch was granted, another owner has this one, or it was released
    """
    held = lock(connection, pipeline)
    if held is None or held.epoch < epoch:
        known = "none" if held is None else str(held.epoch)
        raise StaleEpochError(
            f"this run holds epoch {epoch}, but the ledger has granted {known} only: it was replaced or restored.",
            pipeline=pipeline,
            hint="Start the run again: it acquires the lease anew and reconciles with the sink.",
        )
    if held.epoch > epoch or held.owner != owner:
        who = f"epoch {held.epoch} was granted to {held.owner or 'a run that has ended'}"
        if held.epoch == epoch:
            who = f"it was released (epoch {held.epoch})" if held.owner is None else f"that epoch is {held.owner}'s"
        raise StaleEpochError(
            f"this run holds epoch {epoch}, but {who}; nothing of this run is stored any more.",
            pipeline=pipeline,
            hint="Let the newer run go on, or start this one again: it goes on from the checkpoint.",
        )
    return held


def acquire(
    connection: Connection,
    pipeline: str,
    owner: str,
    ttl: timedelta,
    at_least: int,
    is_dead: Callable[[str], bool],
) -> tuple[Lease, dict[str, Any]]:
    """Take the lease if it is free, expired, our own, or a dead owner's, under a new epoch.

    :returns: the lease, and the event's detail: who had it before and why it could be taken
    :raises LeaseBusyError: if another owner holds it
    """
    moment = now(connection)
    insert_missing(
        connection,
        tables.pipeline,
        [{"name": pipeline, "phase": Phase.RUNNING.value, "generation": 1, "document": None, "created_at": moment}],
    )
    fresh = {"pipeline": pipeline, "owner": None, "epoch": 0, "ttl_ms": 0, "expires_at": moment}
    insert_missing(connection, tables.lease, [fresh])
    held = lock(connection, pipeline)
    assert held is not None
    moment = now(connection)
    why = _why_free(held, owner, moment, is_dead)
    if why is None:
        raise LeaseBusyError(
            f"another run holds the lease: {held.owner}, epoch {held.epoch}, until {held.expires_at.isoformat()}.",
            pipeline=pipeline,
            hint="Wait for it to end, or until its lease expires.",
        )
    lease = Lease(pipeline, owner, max(held.epoch, at_least) + 1, ttl, moment + ttl)
    _store(connection, lease)
    return lease, {"before": {"owner": held.owner, "epoch": held.epoch}, "why": why}


def _why_free(held: Held, owner: str, moment: datetime, is_dead: Callable[[str], bool]) -> str | None:
    if held.owner is None:
        return "free"
    if held.owner == owner:
        return "own"
    if held.expires_at <= moment:
        return "expired"
    return "owner is dead" if is_dead(held.owner) else None


def renew(connection: Connection, pipeline: str, epoch: int, owner: str) -> Lease:
    """Carry the lease on for another ``ttl``, even past its expiry, as long as nobody took it.

    :raises StaleEpochError: see :func:`check`
    """
    held = check(connection, pipeline, epoch, owner)
    lease = Lease(pipeline, owner, epoch, held.ttl, now(connection) + held.ttl)
    _store(connection, lease)
    return lease


def release(connection: Connection, lease: Lease) -> bool:
    """Give the lease back; says whether it was ours to give."""
    held = lock(connection, lease.pipeline)
    if held is None or (held.epoch, held.owner) != (lease.epoch, lease.owner):
        return False
    connection.execute(
        tables.lease.update().where(_L.pipeline == lease.pipeline).values(owner=None, expires_at=now(connection))
    )
    return True


def _store(connection: Connection, lease: Lease) -> None:
    connection.execute(
        tables.lease.update()
        .where(_L.pipeline == lease.pipeline)
        .values(
            owner=lease.owner,
            epoch=lease.epoch,
            ttl_ms=lease.ttl // timedelta(milliseconds=1),
            expires_at=lease.expires_at,
        )
    )
