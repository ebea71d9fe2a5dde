"""Apply a user's action at once, or store it for a run if a run holds the lease (semantics, section 4).

An action that needs the sink's fence or receipts, or the source's columns, is always stored.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.action import NEED_COLUMNS, NEED_RECEIPTS_READ, Action, refuse_own_command
from airflow_provider_ckpt.core.errors import LeaseBusyError
from airflow_provider_ckpt.ledger.commands import apply_action, stored_actions
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.types import ActionResult
from airflow_provider_ckpt.ledger.unit_of_work import UnitOfWork

ACTION_TTL = timedelta(seconds=60)
"""TTL of the lease that an action acquires for itself; the action's single transaction releases it at the end."""

_NEED_RUN = NEED_RECEIPTS_READ | NEED_COLUMNS
"""Actions that only a run applies: those that need the sink's fence or receipts, or the source's columns."""


def apply_or_store(
    connection: Connection,
    pipeline: str,
    action: Action,
    *,
    actor: str,
    reason: str | None,
    is_dead: Callable[[str], bool],
) -> ActionResult:
    """Apply an action if no run holds the lease; otherwise store it for that run or the next one.

    An action that needs the sink's fence or receipts, or the source's columns, is always stored. Before an action is
    applied, the actions that were stored earlier and need none of these are applied.

    :param connection: connection to the ledger, in a transaction
    :param pipeline: name of the pipeline
    :param action: the action
    :param actor: the user who requests the action, such as ``cli:ann@host7``
    :param reason: the user's explanation, which the audit log stores; None if there is none
    :param is_dead: function that returns whether the process of a lease owner has certainly ended
    :return: the result: whether the action was applied, or its number if it was stored
    :raises LedgerStateError: if the pipeline's state does not allow the action, or another command of the ledger is
        meant for it, as for deleting a pipeline
    """
    refuse_own_command(action.kind, pipeline)
    lease = None
    if action.kind not in _NEED_RUN:
        try:
            lease, _, _ = lease_store.acquire(connection, pipeline, actor, ACTION_TTL, 0, is_dead, force=False)
        except LeaseBusyError:
            lease = None
    if lease is None:
        number = stored_actions.store_action(connection, pipeline, action, actor, reason, datetime.now(UTC))
        return ActionResult(action, False, number)
    work = UnitOfWork(connection, lease, datetime.now(UTC))
    stored_actions.apply_stored_actions(work, skip=_NEED_RUN, keep_refused=True)
    result = apply_action.apply(work, action, actor=actor, reason=reason)
    lease_store.release(connection, lease)
    return result
