"""Break a lease: take the lease from its holder, whose commands are refused from then on, and release it."""

from __future__ import annotations

from airflow_provider_ckpt.core.action import Action, ActionKind, require_reason
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.lease import LeaseState, never_dead
from airflow_provider_ckpt.ledger.commands.apply_or_store import ACTION_TTL
from airflow_provider_ckpt.ledger.commands.use_proposal import use_proposal
from airflow_provider_ckpt.ledger.queries import status
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import bulk_sql, events, tables
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.types import ActionResult, Lease


class LeaseBreakingCommands(Session):
    """Command by which a user breaks the lease of a pipeline."""

    def break_lease(
        self, pipeline: str, *, actor: str, reason: str, epoch: int | None = None, proposal: str | None = None
    ) -> Lease:
        """Take the lease from its holder and release it; the holder's commands are refused from then on.

        Attempts that the holder left in flight stay open until the next run, which fences the sink and reconciles.

        :param pipeline: name of the pipeline
        :param actor: the user who requests the action, such as ``cli:ann@host7``
        :param reason: the user's explanation, which the audit log stores
        :param epoch: epoch of the lease that the user has seen and wants to break; None to break the lease under any
            epoch
        :param proposal: id of the approved proposal that is used up in the same transaction; None if the action needs
            no approval
        :return: the lease under the new epoch, which has been released already
        :raises ConfigError: if actor or reason is missing, or the ledger does not know the pipeline
        :raises LedgerStateError: if no run holds the lease, it has another epoch, or the proposal is not approved, was
            used already, or is for another action
        """
        require_reason("break lease", actor, reason, required=True)
        with self._writing() as connection:
            status.require_pipeline(connection, pipeline)
            lease, previous, _ = lease_store.acquire(connection, pipeline, actor, ACTION_TTL, 0, never_dead, force=True)
            require_epoch(pipeline, previous, epoch)
            if previous.owner is None:
                raise LedgerStateError("nobody holds the lease.", pipeline=pipeline)
            lease_store.release(connection, lease)
            if proposal is not None:
                action = Action(ActionKind.BREAK_LEASE, epoch=epoch)
                use_proposal(connection, proposal, action, ActionResult(action, applied=True), pipeline, actor)
            detail = {"before": {"owner": previous.owner, "epoch": previous.epoch}, "reason": reason}
            moment = lease_store.database_time(connection)
            bulk_sql.insert(connection, tables.event, [events.event_row(lease, moment, "lease_broken", detail)])
        return lease


def require_epoch(pipeline: str, found: LeaseState, epoch: int | None) -> None:
    """Raise an error if a lease no longer has the epoch that a user has seen.

    :param pipeline: name of the pipeline
    :param found: the lease, locked
    :param epoch: the epoch that the user has seen; None to accept any epoch
    :raises LedgerStateError: if the epochs differ
    """
    if epoch is not None and found.epoch != epoch:
        raise LedgerStateError(
            f"the lease has been acquired since: its epoch is {found.epoch}, and was {epoch}.",
            pipeline=pipeline,
            hint="Nothing was changed. Look again at who holds the lease.",
        )
