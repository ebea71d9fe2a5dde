"""Who may run a pipeline: the lease and its epoch, as pure decisions (semantics, section 4).

Time decides only who may take over, never what is true; the ledger calls these under the lock of the lease row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from airflow_provider_ckpt.core.errors import LeaseBusyError, StaleEpochError


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The lease of one pipeline.

    :param owner: None while nobody holds it
    :param epoch: the newest epoch granted; it only grows
    :param ttl: not renewed for this long, it may be taken over
    """

    owner: str | None
    epoch: int
    ttl: timedelta
    expires_at: datetime


class Why(StrEnum):
    """Why a lease could be taken."""

    FREE = "free"
    OWN = "own"
    EXPIRED = "expired"
    DEAD = "owner is dead"
    FORCED = "forced"


TAKEOVERS = frozenset({Why.EXPIRED, Why.DEAD, Why.FORCED})
"""Reasons that take the lease from somebody else."""


def nobody_is_dead(_owner: str) -> bool:
    """Knows of no owner's death; only time frees a lease."""
    return False


def grant(
    held: LeaseState,
    owner: str,
    *,
    now: datetime,
    ttl: timedelta,
    at_least: int = 0,
    is_dead: Callable[[str], bool] = nobody_is_dead,
    force: bool = False,
) -> tuple[LeaseState, Why]:
    """Give the lease to an owner under a new epoch, if it is free, expired, its own, or a dead owner's.

    :param at_least: the new epoch is greater than this too: the sink's fence
    :param is_dead: knows whether an owner is certainly gone
    :param force: a person takes it from whoever holds it
    :raises LeaseBusyError: if another owner holds it
    """
    why = _why(held, owner, now, is_dead) or (Why.FORCED if force else None)
    if why is None:
        raise LeaseBusyError(
            f"another run holds the lease: {held.owner}, epoch {held.epoch}, until {held.expires_at.isoformat()}.",
            hint="Wait for it to end, or until its lease expires.",
        )
    return LeaseState(owner, max(held.epoch, at_least) + 1, ttl, now + ttl), why


def _why(held: LeaseState, owner: str, now: datetime, is_dead: Callable[[str], bool]) -> Why | None:
    if held.owner is None:
        return Why.FREE
    if held.owner == owner:
        return Why.OWN
    if held.expires_at <= now:
        return Why.EXPIRED
    return Why.DEAD if is_dead(held.owner) else None


def check(held: LeaseState | None, epoch: int, owner: str) -> LeaseState:
    """Make sure that an epoch is the newest, and still its owner's.

    :param held: None where the ledger has no lease of this pipeline
    :raises StaleEpochError: if a newer epoch was granted, another owner has this one, or it was released
    """
    if held is None or held.epoch < epoch:
        known = "none" if held is None else str(held.epoch)
        raise StaleEpochError(
            f"this run holds epoch {epoch}, but the ledger has granted {known} only: it was replaced or restored.",
            hint="Start the run again: it acquires the lease anew and reconciles with the sink.",
        )
    if held.epoch == epoch and held.owner == owner:
        return held
    who = f"epoch {held.epoch} was granted to {held.owner or 'a run that has ended'}"
    if held.epoch == epoch:
        who = f"it was released (epoch {held.epoch})" if held.owner is None else f"that epoch is {held.owner}'s"
    raise StaleEpochError(
        f"this run holds epoch {epoch}, but {who}; nothing of this run is stored any more.",
        hint="Let the newer run go on, or start this one again: it goes on from the checkpoint.",
    )


def renew(held: LeaseState | None, epoch: int, owner: str, *, now: datetime) -> LeaseState:
    """Carry the lease on for another ``ttl``, even past its expiry, as long as nobody took it.

    :raises StaleEpochError: see :func:`check`
    """
    known = check(held, epoch, owner)
    return replace(known, expires_at=now + known.ttl)
