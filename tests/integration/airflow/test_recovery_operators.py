"""A remedy from its preview to its report, on a real ledger and a real Delta table; the tasks run in this process."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from airflow_provider_ckpt.core.acts import Act, ActKind
from airflow_provider_ckpt.core.batch import BatchKey
from airflow_provider_ckpt.core.errors import LedgerStateError
from airflow_provider_ckpt.core.letters import Letters
from airflow_provider_ckpt.dag_factories.recovery import recovery_dag
from airflow_provider_ckpt.ledger import tables
from airflow_provider_ckpt.ledger.records import ProposalRecord
from airflow_provider_ckpt.replication import letters
from tests.integration.airflow.ckpt import damage
from tests.integration.airflow.people import SIZE, People

NOTHING = "nothing was proposed, since there was nothing to do or it was a dry run; nothing was changed"


class Chain:
    """One run of the recovery DAG: its tasks in turn, as far as they run in this process.

    :param people: whose ledger it works on
    :param user: who triggered it
    """

    map_index = -1

    def __init__(self, people: People, user: str = "ada", **params: Any) -> None:
        self.ledger = people.ledger
        self.dag: DAG = recovery_dag("care", pipelines=["people"])
        self.params = {**self.dag.params.dump(), "reason": "why not", **params}
        self.run = SimpleNamespace(dag_id="care", run_id="one", triggering_user_name=user)
        self.handed: dict[str, Any] = {}

    def task(self, task_id: str) -> tuple[Any, Any]:
        """A task as Airflow has rendered it, and its context."""
        task = copy(cast("BaseOperator", self.dag.get_task(task_id)))
        context: Any = {"dag_run": self.run, "params": self.params, "ti": self, "task": task}
        task.render_template_fields(context)
        return task, context

    def step(self, task_id: str) -> Any:
        """Run one task; what it returns."""
        task, context = self.task(task_id)
        return task.execute(context)

    def preview(self) -> Any:
        return self.step("preview")

    def ask(self) -> ProposalRecord:
        """What the approval's task asks about."""
        return self.ledger.ask("care/one/preview")

    def hear(self, asked: ProposalRecord, option: str = "Approve", user: str | None = "oscar") -> None:
        """Resume the approval's task with Airflow's record of an answer."""
        task, context = self.task("approve")
        event = {
            "chosen_options": [option],
            "params_input": {},
            "responded_at": datetime.now(UTC),
            "responded_by_user": user and {"id": user, "name": user},
        }
        with suppress(DownstreamTasksSkipped):
            task.execute_complete(context, event, proposal=asked.proposal.id, digest=asked.digest)

    def answer(self, user: str = "oscar") -> Any:
        """What is carried out once that user has approved."""
        self.hear(self.ask(), user=user)
        return self.step("carry_out")

    def xcom_push(self, key: str, value: Any) -> None:
        self.handed[key] = value


def refresh(people: People) -> dict[str, Any]:
    return people.ledger.status("people")


def events(people: People) -> list[dict[str, Any]]:
    return people.ledger.events("people", 1000)


def hold(people: People, *numbers: int) -> list[str]:
    """Hold batches; their names."""
    found = sorted(
        batch.key for batch in people.ledger.partitions("people")[people.partition].partition.batches.values()
    )
    keys = tuple(key for key in found if key.seq in numbers)
    people.ledger.act("people", Act(ActKind.HOLD, keys), who="test")
    return [str(key) for key in keys]


def test_a_rewind_is_shown_approved_and_done_in_the_name_of_whoever_approved(people: People) -> None:
    chain = Chain(people, action="rewind", to_position=2 * SIZE, reason="wrong | rates")
    before = events(people)

    seen = chain.preview()

    assert events(people) == before
    assert seen["subject"] == "Rewind pipeline people?"
    assert "delivered **again**" in seen["body"]
    assert f"| {6 * SIZE} \\(generation 1\\) | {2 * SIZE} \\(generation 2\\) |" in seen["body"]
    assert "asked for by **airflow\\:ada**: wrong \\| rates" in seen["body"]

    done = chain.answer("oscar")
    report = chain.step("report")

    assert done["applied"]
    (event,) = [event for event in events(people) if event["kind"] == "rewind"]
    assert event["who"] == "airflow:oscar"
    assert event["detail"]["reason"] == "wrong | rates (asked for by airflow:ada)"
    assert event["detail"]["before"]["checkpoint"] == {people.partition: [1, 6 * SIZE]}
    assert event["detail"]["after"]["checkpoint"] == {people.partition: [2, 2 * SIZE]}
    assert report["outcome"] == "done, approved by airflow:oscar"
    assert report["checkpoint"] == {people.partition: 2 * SIZE}


def test_whoever_approves_what_they_asked_for_is_named_once(people: People) -> None:
    chain = Chain(people, user="ada", action="force_stop", reason="host7 hangs")
    chain.preview()

    chain.answer("ada")

    (event,) = [event for event in events(people) if event["kind"] == "force_stop"]
    assert (event["who"], event["detail"]["reason"]) == ("airflow:ada", "host7 hangs")
    assert refresh(people)["phase"] == "stopped"


def test_only_the_batches_that_were_shown_are_released(people: People) -> None:
    shown = hold(people, 4)
    chain = Chain(people, action="release")
    body = chain.preview()["body"]
    later = hold(people, 3)

    chain.answer()

    assert "| held | planned |" in body
    assert [item["batch"] for item in refresh(people)["held"]] == later
    assert shown != later


