"""Query the events of a pipeline that the page marks on a timeline: leases of runs, and actions of users."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.ledger.store import tables

MAX_MARKS = 2000
"""Maximum number of events of leases and actions that are read; older ones are left out."""

_E = tables.event.c
_ENDS = {"lease_released": "released", "lease_taken_over": "taken_over", "lease_acquired": "taken_over"}
_ENDS |= {"lease_broken": "broken"}
_BEGINS = frozenset({"lease_acquired", "lease_taken_over"})


@dataclass(frozen=True, slots=True)
class LeaseSpan:
    """Period in which an owner held the lease of a pipeline under one epoch.

    :param owner: the owner
    :param epoch: the epoch
    :param started_at: when the lease was acquired
    :param ended_at: when the lease ended; None if no event in the period shows the end
    :param end: the way in which the lease ended: ``released``, ``taken_over`` or ``broken``; ``open`` if ``ended_at``
        is None
    """

    owner: str
    epoch: int
    started_at: datetime
    ended_at: datetime | None = None
    end: str = "open"


@dataclass(frozen=True, slots=True)
class UserAction:
    """Event of a user's action.

    :param id: id of the event
    :param at: time of the event
    :param kind: kind of the action
    :param actor: the user; None if the event names none
    :param reason: the user's reason; None if there is none
    """

    id: int
    at: datetime
    kind: str
    actor: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Marks:
    """Leases and users' actions of a pipeline in a period.

    :param leases: the leases that began in the period, oldest first
    :param actions: users' actions, oldest first
    :param left_out: whether the period has more than :data:`MAX_MARKS` events, of which the oldest were left out
    """

    leases: list[LeaseSpan]
    actions: list[UserAction]
    left_out: bool


def marks(connection: Connection, pipeline: str, since: datetime, until: datetime) -> Marks:
    """Return the leases that began, and the actions that users took, in a period.

    :param connection: connection whose transaction reads one snapshot
    :param pipeline: name of the pipeline
    :param since: start of the period
    :param until: end of the period, exclusive
    """
    query = (
        sa.select(_E.id, _E.at, _E.kind, _E.actor, _E.epoch, _E.detail)
        .where(_E.pipeline == pipeline, sa.text(tables.MARKS), _E.at >= since, _E.at < until)
        .order_by(_E.at.desc(), _E.id.desc())
        .limit(MAX_MARKS + 1)
    )
    newest = connection.execute(query).all()
    spans: dict[int, LeaseSpan] = {}
    actions: list[UserAction] = []
    for row in reversed(newest[:MAX_MARKS]):
        if row.kind in _ENDS:
            _record_lease(spans, row)
        else:
            actions.append(UserAction(row.id, row.at, row.kind, row.actor, row.detail.get("reason")))
    return Marks(list(spans.values()), actions, len(newest) > MAX_MARKS)


def _record_lease(spans: dict[int, LeaseSpan], row: sa.Row[Any]) -> None:
    """Update the leases by one event: end the newest open lease, and add a lease if the event is an acquisition.

    A release ends that lease only if both have the same epoch.

    :param spans: leases by epoch, changed in place
    :param row: the event
    """
    open_epochs = [epoch for epoch, span in spans.items() if span.ended_at is None]
    if open_epochs and (row.kind != "lease_released" or row.epoch == open_epochs[-1]):
        spans[open_epochs[-1]] = replace(spans[open_epochs[-1]], ended_at=row.at, end=_ENDS[row.kind])
    if row.kind in _BEGINS:
        spans[row.epoch] = LeaseSpan(row.actor or "", row.epoch, row.at)
