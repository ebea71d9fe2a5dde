"""Decide who gets the lease of a pipeline, under which epoch, and how long the lease is valid (semantics, section 4).

The functions are pure; the ledger calls them while it locks the lease row. Time decides only who may take the lease
over; the epoch decides who may write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from airflow_provider_ckpt.core import epoch as epochs
from airflow_provider_ckpt.core import refuse_stale_epoch
from airflow_provider_ckpt.core.errors import LeaseBusyError


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The lease of one pipeline, as the ledger stores it.

    :param owner: the owner; None while the lease is free
    :param epoch: the newest epoch that was granted; it never decreases
    :param ttl: time without renewal after which another owner may take the lease over
    :param expires_at: time, UTC, from which another owner may take the lease over
    """

    owner: str | None
    epoch: int
    ttl: timedelta
    expires_at: datetime


class LeaseGrantReason(StrEnum):
    """Reason why a lease could be granted.

    - ``free``: no owner held the lease
    - ``own``: the same owner held it
    - ``expired``: its owner had not renewed it in time
    - ``owner is dead``: the process of its owner had ended
    - ``forced``: it was taken from an owner that is alive
    """

    FREE = "free"
    OWN = "own"
    EXPIRED = "expired"
    DEAD = "owner is dead"
    FORCED = "forced"


TAKEOVERS = frozenset({LeaseGrantReason.EXPIRED, LeaseGrantReason.DEAD, LeaseGrantReason.FORCED})
"""Reasons with which a lease passes from one owner to another; the metric ``lease.takeovers`` counts these."""


def never_dead(_owner: str) -> bool:
    """Return False for every owner: no owner is known to be dead.

    This is the default of :func:`grant`'s ``is_dead``, for callers that cannot look up processes.
    """
    return False


def grant(
    lease: LeaseState,
    owner: str,
    *,
    now: datetime,
    ttl: timedelta,
    at_least: int = 0,
    is_dead: Callable[[str], bool] = never_dead,
    force: bool = False,
) -> tuple[LeaseState, LeaseGrantReason]:
    """Grant a pipeline's lease to an owner under a new epoch.

    The lease must be free or expired, or be held by the same owner or by a dead owner, unless ``force`` is set.

    :param lease: the lease so far
    :param owner: the owner that requests the lease
    :param now: the current time, UTC
    :param ttl: how long the lease is valid without a renewal
    :param at_least: epoch of the sink's fence, which the new epoch must exceed; 0 if it is not known
    :param is_dead: function that returns whether an owner's process has certainly ended
    :param force: whether to take the lease from another owner that is alive
    :return: the new lease, and the reason why it could be granted
    :raises LeaseBusyError: if another owner holds the lease
    """
    reason = _grant_reason(lease, owner, now, is_dead) or (LeaseGrantReason.FORCED if force else None)
    if reason is None:
        raise LeaseBusyError(
            f"another run holds the lease: {lease.owner}, epoch {lease.epoch}, until {lease.expires_at.isoformat()}.",
            hint="Wait for it to end, or until its lease expires.",
        )
    return LeaseState(owner, epochs.next_epoch(lease.epoch, at_least), ttl, now + ttl), reason


def _grant_reason(
    lease: LeaseState, owner: str, now: datetime, is_dead: Callable[[str], bool]
) -> LeaseGrantReason | None:
    if lease.owner is None:
        return LeaseGrantReason.FREE
    if lease.owner == owner:
        return LeaseGrantReason.OWN
    if lease.expires_at <= now:
        return LeaseGrantReason.EXPIRED
    return LeaseGrantReason.DEAD if is_dead(lease.owner) else None


def renew(lease: LeaseState | None, epoch: int, owner: str, *, now: datetime) -> LeaseState:
    """Return the lease with its expiry moved to one TTL from now.

    A lease that has expired can still be renewed unless another owner has taken it over.

    :param lease: the lease as the ledger stores it; None if the ledger has no lease of this pipeline
    :param epoch: the owner's epoch
    :param owner: the owner
    :param now: the current time, UTC
    :raises StaleEpochError: if there is no lease, it has another epoch or another owner, or it was released
    """
    known = refuse_stale_epoch.check_epoch(lease, epoch, owner)
    return replace(known, expires_at=now + known.ttl)
