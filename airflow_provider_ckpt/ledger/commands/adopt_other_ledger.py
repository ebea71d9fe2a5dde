"""Adopt the receipts of another ledger, so that a pipeline whose former ledger was lost continues with them."""

from __future__ import annotations

import sqlalchemy as sa

from airflow_provider_ckpt.core.action import Action, ActionKind, require_reason
from airflow_provider_ckpt.ledger.commands import sink_state
from airflow_provider_ckpt.ledger.commands.use_proposal import use_proposal
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import bulk_sql, events, tables
from airflow_provider_ckpt.ledger.types import ActionResult, Lease


class AdoptionCommands(Session):
    """Commands to adopt another ledger's receipts, and to find the ledger id under which the sink stores receipts."""

    def adopt(
        self, lease: Lease, ledger_id: str, *, actor: str, reason: str, proposal: str | None = None
    ) -> ActionResult:
        """Take over another ledger's receipts in the sink, for a pipeline whose former ledger was lost.

        From then on, runs of this ledger read and write the pipeline's receipts in the sink under the other ledger's
        id. The state of the sink that this ledger has stored to detect a changed sink is deleted. The audit log gets an
        event.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param ledger_id: id of the other ledger, under which the sink stores the receipts
        :param actor: the user who requests the action, such as ``cli:ann@host7``
        :param reason: the user's explanation, which the audit log stores
        :param proposal: id of the approved proposal that is used up in the same transaction; None if the action needs
            no approval
        :return: the result, with the ledger ids before and after
        :raises ConfigError: if actor or reason is missing
        :raises LedgerStateError: if the proposal is not approved, was used already, or is for another action
        """
        require_reason("adopt", actor, reason, required=True)
        with self._command(lease, touch=()) as work:
            c = tables.pipeline.c
            of_pipeline = c.name == lease.pipeline
            before = work.connection.execute(sa.select(c.adopted).where(of_pipeline)).scalar_one()
            work.connection.execute(tables.pipeline.update().where(of_pipeline).values(adopted=ledger_id))
            sink_state.clear_state(work.connection, lease.pipeline)
            detail = {"before": before or self.id, "after": ledger_id, "reason": reason}
            action = Action(ActionKind.ADOPT, ledger_id=ledger_id)
            result = ActionResult(
                action,
                applied=True,
                before={"receipts in the sink": f"of ledger {detail['before']}"},
                after={"receipts in the sink": f"of ledger {ledger_id}"},
            )
            if proposal is not None:
                use_proposal(work.connection, proposal, action, result, lease.pipeline, actor)
            row = events.event_row(work.lease, work.now, "adopted", detail) | {"actor": actor}
            bulk_sql.insert(work.connection, tables.event, [row])
            return result

    def sink_id(self, pipeline: str) -> str:
        """Return the ledger id under which the sink stores a pipeline's receipts.

        It is this ledger's own id, or the id of the ledger whose receipts the pipeline has adopted.
        """
        with self._reading() as connection:
            c = tables.pipeline.c
            return connection.execute(sa.select(c.adopted).where(c.name == pipeline)).scalar_one_or_none() or self.id