def test_what_no_longer_fits_is_refused_and_changes_nothing(people: People) -> None:
    names = hold(people, 4)
    chain = Chain(people, action="release", batches=names)
    chain.preview()
    people.ledger.act("people", Act(ActKind.RELEASE), who="somebody else")
    before = events(people)

    with pytest.raises(AirflowFailException):
        chain.answer()

    assert events(people) == before


def test_a_skip_says_what_becomes_of_a_batch_that_was_begun(people: People) -> None:
    names = hold(people, 3)
    chain = Chain(people, action="skip", batches=names)

    assert "**not delivered**" in chain.preview()["body"]
    assert "claims `void` in the sink" in chain.answer()["next"]


def test_a_recovery_reads_the_stretches_that_were_shown(people: People) -> None:
    damage(tables.receipt.delete())
    damage(tables.partition.update().values(low=0))
    chain = Chain(people, action="recover")

    assert f"read again from {people.partition}" in chain.preview()["body"].replace("\\", "")
    chain.answer()

    spans = [e["detail"]["act"]["spans"] for e in events(people) if e["kind"] == "recover"]
    assert spans == [[[people.partition, 0, 6 * SIZE]]]


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

    with pytest.raises(AirflowFailException, match="was not approved by any person"):
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
    with pytest.raises(AirflowFailException, match="was not approved by any person"):
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

    assert chain.step("carry_out")["who"] == "airflow:oscar"


def test_asking_again_withdraws_an_approval_that_was_not_used(people: People) -> None:
    chain = Chain(people, action="rewind", to_position=0)
    chain.preview()
    chain.hear(chain.ask())
    chain.ask()

    with pytest.raises(AirflowFailException, match="was not approved by any person"):
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
        {"act": Act(ActKind.FORCE_STOP).to_json()},
        {"who": "airflow:somebody else"},
        {"why": "a better reason"},
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
    people.ledger.act("people", Act(ActKind.RELEASE), who="somebody else")
    with pytest.raises(AirflowFailException):
        chain.step("carry_out")
    hold(people, 4)
    before = events(people)

    with pytest.raises(AirflowFailException, match="was refused, since it no longer fitted"):
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
    assert (event["who"], event["detail"]["digest"]) == ("airflow:oscar", asked.digest)


def test_while_a_run_holds_the_lease_the_act_is_stored_for_it(people: People) -> None:
    chain = Chain(people, action="rewind", to_position=0)
    with people.acquire("dag:a/b/people/replicate") as held:
        body = chain.preview()["body"]
        done = chain.answer()
        people.ledger.release(held.lease)

    assert "holds the lease: it is stored, and the next run applies it" in body
    assert (done["applied"], done["intent"]) == (False, 1)
    assert chain.step("report")["outcome"].startswith("stored as number 1, approved by airflow:oscar")


def test_a_stop_is_ended_by_a_resume(people: People) -> None:
    for action, phase in (("force_stop", "stopped"), ("resume", "running")):
        chain = Chain(people, action=action)
        chain.preview()
        assert chain.answer()["after"]["phase"] == phase
        assert chain.step("report")["phase"] == phase


def test_a_replay_of_more_than_an_approval_carries_is_refused(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    many = tuple(Letters(BatchKey(1, people.partition, seq), "Sink", 0, 1, 1, 1) for seq in range(5001))
    monkeypatch.setattr(letters, "act_on", lambda *_: Act(ActKind.REPLAY_LETTERS, letters=many))

    with pytest.raises(AirflowFailException, match="5,001 stretches of dead letters are more than an approval carries"):
        Chain(people, action="replay_dead_letters").preview()


@pytest.mark.parametrize("action", ["release", "recover", "replay_dead_letters", "resume"])
def test_where_there_is_nothing_to_do_nobody_is_asked(people: People, action: str) -> None:
    chain = Chain(people, action=action)
    before = events(people)

    with pytest.raises(DownstreamTasksSkipped) as skipped:
        chain.preview()

    assert skipped.value.tasks == ["approve"]
    assert chain.step("report")["outcome"] == NOTHING
    assert events(people) == before


def test_a_dry_run_asks_nobody_and_says_what_it_would_do(people: People) -> None:
    chain = Chain(people, action="rewind", to_position=0, dry_run=True)
    before = events(people)

    with pytest.raises(DownstreamTasksSkipped):
        chain.preview()

    assert "delivered **again**" in chain.handed["return_value"]["body"]
    assert chain.step("report")["outcome"] == NOTHING
    assert events(people) == before


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"action": "recover", "to_position": 0}, "recover has no use for to_position"),
        ({"action": "rewind"}, "say how far to rewind"),
        ({"action": "rewind", "to_position": 10**9}, "cannot rewind"),
        ({"action": "rewind", "to_time": "yesterday"}, "is no point in time"),
        ({"action": "skip"}, "name the batches to skip"),
        ({"action": "skip", "batches": ["nonsense"]}, "nonsense"),
        ({"action": "release", "batches": ["t#99"]}, "t"),
        ({"action": "drop"}, "there is no action 'drop'"),
        ({"pipeline": "strangers", "action": "release"}, "strangers"),
    ],
)
def test_what_cannot_be_done_is_said_in_the_preview(people: People, params: dict[str, Any], says: str) -> None:
    before = events(people)

    with pytest.raises(AirflowFailException, match=says):
        Chain(people, **params).preview()

    assert events(people) == before
