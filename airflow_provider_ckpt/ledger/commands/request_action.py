"""Commands for users' actions: request an action, try it in a dry run, and apply requested or stored actions.

``apply_or_store.py`` decides whether a requested action is applied or stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime

from airflow_provider_ckpt.core.accepted_sink import AcceptedSink
from airflow_provider_ckpt.core.action import (
    NEED_COLUMNS,
    NEED_NEW_EPOCH,
    NEED_REASON,
    SINK_ACTIONS,
    Action,
    require_reason,
)
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.lease import never_dead
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.replay_content import LostReplays
from airflow_provider_ckpt.ledger.commands import apply_action, reconcile, sink_state, stored_actions
from airflow_provider_ckpt.ledger.commands.apply_or_store import ACTION_TTL, apply_or_store
from airflow_provider_ckpt.ledger.commands.use_proposal import use_proposal
from airflow_provider_ckpt.ledger.queries import status
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.types import ActionResult, Lease, PartitionRecord, StoredAction
from airflow_provider_ckpt.ledger.unit_of_work import UnitOfWork


class ActionCommands(Session):
    """Commands for users' actions; each recorded action has an event with actor and reason in the audit log."""

    def action(
        self,
        pipeline: str,
        action: Action,
        *,
        actor: str,
        reason: str | None = None,
        is_dead: Callable[[str], bool] = never_dead,
        dry_run: bool = False,
        receipts: Iterable[Receipt] = (),
        proposal: str | None = None,
    ) -> ActionResult:
        """Carry out a user's action on a pipeline at once if no run holds the lease; otherwise store it.

        The run that holds the lease applies a stored action, or else the next run. Actions that need the sink's fence
        or receipts (:data:`~airflow_provider_ckpt.core.action.NEED_RECEIPTS_READ`) are always stored; a run applies
        them by :meth:`apply_stored_actions`. An acceptance of changed columns is always stored too, see
        :meth:`.SchemaVersionCommands.settle_acceptances`. Before the action is carried out, actions that were stored
        earlier are applied.

        :param pipeline: name of the pipeline
        :param action: the action
        :param actor: the user who requests the action, such as ``cli:ann@host7``
        :param reason: the user's explanation, which the audit log stores; None if there is none
        :param is_dead: function that returns whether the process of a lease owner has certainly ended
        :param dry_run: whether to only compute the state before and after the action, even if a run holds the lease,
            and to store nothing
        :param receipts: the sink's receipts, with which a dry run reconciles first
        :param proposal: id of the approved proposal that is used up in the same transaction; None if the action needs
            no approval
        :return: the result: whether the action was applied, or its number if it was stored
        :raises ConfigError: if the ledger does not know the pipeline, or actor or a required reason is missing
        :raises LedgerStateError: if the pipeline's state does not allow the action, the proposal is for another one, or
            the action accepts or moves away from a changed sink (except in a dry run); nothing is changed then
        """
        with self._writing() as connection:
            status.require_pipeline(connection, pipeline)
            require_reason(action.kind, actor, reason, required=action.kind in NEED_REASON and not dry_run)
            if dry_run:
                lease, _, _ = lease_store.acquire(connection, pipeline, actor, ACTION_TTL, 0, is_dead, force=True)
                if found := list(receipts):
                    reconcile.reconcile(UnitOfWork(connection, lease, datetime.now(UTC)), found, LostReplays())
                result = apply_action.apply(
                    UnitOfWork(connection, lease, datetime.now(UTC)), action, actor=actor, reason=reason
                )
                connection.rollback()
                return replace(result, applied=False)
            if action.kind in SINK_ACTIONS:
                raise LedgerStateError(
                    f"{action.kind.value.replace('_', ' ')} is not carried out by the ledger alone: it fences the sink "
                    "and reads its receipts first.",
                    pipeline=pipeline,
                    hint=f"Use `airflow ckpt {action.kind.value.replace('_', '-')}`, or the recovery DAG.",
                )
            result = apply_or_store(connection, pipeline, action, actor=actor, reason=reason, is_dead=is_dead)
            if proposal is not None:
                use_proposal(connection, proposal, action, result, pipeline, actor)
            return result

    def act_under_lease(
        self,
        lease: Lease,
        action: Action,
        *,
        actor: str,
        reason: str | None = None,
        proposal: str | None = None,
        accepted: AcceptedSink | None = None,
    ) -> ActionResult:
        """Carry out a user's action under a lease whose holder has fenced the sink and reconciled.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param action: the action to carry out
        :param actor: the user who requests the action, such as ``cli:ann@host7``
        :param reason: the user's explanation, which the audit log stores; None if there is none
        :param proposal: id of the approved proposal that is used up in the same transaction; None if the action needs
            no approval
        :param accepted: for an action on the sink, the lost receipts and rows that later audits do not report; None for
            other actions
        :return: the result, with the state before and after the action
        :raises ConfigError: if the actor, or a reason that the action needs, is missing
        :raises LedgerStateError: if the pipeline's state does not allow the action, or the proposal is for another
            action; nothing is changed then
        """
        require_reason(action.kind, actor, reason, required=action.kind in NEED_REASON)
        with self._command(lease) as work:
            result = apply_action.apply(work, action, actor=actor, reason=reason)
            if accepted is not None:
                sink_state.store_accepted(work, accepted, actor)
            if proposal is not None:
                use_proposal(work.connection, proposal, action, result, lease.pipeline, actor)
            return result

    def apply_stored_actions(
        self, lease: Lease, *, now: datetime, behind_fence: bool = False, compares_columns: bool = True
    ) -> list[ActionResult]:
        """Apply the actions of users that were stored for a run, and return their results.

        :param lease: lease of the pipeline; the command is refused if its epoch or owner is no longer current
        :param now: time of the command
        :param behind_fence: whether the sink has just been fenced and reconciled under this epoch; if not, force stops
            and rewinds stay stored
        :param compares_columns: whether the run compares the source's columns with the schema version. If it does,
            acceptances of changed columns stay stored until the comparison; if not, they are refused
        """
        with self._command(lease, now) as work:
            refused = [] if compares_columns else stored_actions.refuse_acceptances(work)
            skip = NEED_COLUMNS if behind_fence else NEED_COLUMNS | NEED_NEW_EPOCH
            return [*refused, *stored_actions.apply_stored_actions(work, skip=skip)]

    def open_work(self, pipeline: str) -> tuple[dict[str, PartitionRecord], bool]:
        """Return every partition of a pipeline by id, and whether users' actions wait for a run, from one snapshot."""
        with self._reading() as connection:
            waiting = bool(stored_actions.stored_actions(connection, pipeline))
            return {name: item.record for name, item in status.partitions(connection, pipeline).items()}, waiting

    def stored_actions(self, pipeline: str) -> list[StoredAction]:
        """Return the actions of users that are stored and have not been applied yet, oldest first."""
        with self._reading() as connection:
            status.require_pipeline(connection, pipeline)
            return stored_actions.stored_actions(connection, pipeline)
