"""Define proposals: actions that a user requests, and that a user approves before they are carried out.

Proposals come from recovery DAGs and from the page in Airflow. What is carried out is the proposal that the ledger
stores; neither action nor actor is taken from XCom or from the browser. Each proposal has an id that can be used once.
Its digest covers the action, its actor and its reason, so that an approval is valid for exactly these.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from enum import StrEnum

from airflow_provider_ckpt.core.action import Action
from airflow_provider_ckpt.core.errors import LedgerStateError

_REQUEST_AGAIN = "Nothing was changed. Request it again: trigger the DAG again."


class ProposalState(StrEnum):
    """State of a proposal; only an approved proposal can be carried out.

    - ``open``: waits for an approval
    - ``approved``, ``rejected``: a user has decided
    - ``carried_out``: the action was carried out, and the approval cannot be used again
    - ``refused``: the action was approved, but the pipeline's state no longer allowed it
    - ``void``: the preview task ran again, or the page's user requested an action again, with a new proposal
    """

    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    CARRIED_OUT = "carried_out"
    REFUSED = "refused"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed action, with its origin, actor and reason.

    :param id: random id, used once
    :param pipeline: the pipeline's name
    :param action: the action, exactly as it would be carried out
    :param origin: the Airflow task that proposed it (DAG, run and task), or the page in Airflow and its user
    :param actor: the user who requests it
    :param reason: the user's reason; None if the action needs none
    """

    id: str
    pipeline: str
    action: Action
    origin: str
    actor: str
    reason: str | None

    @classmethod
    def new(cls, pipeline: str, action: Action, *, origin: str, actor: str, reason: str | None) -> Proposal:
        """Create a proposal with a new random id.

        :param pipeline: the pipeline's name
        :param action: the action, exactly as it would be carried out
        :param origin: the Airflow task that proposes it (DAG, run and task), or the page in Airflow and its user
        :param actor: the user who requests it
        :param reason: the user's reason; None if the action needs none
        """
        return cls(secrets.token_hex(8), pipeline, action, origin, actor, reason)

    @property
    def digest(self) -> str:
        """SHA-256 of all fields of the proposal, as hexadecimal digits; an approval is valid for this digest only."""
        content = {
            "id": self.id,
            "pipeline": self.pipeline,
            "action": self.action.to_json(),
            "origin": self.origin,
            "actor": self.actor,
            "reason": self.reason,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def require_state(proposal: Proposal, state: ProposalState, *, expected: ProposalState, expired: bool) -> None:
    """Raise an error if a proposal is not in the state that a step requires, or has expired.

    :param proposal: the proposal
    :param state: the state of the proposal
    :param expected: the state that the step requires
    :param expired: whether the time has passed within which the proposal can be used
    :raises LedgerStateError: if the proposal is in another state, or has expired
    """
    if state is expected and not expired:
        return
    description = _STATE_CLAUSES[state] if state is not expected else "was not used in time"
    raise LedgerStateError(
        f"proposal {proposal.id} ({proposal.action.kind.value}, requested by {proposal.actor}) {description}.",
        pipeline=proposal.pipeline,
        hint=_REQUEST_AGAIN,
    )


def no_proposal_error(origin: str) -> LedgerStateError:
    """Return the error for a task that looks in the ledger for the proposal of an earlier task and finds none.

    :param origin: the Airflow task that should have proposed an action: DAG, run and task
    """
    return LedgerStateError(
        f"the ledger holds no proposal of {origin}.",
        hint="Nothing was changed. If the task `preview` was marked as a success by hand, it stored no proposal: clear "
        "the task.",
    )


_STATE_CLAUSES = {
    ProposalState.OPEN: "was not approved by any user",
    ProposalState.APPROVED: "is approved already",
    ProposalState.REJECTED: "was rejected",
    ProposalState.CARRIED_OUT: "was carried out already, and an approval can be used once",
    ProposalState.REFUSED: "was refused, because the pipeline's state no longer allowed it",
    ProposalState.VOID: "is void: the preview ran again after it",
}
