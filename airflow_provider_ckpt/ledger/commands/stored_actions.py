"""Store users' actions that cannot be applied at once, and apply or refuse them in a run.

A run applies stored actions between its waves; those that need a new epoch, such as a rewind, only when the run starts.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.ledger.commands.apply_action import apply
from airflow_provider_ckpt.ledger.store import bulk_sql, tables
from airflow_provider_ckpt.ledger.store import events as event_store
from airflow_provider_ckpt.ledger.types import ActionResult, StoredAction
from airflow_provider_ckpt.ledger.unit_of_work import UnitOfWork

_I = tables.stored_action.c


def store_action(
    connection: Connection, pipeline: str, action: Action, actor: str, reason: str | None, now: Any
) -> int:
    """Store an action, to be applied by the run that holds the lease or by the next one; return its number.

    :param connection: connection inside a transaction
    :param pipeline: name of the pipeline
    :param action: the action
    :param actor: the user who requests the action, such as ``cli:ann@host7``
    :param reason: the user's explanation, which the audit log stores; None if there is none
    :param now: time of the command
    """
    row = {
        "pipeline": pipeline,
        "kind": action.kind.value,
        "argument": action.to_json(),
        "actor": actor,
        "reason": reason,
        "stored_at": now,
    }
    number: int = connection.execute(tables.stored_action.insert().values(row).returning(_I.id)).scalar_one()
    return number


def stored_actions(connection: Connection, pipeline: str) -> list[StoredAction]:
    """Return the actions of users that are stored and that no run has applied yet, oldest first."""
    rows = connection.execute(
        sa.select(_I.id, _I.argument, _I.actor, _I.reason, _I.stored_at)
        .where(_I.pipeline == pipeline, _I.applied_at.is_(None))
        .order_by(_I.id)
    )
    return [StoredAction(row.id, Action.from_json(row.argument), row.actor, row.reason, row.stored_at) for row in rows]


def apply_stored_actions(work: UnitOfWork, *, skip: Set[ActionKind], keep_refused: bool = False) -> list[ActionResult]:
    """Apply the stored actions of a pipeline, oldest first, and return their results.

    An action that the pipeline's state no longer allows is refused, which is recorded as an event.

    :param work: partitions of the pipeline, loaded under its lease in the command's transaction
    :param skip: kinds of actions that stay stored, because they need a fenced sink, its receipts or the source's
        columns
    :param keep_refused: whether actions that the state does not allow stay stored for the next run instead of being
        refused; a stop, for example, may be allowed once that run has ended the attempts that a crashed run left open
    """
    results = []
    for intent in stored_actions(work.connection, work.lease.pipeline):
        if intent.action.kind in skip:
            continue
        try:
            result = apply(work, intent.action, actor=intent.actor, reason=intent.reason)
        except LedgerStateError as refusal:
            if keep_refused:
                continue
            result = _refuse(work, intent, str(refusal))
        _close(work, intent, result)
        results.append(result)
    return results


def settle_acceptances(
    work: UnitOfWork, *, version: str, source: str, refusal: Callable[[StoredAction], str | None]
) -> list[StoredAction]:
    """Apply or refuse the stored acceptances of changed columns, and return the rest, oldest first.

    An acceptance is applied if the newest schema version has the accepted columns, and refused if neither this version
    nor the source has them, or if ``refusal`` returns a reason. The rest are acceptances of columns that the source has
    and the version does not have yet.

    :param work: the lease and the connection of the command's transaction
    :param version: digest of the columns of the newest version, see :attr:`.SchemaVersion.followed`
    :param source: digest of the columns that the source has now
    :param refusal: function that returns the reason why an acceptance of the source's columns must be refused; None if
        it may be followed
    """
    waiting = []
    for intent in _acceptances(work):
        if intent.action.fingerprint == version:
            _close(work, intent, apply(work, intent.action, actor=intent.actor, reason=intent.reason))
        elif intent.action.fingerprint != source:
            changed = "the source's columns have changed again since they were accepted."
            _close(work, intent, _refuse(work, intent, changed))
        elif refused := refusal(intent):
            _close(work, intent, _refuse(work, intent, refused))
        else:
            waiting.append(intent)
    return waiting


def refuse_acceptances(work: UnitOfWork) -> list[ActionResult]:
    """Refuse the stored acceptances of changed columns, for a run that does not compare the source's columns.

    :param work: the lease and the connection of the command's transaction
    :return: the results of the refused actions
    """
    refusal = "the declaration no longer has the section schema, so its runs do not compare the source's columns."
    results = []
    for intent in _acceptances(work):
        results.append(_refuse(work, intent, refusal))
        _close(work, intent, results[-1])
    return results


def _acceptances(work: UnitOfWork) -> list[StoredAction]:
    """Return the stored acceptances of changed columns, oldest first."""
    found = stored_actions(work.connection, work.lease.pipeline)
    return [intent for intent in found if intent.action.kind is ActionKind.ACCEPT_SCHEMA]


def _refuse(work: UnitOfWork, intent: StoredAction, refusal: str) -> ActionResult:
    """Add the event ``action_refused`` to the audit log, and return the result of the refused action.

    :param work: the lease and the connection of the command's transaction
    :param intent: the stored action
    :param refusal: reason of the refusal
    """
    detail = {"action": intent.action.to_json(), "reason": intent.reason, "refusal": refusal}
    row = event_store.event_row(work.lease, work.now, "action_refused", detail) | {"actor": intent.actor}
    bulk_sql.insert(work.connection, tables.event, [row])
    return ActionResult(intent.action, applied=False, refusal=refusal)


def _close(work: UnitOfWork, intent: StoredAction, result: ActionResult) -> None:
    """Store the result of a stored action that was applied or refused, so that the action is no longer pending.

    :param work: the lease and the connection of the command's transaction
    :param intent: the stored action
    :param result: the result
    """
    work.connection.execute(
        tables.stored_action.update()
        .where(_I.id == intent.id)
        .values(applied_at=work.now, result={"applied": result.applied, "refusal": result.refusal})
    )
