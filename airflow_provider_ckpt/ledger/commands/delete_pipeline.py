"""Delete a pipeline from the ledger; its audit log and its epochs remain (semantics, section 9)."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_ckpt.core.action import Action, ActionKind, require_reason
from airflow_provider_ckpt.core.lease import never_dead
from airflow_provider_ckpt.ledger.commands.apply_or_store import ACTION_TTL
from airflow_provider_ckpt.ledger.commands.break_lease import require_epoch
from airflow_provider_ckpt.ledger.commands.use_proposal import use_proposal
from airflow_provider_ckpt.ledger.queries import status
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import bulk_sql, events, tables
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.types import ActionResult


class PipelineDeletionCommands(Session):
    """Command by which a user deletes a pipeline."""

    def delete_pipeline(
        self,
        pipeline: str,
        *,
        actor: str,
        reason: str,
        is_dead: Callable[[str], bool] = never_dead,
        epoch: int | None = None,
        proposal: str | None = None,
    ) -> None:
        """Delete everything that the ledger stores of a pipeline except its audit log and the row of its lease.

        That row has the newest epoch, and remains so that epochs continue to grow if the name is used again. The sink
        is not changed.

        :param pipeline: name of the pipeline
        :param actor: the user who requests the action, such as ``cli:ann@host7``
        :param reason: the user's explanation, which the audit log stores
        :param is_dead: function that returns whether the process of a lease owner has certainly ended; its lease then
            does not count as held
        :param epoch: newest epoch of the pipeline that the user has seen; None to accept any epoch
        :param proposal: id of the approved proposal that is used up in the same transaction; None if the action needs
            no approval
        :raises LeaseBusyError: while a run holds the lease
        :raises ConfigError: if actor or reason is missing, or the ledger does not know the pipeline
        :raises LedgerStateError: if a run has acquired the lease since that epoch, or the proposal is not approved, was
            used already, or is for another action
        """
        require_reason("delete", actor, reason, required=True)
        with self._writing() as connection:
            status.require_pipeline(connection, pipeline)
            lease, previous, _ = lease_store.acquire(connection, pipeline, actor, ACTION_TTL, 0, is_dead, force=False)
            require_epoch(pipeline, previous, epoch)
            if proposal is not None:
                action = Action(ActionKind.DELETE_PIPELINE, epoch=epoch)
                use_proposal(connection, proposal, action, ActionResult(action, applied=True), pipeline, actor)
            for table in tables.metadata.sorted_tables:
                if "pipeline" in table.c and table not in (tables.event, tables.lease):
                    connection.execute(table.delete().where(table.c.pipeline == pipeline))
            connection.execute(tables.pipeline.delete().where(tables.pipeline.c.name == pipeline))
            lease_store.release(connection, lease)
            moment = lease_store.database_time(connection)
            bulk_sql.insert(
                connection, tables.event, [events.event_row(lease, moment, "forgotten", {"reason": reason})]
            )
