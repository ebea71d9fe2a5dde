"""Break a lease: take it from its holder, whose commands are refused from then on, and release it."""

from __future__ import annotations

from airflow_provider_ckpt.core.action import require_reason
from airflow_provider_ckpt.core.lease import assume_alive
from airflow_provider_ckpt.ledger.commands.apply_or_store import ACTION_TTL
from airflow_provider_ckpt.ledger.queries import status
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import bulk_sql, events, tables
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.types import Lease


class LeaseBreakingCommands(Session):
    """Command by which a user breaks a lease."""

    def break_lease(self, pipeline: str, *, actor: str, reason: str) -> Lease:
        """Take the lease from its holder and release it; the holder's commands are refused from then on.

        Attempts that the holder left in flight stay open until the next run, which fences the sink and reconciles.

        :param pipeline: name of the pipeline
        :param actor: the user who requests the action, such as ``cli:ann@host7``
        :param reason: the user's explanation, which the audit log stores
        :returns: the lease with the new epoch, as it was before its release
        :raises ConfigError: if actor or reason is missing, or the ledger does not know the pipeline
        """
        require_reason("break lease", actor, reason, required=True)
        with self._writing() as connection:
            status.require_pipeline(connection, pipeline)
            lease, previous, _ = lease_store.acquire(
                connection, pipeline, actor, ACTION_TTL, 0, assume_alive, force=True
            )
            lease_store.release(connection, lease)
            detail = {"before": {"owner": previous.owner, "epoch": previous.epoch}, "reason": reason}
            moment = lease_store.database_time(connection)
            bulk_sql.insert(connection, tables.event, [events.event_row(lease, moment, "lease_broken", detail)])
        return lease
