"""Lock, check and store the row of a pipeline's lease; ``core/lease.py`` decides who gets the lease.

The database's clock decides whether a lease has expired, so that machines with different clocks agree.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core import lease as core_lease
from airflow_provider_ckpt.core import refuse_stale_epoch
from airflow_provider_ckpt.core.errors import CkptError, StaleEpochError
from airflow_provider_ckpt.core.lease import LeaseGrantReason, LeaseState
from airflow_provider_ckpt.core.phases import Phase
from airflow_provider_ckpt.ledger.store import bulk_sql, tables
from airflow_provider_ckpt.ledger.store.bulk_sql import insert_missing
from airflow_provider_ckpt.ledger.types import Lease, Renewal

_L = tables.lease.c

_HELD = ("pipeline", "epoch", "owner")
"""Columns whose stored values are those of a :class:`Lease` as long as its owner holds the lease."""


def database_time(connection: Connection) -> datetime:
    """Return the current time in UTC: from PostgreSQL's clock, or from this host's clock for SQLite."""
    if connection.dialect.name == "sqlite":
        return datetime.now(UTC)
    moment: datetime = connection.execute(sa.select(sa.func.clock_timestamp())).scalar_one()
    return moment.astimezone(UTC)


def lock_row(connection: Connection, pipeline: str) -> LeaseState | None:
    """Lock the row of a pipeline's lease until the transaction ends, and return it; None if it does not exist."""
    row = connection.execute(
        sa.select(_L.owner, _L.epoch, _L.ttl_ms, _L.expires_at).where(_L.pipeline == pipeline).with_for_update()
    ).one_or_none()
    return None if row is None else LeaseState(row[0], row[1], timedelta(milliseconds=row[2]), row[3])


def check(connection: Connection, pipeline: str, epoch: int, owner: str) -> LeaseState:
    """Lock the row of a pipeline's lease until the transaction ends, and check owner and epoch of the lease.

    A lease that has expired but was not taken over still counts as held.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param epoch: epoch of the lease
    :param owner: owner of the lease
    :return: the lease as it is stored
    :raises StaleEpochError: if the lease has another epoch or another owner, or was released
    """
    with _with_pipeline_name(pipeline):
        return refuse_stale_epoch.check_epoch(lock_row(connection, pipeline), epoch, owner)


def insert_pipelines(connection: Connection, names: Iterable[str]) -> datetime:
    """Insert the pipelines that the ledger does not know yet, and return the database's time.

    :param connection: connection inside a transaction
    :param names: names of the pipelines
    """
    moment = database_time(connection)
    fresh = {"phase": Phase.RUNNING.value, "generation": 1, "document": None, "created_at": moment}
    insert_missing(connection, tables.pipeline, [{"name": name, **fresh} for name in names])
    return moment


def acquire(
    connection: Connection,
    pipeline: str,
    owner: str,
    ttl: timedelta,
    at_least: int,
    is_dead: Callable[[str], bool],
    *,
    force: bool,
) -> tuple[Lease, LeaseState, LeaseGrantReason]:
    """Acquire a pipeline's lease for an owner under a new epoch.

    The lease must be free or expired, or be held by the same owner or by a dead owner, unless ``force`` is set.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline, which is created if it is new
    :param owner: the new owner
    :param ttl: time without renewal after which another owner may take the lease over
    :param at_least: epoch of the sink's fence, which the new epoch must exceed; 0 if it is not known
    :param is_dead: function that returns whether an owner's process has certainly ended
    :param force: whether to take the lease from another owner that is alive
    :return: the lease, its state before, and the reason why it was granted
    :raises LeaseBusyError: if another owner holds the lease
    """
    moment = insert_pipelines(connection, [pipeline])
    fresh = {"pipeline": pipeline, "owner": None, "epoch": 0, "ttl_ms": 0, "expires_at": moment}
    insert_missing(connection, tables.lease, [fresh])
    row = lock_row(connection, pipeline)
    assert row is not None
    with _with_pipeline_name(pipeline):
        granted, reason = core_lease.grant(
            row, owner, now=database_time(connection), ttl=ttl, at_least=at_least, is_dead=is_dead, force=force
        )
    return _store(connection, pipeline, granted), row, reason


