"""An approval is valid for the displayed action only, for one use, for a limited time, and only from a user."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, DownstreamTasksSkipped

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.ledger.store import tables
from tests.integration.airflow.ckpt import damage
from tests.integration.airflow.recovery_run import Chain, events, hold, refresh
from tests.integration.airflow.users import People


@pytest.mark.parametrize(
    ("option", "user", "says"),
    [
        ("Reject", "vera", "was rejected"),
        ("Reject", None, "was rejected"),
        ("Approve", None, "was rejected"),
    ],
)
def test_without_a_persons_approval_nothing_is_carried_out(
    people: People, option: str, user: str | None, says: str
) -> None:
    chain = Chain(people, action="rewind", to_position=0)
    chain.preview()
    chain.hear(chain.ask(), option, user)
    before = events(people)

    with pytest.raises(AirflowFailException, match=says):
        chain.step("carry_out")

    assert events(people) == before
    heard = "rejected by airflow:vera" if user == "vera" else "not answered in time"
    assert chain.step("report")["outcome"] == f"{heard}, nothing was changed"


def test_what_was_only_previewed_or_asked_is_not_carried_out(people: People) -> None:
    chain = Chain(people, action="rewind", to_position=0)
    with pytest.raises(AirflowFailException, match="the ledger holds no proposal of care/one/preview"):
        chain.step("carry_out")
    chain.preview()
    chain.ask()

    with pytest.raises(AirflowFailException, match="was not approved by any user"):
        chain.step("carry_out")


@pytest.mark.parametrize(
    "asked_for", [{"action": "rewind", "to_position": 0}, {"action": "force_stop"}, {"action": "move"}]
)
def test_an_approval_is_used_once(people: People, asked_for: dict[str, Any]) -> None:
    chain = Chain(people, **asked_for)
    chain.preview()
    asked = chain.ask()
    chain.hear(asked)
    chain.step("carry_out")
    before = events(people)

    with pytest.raises(AirflowFailException, match="was carried out already"):
        chain.step("carry_out")
    with pytest.raises(LedgerStateError, match="was carried out already"):
        chain.ask()
    with pytest.raises(AirflowFailException, match="was carried out already"):
        chain.hear(asked)

    assert events(people) == before


@pytest.mark.parametrize("answered", [False, True])
def test_a_new_preview_voids_the_proposal_before_it(people: People, answered: bool) -> None:
    chain = Chain(people, action="rewind", to_position=0)
    chain.preview()
    asked = chain.ask()
    if answered:
        chain.hear(asked)
    chain.params["action"], chain.params["to_position"] = "force_stop", None
    chain.preview()

    if not answered:
        with pytest.raises(AirflowFailException, match="is void"):
            chain.hear(asked)
    with pytest.raises(AirflowFailException, match="was not approved by any user"):
        chain.step("carry_out")

    assert refresh(people)["phase"] == "running"


def test_a_preview_that_finds_nothing_or_fails_voids_the_proposal_before_it(people: People) -> None:
    for params in ({"dry_run": True}, {"action": "resume", "to_position": None}, {"to_position": 10**9}):
        chain = Chain(people, action="rewind", to_position=0)
        chain.preview()
        chain.hear(chain.ask())
        chain.params.update(params)
        with suppress(DownstreamTasksSkipped, AirflowFailException):
            chain.preview()

        with pytest.raises(AirflowFailException, match="is void"):
            chain.step("carry_out")


def test_an_answer_that_airflow_hands_over_twice_is_stored_once(people: People) -> None:
    chain = Chain(people, action="rewind", to_position=0)
    chain.preview()
    asked = chain.ask()
    chain.hear(asked)

    chain.hear(asked)
    with pytest.raises(AirflowFailException, match="is approved already"):
        chain.hear(asked, user="eve")

    assert chain.step("carry_out")["actor"] == "airflow:oscar"


def test_asking_again_withdraws_an_approval_that_was_not_used(people: People) -> None:
    chain = Chain(people, action="rewind", to_position=0)
    chain.preview()
    chain.hear(chain.ask())
    chain.ask()

    with pytest.raises(AirflowFailException, match="was not approved by any user"):
        chain.step("carry_out")


def test_a_proposal_that_is_too_old_is_neither_approved_nor_carried_out(people: People) -> None:
    chain = Chain(people, action="rewind", to_position=0)
    chain.preview()
    asked = chain.ask()
    chain.hear(asked)
    damage(tables.proposal.update().values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))

    with pytest.raises(AirflowFailException, match="was not used in time"):
        chain.step("carry_out")
    with pytest.raises(LedgerStateError, match="was not used in time"):
        chain.ask()
    damage(tables.proposal.update().values(state="open"))
    with pytest.raises(AirflowFailException, match="was not used in time"):
        chain.hear(asked)


@pytest.mark.parametrize(
    "forged",
    [
        {"action": Action(ActionKind.FORCE_STOP).to_json()},
        {"actor": "airflow:somebody else"},
        {"reason": "a better reason"},
    ],
)
def test_a_proposal_that_was_altered_after_it_was_shown_is_not_carried_out(
    people: People, forged: dict[str, Any]
) -> None:
    chain = Chain(people, action="rewind", to_position=0)
    chain.preview()
    chain.hear(chain.ask())
    before = events(people)
    damage(tables.proposal.update().values(**forged))

    with pytest.raises(AirflowFailException, match="is not what its digest says"):
        chain.step("carry_out")

    assert events(people) == before


def test_an_approval_of_what_no_longer_fits_does_not_wait_until_it_fits_again(people: People) -> None:
    names = hold(people, 4)
    chain = Chain(people, action="release", batches=names)
    chain.preview()
    chain.hear(chain.ask())
    people.ledger.action("people", Action(ActionKind.RELEASE), actor="somebody else")
    with pytest.raises(AirflowFailException):
        chain.step("carry_out")
    hold(people, 4)
    before = events(people)

    with pytest.raises(AirflowFailException, match="was refused, because the pipeline's state no longer allowed it"):
        chain.step("carry_out")

    assert events(people) == before
    assert chain.step("report")["outcome"].startswith("refused: ")


def test_the_question_shows_the_proposals_id_and_digest(people: People) -> None:
    chain = Chain(people, action="rewind", to_position=0)
    seen = chain.preview()
    asked = chain.ask()

    assert seen["proposal"] == asked.proposal.id
    assert f"Proposal `{asked.proposal.id}`, SHA-256 `{asked.proposal.digest}`" in asked.body
    chain.hear(asked)
    chain.step("carry_out")
    (event,) = [event for event in events(people) if event["kind"] == "approved"]
    assert (event["actor"], event["detail"]["digest"]) == ("airflow:oscar", asked.digest)
