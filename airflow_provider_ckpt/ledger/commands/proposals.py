"""Commands for proposals: store a proposal, a user's answer to it, and its use.

A proposal is an action that a user requests, and that a user must approve. The preview task of a DAG or the page in
Airflow stores the proposal, a user answers it, and the transaction that carries the action out marks it as used. Each
origin, such as a task of a DAG run, has at most one usable proposal; a newer proposal voids the older ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.action import Action
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.proposals import Proposal, ProposalState, no_proposal_error, require_state
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import bulk_sql, tables
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.types import ActionResult, ProposalRecord

_P = tables.proposal.c
_USABLE = (ProposalState.OPEN.value, ProposalState.APPROVED.value)


class ProposalCommands(Session):
    """Commands for proposals: store, answer, refuse and look them up; ``use_proposal.py`` marks them as carried out."""

    def propose(self, proposal: Proposal, *, subject: str, body: str, valid_for: timedelta) -> None:
        """Store a proposal and void the older ones of the same origin, such as a task of a DAG run.

        :param proposal: the proposal
        :param subject: headline of the question that the approver is asked
        :param body: text of that question
        :param valid_for: time for which the proposal can be approved and carried out
        """
        with self._writing() as connection:
            moment = lease_store.database_time(connection)
            _void(connection, proposal.origin, moment)
            row = {
                "id": proposal.id,
                "pipeline": proposal.pipeline,
                "origin": proposal.origin,
                "action": proposal.action.to_json(),
                "actor": proposal.actor,
                "reason": proposal.reason,
                "digest": proposal.digest,
                "subject": subject,
                "body": body,
                "state": ProposalState.OPEN.value,
                "created_at": moment,
                "expires_at": moment + valid_for,
            }
            bulk_sql.insert(connection, tables.proposal, [row])

    def void_proposals(self, origin: str) -> None:
        """Void the proposals of a task that have not been carried out, so that they can no longer be approved or used.

        :param origin: the Airflow task that stored the proposals: DAG, run and task
        """
        with self._writing() as connection:
            _void(connection, origin, lease_store.database_time(connection))

    def load_newest_proposal(self, origin: str) -> ProposalRecord | None:
        """Return the newest proposal of a task; None if the task has stored none.

        :param origin: the Airflow task that stored the proposal: DAG, run and task
        """
        with self._reading() as connection:
            return _load_newest(connection, origin)

    def proposal_to_answer(self, origin: str) -> ProposalRecord:
        """Return the newest proposal of a task, which a user is to approve or reject.

        If it was approved before and the approval not used yet, the approval is withdrawn.

        :param origin: the Airflow task that stored the proposal: DAG, run and task
        :raises LedgerStateError: if there is no proposal that can still be approved
        """
        with self._writing() as connection:
            newest = _load_newest(connection, origin)
            if newest is None:
                raise no_proposal_error(origin)
            found = _load_locked(connection, newest.proposal.id)  # it may be carried out at this moment
            expected = ProposalState.APPROVED if found.state is ProposalState.APPROVED else ProposalState.OPEN
            _check(connection, found, expected)
            _check_digest(found, found.digest)
            _update(connection, found.proposal.id, state=ProposalState.OPEN, answered_by=None, answered_at=None)
            return found

    def answer(self, proposal_id: str, digest: str, *, approved: bool, actor: str | None) -> None:
        """Store a user's answer to a proposal; repeating the same answer changes nothing.

        :param proposal_id: id of the proposal, which the question to the user contained
        :param digest: digest that the question contained; an approval is refused if the stored proposal has another one
        :param approved: True if the proposal was approved; False if it was rejected, or not answered in time
        :param actor: the user who answered; None if no user did, which counts as a rejection
        :raises LedgerStateError: if there is no such proposal, or the answer is an approval and the proposal can no
            longer be approved; a rejection then changes nothing
        """
        with self._writing() as connection:
            found = _load_locked(connection, proposal_id)
            if approved:
                is_repeated = found.state is ProposalState.APPROVED and found.answered_by == actor
                _check(connection, found, ProposalState.APPROVED if is_repeated else ProposalState.OPEN)
                _check_digest(found, digest)
                if is_repeated:
                    return
            elif found.state is not ProposalState.OPEN:
                return
            state = ProposalState.APPROVED if approved and actor else ProposalState.REJECTED
            _update(
                connection,
                proposal_id,
                state=state,
                answered_by=actor,
                answered_at=lease_store.database_time(connection),
            )

    def load_approved_proposal(self, origin: str) -> ProposalRecord:
        """Return the newest proposal of a task, which must be approved and not carried out yet.

        :param origin: the Airflow task that stored the proposal: DAG, run and task
        :raises LedgerStateError: if there is no such proposal
        """
        with self._reading() as connection:
            found = _load_newest(connection, origin)
            if found is None:
                raise no_proposal_error(origin)
            _check(connection, found, ProposalState.APPROVED)
            _check_digest(found, found.digest)
            return found

    def refuse_proposal(self, proposal_id: str, refusal: str) -> None:
        """Mark an approved proposal as refused, because the pipeline's state no longer allows its action.

        A refused proposal is not carried out, even if the state allows the action again later.

        :param proposal_id: id of the proposal
        :param refusal: explanation of the refusal, which is stored with the proposal
        :raises LedgerStateError: if the ledger has no such proposal
        """
        with self._writing() as connection:
            found = _load_locked(connection, proposal_id)
            if found.state is ProposalState.APPROVED:
                _end(connection, proposal_id, ProposalState.REFUSED, {"refusal": refusal})


def load_own(connection: Connection, proposal_id: str, *, pipeline: str, origin: str, actor: str) -> ProposalRecord:
    """Return an open proposal of a user, and lock its row until the transaction ends.

    :param connection: connection inside a transaction
    :param proposal_id: id of the proposal
    :param pipeline: the pipeline that the proposal must be for
    :param origin: the origin that the proposal must have
    :param actor: the user who must have made the proposal
    :raises LedgerStateError: if there is no such proposal, it is no longer open, or it was altered after it was stored
    """
    found = _load_locked(connection, proposal_id)
    proposal = found.proposal
    if (proposal.pipeline, proposal.origin, proposal.actor) != (pipeline, origin, actor):
        raise _unknown_proposal(proposal_id)
    _check(connection, found, ProposalState.OPEN)
    _check_digest(found, found.digest)
    return found


def approve(connection: Connection, found: ProposalRecord, *, actor: str) -> None:
    """Mark an open proposal as approved.

    :param connection: connection inside a transaction
    :param found: the proposal
    :param actor: the user who approves it
    """
    moment = lease_store.database_time(connection)
    _update(connection, found.proposal.id, state=ProposalState.APPROVED, answered_by=actor, answered_at=moment)


def use_up(
    connection: Connection, proposal_id: str, action: Action, result: ActionResult, *, pipeline: str, actor: str
) -> dict[str, Any]:
    """Mark an approved proposal as carried out, in the transaction of its action, so that it cannot be used again.

    :param connection: connection inside the transaction of the action
    :param proposal_id: id of the proposal
    :param action: the action that was carried out or stored
    :param result: the action's result
    :param pipeline: name of the pipeline that was changed
    :param actor: the user in whose name the pipeline was changed; must be the user who approved the proposal
    :return: detail of the event for the audit log: the proposal, its digest, and the user and task that requested it
    :raises LedgerStateError: if the proposal is not approved, has expired, was used already or altered, or is for
        another action
    """
    found = _load_locked(connection, proposal_id)
    _check(connection, found, ProposalState.APPROVED)
    _check_digest(found, found.digest)
    proposal = found.proposal
    if (proposal.pipeline, proposal.action.to_json(), found.answered_by) != (pipeline, action.to_json(), actor):
        raise LedgerStateError(
            f"proposal {proposal_id} is a {proposal.action.kind.value} of pipeline {proposal.pipeline}, approved by "
            f"{found.answered_by}, and not the action that is about to be carried out.",
            pipeline=pipeline,
        )
    _end(connection, proposal_id, ProposalState.CARRIED_OUT, {"applied": result.applied, "intent": result.intent})
    return {"proposal": proposal.id, "digest": found.digest, "asked_by": proposal.actor, "asked_in": proposal.origin}


def _load_newest(connection: Connection, origin: str) -> ProposalRecord | None:
    query = sa.select(tables.proposal).where(_P.origin == origin).order_by(_P.created_at.desc(), _P.id).limit(1)
    row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _record(row)


def _load_locked(connection: Connection, proposal_id: str) -> ProposalRecord:
    query = sa.select(tables.proposal).where(_P.id == proposal_id).with_for_update()
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        raise _unknown_proposal(proposal_id)
    return _record(row)


def _unknown_proposal(proposal_id: str) -> LedgerStateError:
    return LedgerStateError(f"the ledger holds no proposal {proposal_id}.", hint="Request the action again.")


def _record(row: sa.RowMapping) -> ProposalRecord:
    action = Action.from_json(row["action"])
    return ProposalRecord(
        Proposal(row["id"], row["pipeline"], action, row["origin"], row["actor"], row["reason"]),
        digest=row["digest"],
        subject=row["subject"],
        body=row["body"],
        state=ProposalState(row["state"]),
        expires_at=row["expires_at"],
        answered_by=row["answered_by"],
        result=row["result"],
    )


def _check(connection: Connection, found: ProposalRecord, expected: ProposalState) -> None:
    require_state(
        found.proposal,
        found.state,
        expected=expected,
        expired=lease_store.database_time(connection) >= found.expires_at,
    )


def _check_digest(found: ProposalRecord, digest: str) -> None:
    if not digest == found.digest == found.proposal.digest:
        raise LedgerStateError(
            f"proposal {found.proposal.id} is not what its digest says: it was altered after it was stored.",
            pipeline=found.proposal.pipeline,
            hint="Nothing was changed. Check which users may write to the ledger's table ckpt_proposal.",
        )


def _update(connection: Connection, proposal_id: str, *, state: ProposalState, **values: Any) -> None:
    connection.execute(tables.proposal.update().where(_P.id == proposal_id).values(state=state.value, **values))


def _end(connection: Connection, proposal_id: str, state: ProposalState, result: Mapping[str, Any]) -> None:
    _update(connection, proposal_id, state=state, result=dict(result), ended_at=lease_store.database_time(connection))


def _void(connection: Connection, origin: str, moment: datetime) -> None:
    usable = sa.and_(_P.origin == origin, _P.state.in_(_USABLE))
    connection.execute(tables.proposal.update().where(usable).values(state=ProposalState.VOID.value, ended_at=moment))