def renew(connection: Connection, pipeline: str, epoch: int, owner: str) -> Lease:
    """Extend a lease by its TTL from now, even after its expiry, unless another owner has taken it over.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param epoch: epoch of the lease
    :param owner: owner of the lease
    :return: the lease with its new expiry
    :raises StaleEpochError: if the lease has another epoch or another owner, or was released
    """
    row = lock_row(connection, pipeline)
    with _with_pipeline_name(pipeline):
        return _store(connection, pipeline, core_lease.renew(row, epoch, owner, now=database_time(connection)))


def renew_all(connection: Connection, leases: Collection[Lease]) -> Renewal:
    """Extend each of several leases by its TTL from now, unless it was taken over or released, in one statement.

    A row that another command has locked is left out. Otherwise all leases in the statement would wait for that
    command.

    :param connection: connection inside a transaction
    :param leases: the leases, of any pipelines
    :return: the lost and the locked leases
    """
    given = {"given": bulk_sql.as_json([{name: getattr(lease, name) for name in _HELD} for lease in leases])}
    renewed = {tuple(row) for row in connection.execute(_renewal(connection.dialect.name), given)}
    others = [lease for lease in leases if (lease.pipeline, lease.epoch, lease.owner) not in renewed]
    if not others:
        return Renewal()
    names = {lease.pipeline for lease in others}
    query = sa.select(_L.pipeline, _L.owner, _L.epoch, _L.ttl_ms, _L.expires_at).where(_L.pipeline.in_(names))
    stored = {
        row[0]: LeaseState(row[1], row[2], timedelta(milliseconds=row[3]), row[4]) for row in connection.execute(query)
    }
    lost: dict[Lease, StaleEpochError] = {}
    for lease in others:
        try:
            with _with_pipeline_name(lease.pipeline):
                refuse_stale_epoch.check_epoch(stored.get(lease.pipeline), lease.epoch, lease.owner)
        except StaleEpochError as error:
            lost[lease] = error
    return Renewal(lost, frozenset(others) - lost.keys())


@lru_cache
def _renewal(dialect: str) -> sa.Update:
    """Return the statement of :func:`renew_all`, whose result has the columns :data:`_HELD` of each renewed lease.

    In PostgreSQL it skips locked rows (``SKIP LOCKED``); SQLite has no row locks.

    :param dialect: name of the SQL dialect, ``postgresql`` or ``sqlite``
    """
    given = bulk_sql.given_rows(dialect, tables.lease, _HELD)
    same = sa.and_(*(_L[name] == given.c[name] for name in _HELD))
    found = sa.select(_L.pipeline).select_from(tables.lease.join(given, same))
    free = found.with_for_update(of=tables.lease, skip_locked=True).cte("free")
    if dialect == bulk_sql.SQLITE:  # the text form in which SQLAlchemy stores a time
        seconds = sa.cast(_L.ttl_ms / 1000.0, sa.Text).concat(" seconds")
        expiry: sa.ColumnElement[Any] = sa.func.strftime("%Y-%m-%d %H:%M:%f", "now", seconds).concat("000")
    else:
        expiry = sa.func.clock_timestamp() + _L.ttl_ms * sa.text("interval '1 millisecond'")
    update = tables.lease.update().where(_L.pipeline == free.c.pipeline).values(expires_at=expiry)
    return update.returning(*(_L[name] for name in _HELD))


def release(connection: Connection, lease: Lease) -> bool:
    """Release a lease, so that another run can acquire it.

    :return: False if the lease was already released or taken over; nothing is changed then
    """
    row = lock_row(connection, lease.pipeline)
    if row is None or (row.epoch, row.owner) != (lease.epoch, lease.owner):
        return False
    _store(connection, lease.pipeline, replace(row, owner=None, expires_at=database_time(connection)))
    return True


def _store(connection: Connection, pipeline: str, state: LeaseState) -> Lease:
    connection.execute(
        tables.lease.update()
        .where(_L.pipeline == pipeline)
        .values(
            owner=state.owner,
            epoch=state.epoch,
            ttl_ms=state.ttl // timedelta(milliseconds=1),
            expires_at=state.expires_at,
        )
    )
    return Lease(pipeline, state.owner or "", state.epoch, state.ttl, state.expires_at)


@contextmanager
def _with_pipeline_name(pipeline: str) -> Iterator[None]:
    """Add the pipeline's name to errors that are raised in the ``with`` block without the name of a pipeline.

    The functions of ``core`` raise such errors, because they do not know the name.
    """
    try:
        yield
    except CkptError as error:
        error.pipeline = error.pipeline or pipeline
        raise
