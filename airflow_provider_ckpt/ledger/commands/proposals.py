"""Store proposals, their answers and their use.

A preview stores a proposal, a user answers it, and the transaction of its action uses it up. One task of a DAG run has
at most one usable proposal; a newer one voids the older ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from airflow_provider_ckpt.core.actions import Action
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.proposals import Proposal, ProposalState, no_proposal_error, require_state
from airflow_provider_ckpt.ledger.session import Session
from airflow_provider_ckpt.ledger.store import bulk_sql, tables
from airflow_provider_ckpt.ledger.store import lease as lease_store
from airflow_provider_ckpt.ledger.types import ActionResult, ProposalRecord

_P = tables.proposal.c
_USABLE = (ProposalState.OPEN.value, ProposalState.APPROVED.value)


class ProposalCommands(Session):
    """Commands for proposals until they are carried out."""

    def propose(self, proposal: Proposal, *, subject: str, body: str, valid_for: timedelta) -> None:
        """Store a proposal and void the older ones of the same task.

        :param proposal: the proposal
        :param subject: headline of the question
        :param body: text of the question
        :param valid_for: time for which it can be approved and carried out
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
        """Void the proposals of a task that have not been carried out.

        :param origin: name of the task that stored the proposal
        """
        with self._writing() as connection:
            _void(connection, origin, lease_store.database_time(connection))

    def load_newest_proposal(self, origin: str) -> ProposalRecord | None:
        """Return the newest proposal of a task, or None if it has made none.

        :param origin: name of the task that stored the proposal
        """
        with self._reading() as connection:
            return _load_newest(connection, origin)

    def proposal_to_answer(self, origin: str) -> ProposalRecord:
        """Return the proposal to ask a user about; an approval that was not used yet is withdrawn.

        :param origin: name of the task that stored the proposal
        :raises LedgerStateError: if there is none that can still be approved
        """
        with self._writing() as connection:
            found = _load_newest(connection, origin)
            if found is None:
                raise no_proposal_error(origin)
            expected = ProposalState.APPROVED if found.state is ProposalState.APPROVED else ProposalState.OPEN
            _check(connection, found, expected)
            _check_digest(found, found.digest)
            _update(connection, found.proposal.id, state=ProposalState.OPEN, answered_by=None, answered_at=None)
            return found

    def answer(self, proposal_id: str, digest: str, *, approved: bool, actor: str | None) -> None:
        """Store a user's answer; repeating the same answer changes nothing.

        :param proposal_id: id that the question showed
        :param digest: digest that the question showed
        :param approved: whether it was approved; else it was rejected, or not answered in time
        :param actor: actor who answered, None if no one did
        :raises LedgerStateError: if it can no longer be answered
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
        """Return the proposal of a task that was approved and not carried out yet.

        :param origin: name of the task that stored the proposal
        :raises LedgerStateError: if there is none
        """
        with self._reading() as connection:
            found = _load_newest(connection, origin)
            if found is None:
                raise no_proposal_error(origin)
            _check(connection, found, ProposalState.APPROVED)
            _check_digest(found, found.digest)
            return found

    def refuse_proposal(self, proposal_id: str, refusal: str) -> None:
        """Mark an approved proposal as refused because the pipeline's state no longer allows its action.

        The proposal is then not carried out if the state allows the action again later.

        :param proposal_id: id of the proposal
        :param refusal: reason for which the proposal is refused
        """
        with self._writing() as connection:
            found = _load_locked(connection, proposal_id)
            if found.state is ProposalState.APPROVED:
                _end(connection, proposal_id, ProposalState.REFUSED, {"refusal": refusal})


def use_up(
    connection: Connection, proposal_id: str, action: Action, result: ActionResult, *, pipeline: str, actor: str
) -> dict[str, Any]:
    """Use an approved proposal up in the transaction of its action.

    :param connection: connection inside a transaction
    :param proposal_id: its id
    :param action: the action that was carried out or stored
    :param result: the action's result
    :param pipeline: pipeline that was changed
    :param actor: actor in whose name it was changed
    :returns: detail for the audit log
    :raises LedgerStateError: if it is not approved, was used already, or is about another action
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
        raise LedgerStateError(f"the ledger holds no proposal {proposal_id}.", hint="Trigger the DAG again.")
    return _record(row)


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
