"""A proposal: an action that somebody asks for and somebody approves, under an id that is good for one use.

The ledger keeps it, so that nothing which travels between tasks decides what is done, or in whose name. Its digest
covers exactly what is to be done and who asked for it: what is approved under a digest is what is carried out.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from enum import StrEnum

from airflow_provider_ckpt.core.actions import Act
from airflow_provider_ckpt.core.errors import LedgerStateError

_AGAIN = "Nothing was changed. Ask again: trigger the DAG anew."


class ProposalState(StrEnum):
    """State of a proposal; only an approved one can be carried out."""

    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    CARRIED_OUT = "carried_out"
    REFUSED = "refused"
    VOID = "void"


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed action, with its origin, actor and reason.

    :param id: random, and used once
    :param pipeline: the pipeline's name
    :param act: the action, exactly as it would be carried out
    :param origin: the task that proposed it: DAG, run and task
    :param who: the actor who asks for it
    :param why: the reason
    """

    id: str
    pipeline: str
    act: Act
    origin: str
    who: str
    why: str | None

    @classmethod
    def new(cls, pipeline: str, act: Act, *, origin: str, who: str, why: str | None) -> Proposal:
        """A proposal under a new id.

        :param pipeline: the pipeline's name
        :param act: exactly what would be done
        :param origin: the task that proposes it
        :param who: who asks for it
        :param why: the reason
        """
        return cls(secrets.token_hex(8), pipeline, act, origin, who, why)

    @property
    def digest(self) -> str:
        """SHA-256 of all of it, as hexadecimal digits."""
        content = {
            "id": self.id,
            "pipeline": self.pipeline,
            "act": self.act.to_json(),
            "origin": self.origin,
            "who": self.who,
            "why": self.why,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check(proposal: Proposal, state: ProposalState, *, expected: ProposalState, expired: bool) -> None:
    """Make sure that a proposal is in the state that a step needs.

    :param proposal: the proposal
    :param state: its state
    :param expected: the state that the step needs
    :param expired: whether its time is over
    :raises LedgerStateError: if it is in another state, or its time is over
    """
    if state is expected and not expired:
        return
    told = _TOLD[state] if state is not expected else "was not used in time"
    raise LedgerStateError(
        f"proposal {proposal.id} ({proposal.act.kind.value}, asked for by {proposal.who}) {told}.",
        pipeline=proposal.pipeline,
        hint=_AGAIN,
    )


def nothing_proposed(origin: str) -> LedgerStateError:
    """The error of a step that finds no proposal.

    :param origin: the task that should have proposed something
    """
    return LedgerStateError(
        f"the ledger holds no proposal of {origin}.",
        hint="Nothing was changed. A task that was marked a success by hand proposes nothing: clear it.",
    )


_TOLD = {
    ProposalState.OPEN: "was not approved by any person",
    ProposalState.APPROVED: "is approved already",
    ProposalState.REJECTED: "was rejected",
    ProposalState.CARRIED_OUT: "was carried out already, and an approval is good for one use",
    ProposalState.REFUSED: "was refused, since it no longer fitted",
    ProposalState.VOID: "is void: the preview ran once more after it",
}
