"""Apply an action behind the fence: take the lease, fence the sink, reconcile, apply the action, release the lease.

A rewind, a force stop and a recovery need this (semantics, sections 2 to 4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.replication import process_lease_owner as owners
from airflow_provider_ckpt.replication.run.acquire import acquire

if TYPE_CHECKING:
    from airflow_provider_ckpt.ledger.types import ActionResult
    from airflow_provider_ckpt.replication.setup import PipelineContext


def apply_fenced(
    setup: PipelineContext, action: Action, *, actor: str, reason: str | None, proposal: str | None = None
) -> ActionResult:
    """Apply an action under the lease, after fencing the sink and reconciling with its receipts.

    A force stop takes the lease from the run that holds it; other actions wait for the lease as the pipeline's
    ``lease`` says.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param action: the action
    :param actor: the user who requests the action, such as ``cli:ann@host7``
    :param reason: the user's explanation, which the audit log stores
    :param proposal: id of the approved proposal that the action carries out, which cannot be used again; None if the
        action needs no approval
    :raises LeaseBusyError: if a run still holds the lease after the wait; the action is not stored
    :raises LedgerStateError: if the state of the pipeline or of a batch does not allow the action; nothing was changed
    """
    force = action.kind is ActionKind.FORCE_STOP
    with acquire(setup, force=force) as run:
        result = setup.ledger.act_under_lease(run.lease, action, actor=actor, reason=reason, proposal=proposal)
        setup.ledger.release(run.lease)
    return result


def apply_fenced_or_store(
    setup: PipelineContext, action: Action, *, actor: str, reason: str | None, proposal: str | None = None
) -> ActionResult:
    """Apply an action after fencing the sink; if a run holds the lease, store the action for that run or the next one.

    :param setup: the pipeline with its ledger, connections and lease owner
    :param action: the action
    :param actor: the user who requests the action, such as ``cli:ann@host7``
    :param reason: the user's explanation, which the audit log stores
    :param proposal: id of the approved proposal that the action carries out, which cannot be used again; None if the
        action needs no approval
    :raises LeaseBusyError: if a run acquires the lease in the meantime, and still holds it after the pipeline's wait
    :raises LedgerStateError: if the state of the pipeline or of a batch does not allow the action; nothing was changed
    """
    if owners.is_held(setup.ledger.status(setup.pipeline.name)["lease"]):
        return setup.ledger.action(setup.pipeline.name, action, actor=actor, reason=reason, proposal=proposal)
    return apply_fenced(setup, action, actor=actor, reason=reason, proposal=proposal)
