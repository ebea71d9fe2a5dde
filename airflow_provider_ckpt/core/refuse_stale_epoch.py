"""Refuse a command of a run whose epoch is stale: a newer epoch was granted since (semantics, section 4).

Every command by which a run writes to the ledger makes this check while it locks the row of the lease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import StaleEpochError

if TYPE_CHECKING:
    from airflow_provider_ckpt.core.lease import LeaseState


def check_epoch(lease: LeaseState | None, epoch: int, owner: str) -> LeaseState:
    """Return a pipeline's lease, after checking that the given owner still holds the lease under the given epoch.

    A lease that has expired but was not taken over still counts as held.

    :param lease: the lease as the ledger stores it; None if the ledger has no lease of this pipeline
    :param epoch: the owner's epoch
    :param owner: the owner
    :raises StaleEpochError: if there is no lease, it has another epoch or another owner, or it was released
    """
    if lease is None or lease.epoch < epoch:
        known = "none" if lease is None else str(lease.epoch)
        raise StaleEpochError(
            f"this run holds epoch {epoch}, but the newest epoch in the ledger is {known}: the ledger was replaced or "
            "restored.",
            hint="Start the run again: it acquires the lease again and reconciles with the sink.",
        )
    if lease.epoch == epoch and lease.owner == owner:
        return lease
    actor = f"epoch {lease.epoch} was granted to {lease.owner or 'a run that has ended'}"
    if lease.epoch == epoch:
        actor = f"it was released (epoch {lease.epoch})" if lease.owner is None else f"that epoch is {lease.owner}'s"
    raise StaleEpochError(
        f"this run holds epoch {epoch}, but {actor}; nothing of this run is stored any more.",
        hint="Let the newer run continue, or start this one again: it continues from the checkpoint.",
    )
