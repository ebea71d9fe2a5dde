"""A proposal that two processes use at the same moment is carried out once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.proposals import Proposal
from airflow_provider_ckpt.ledger.commands import proposals
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.types import ActionResult


def test_a_question_asked_while_its_action_is_carried_out_does_not_open_the_proposal_again(ledger_url: str) -> None:
    action = Action(ActionKind.DRAIN)
    proposal = Proposal.new("orders", action, origin="care/one/preview", actor="airflow:ada", reason="why not")
    with Ledger.open(ledger_url) as dying_try, Ledger.open(ledger_url) as cleared_task, ThreadPoolExecutor(1) as pool:
        dying_try.propose(proposal, subject="", body="", valid_for=timedelta(minutes=15))
        dying_try.answer(proposal.id, proposal.digest, approved=True, actor="airflow:oscar")
        with dying_try._writing() as connection:
            result = ActionResult(action, applied=True)
            proposals.use_up(connection, proposal.id, action, result, pipeline="orders", actor="airflow:oscar")
            asking = pool.submit(cleared_task.proposal_to_answer, "care/one/preview")
            time.sleep(0.3)

        with pytest.raises(LedgerStateError, match="was carried out already"):
            asking.result()
        assert [row["state"] for row in cleared_task.proposal_page("orders")] == ["carried_out"]
