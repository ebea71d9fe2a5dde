"""A remedy from its preview to its report, on a real ledger and a real Delta table; the tasks run in this process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.exceptions import AirflowFailException, DownstreamTasksSkipped

from airflow_provider_ckpt.core.acts import Act, ActKind
from airflow_provider_ckpt.core.batch import BatchKey
from airflow_provider_ckpt.core.letters import Letters
from airflow_provider_ckpt.dag_factories.recovery import recovery_dag
from airflow_provider_ckpt.ledger import tables
from airflow_provider_ckpt.operators.carry_out import outcome
from airflow_provider_ckpt.replication import letters
from tests.integration.airflow.ckpt import damage
from tests.integration.airflow.people import SIZE, People


class Chain:
    """One run of the recovery DAG: its tasks in turn, each with what those before it handed over.

    :param user: who triggered it
    """

    def __init__(self, user: str = "ada", **params: Any) -> None:
        self.dag: DAG = recovery_dag("care", pipelines=["people"])
        self.params = {**self.dag.params.dump(), "reason": "why not", **params}
        self.run = SimpleNamespace(dag_id="care", run_id="one", triggering_user_name=user)
        self.xcom: dict[tuple[str, str], Any] = {}

    def step(self, task_id: str) -> Any:
        """Run one task; what it returns."""
        task = cast("BaseOperator", self.dag.get_task(task_id))
        context: Any = {"dag_run": self.run, "params": self.params, "ti": self}
        task.render_template_fields(context)
        result = task.execute(context)
        self.xcom[task_id, "return_value"] = result
        return result

    def preview(self) -> Any:
        return self.step("preview")

    def answer(self, user: str = "oscar") -> Any:
        """What is carried out once that user has approved."""
        self.xcom["approve", "answer"] = {"approved": True, "user": user}
        return self.step("carry_out")

    map_index = -1

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcom["preview", key] = value

    def xcom_pull(self, task_ids: str, key: str = "return_value") -> Any:
        return self.xcom.get((task_ids, key))


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
    chain = Chain(action="rewind", to_position=2 * SIZE, reason="wrong | rates")
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
    chain = Chain(user="ada", action="force_stop", reason="host7 hangs")
    chain.preview()

    chain.answer("ada")

    (event,) = [event for event in events(people) if event["kind"] == "force_stop"]
    assert (event["who"], event["detail"]["reason"]) == ("airflow:ada", "host7 hangs")
    assert refresh(people)["phase"] == "stopped"


def test_only_the_batches_that_were_shown_are_released(people: People) -> None:
    shown = hold(people, 4)
    chain = Chain(action="release")
    body = chain.preview()["body"]
    later = hold(people, 3)

    chain.answer()

    assert "| held | planned |" in body
    assert [item["batch"] for item in refresh(people)["held"]] == later
    assert shown != later


def test_what_no_longer_fits_is_refused_and_changes_nothing(people: People) -> None:
    names = hold(people, 4)
    chain = Chain(action="release", batches=names)
    chain.preview()
    people.ledger.act("people", Act(ActKind.RELEASE), who="somebody else")
    before = events(people)

    with pytest.raises(AirflowFailException):
        chain.answer()

    assert events(people) == before


def test_a_skip_says_what_becomes_of_a_batch_that_was_begun(people: People) -> None:
    names = hold(people, 3)
    chain = Chain(action="skip", batches=names)

    assert "**not delivered**" in chain.preview()["body"]
    assert "claims `void` in the sink" in chain.answer()["next"]


def test_a_recovery_reads_the_stretches_that_were_shown(people: People) -> None:
    damage(tables.receipt.delete())
    damage(tables.partition.update().values(low=0))
    chain = Chain(action="recover")

    assert f"read again from {people.partition}" in chain.preview()["body"].replace("\\", "")
    chain.answer()

    spans = [e["detail"]["act"]["spans"] for e in events(people) if e["kind"] == "recover"]
    assert spans == [[[people.partition, 0, 6 * SIZE]]]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"approved": False, "user": "vera"}, "rejected by vera"),
        ({"approved": False, "user": None}, "not answered in time"),
        ({"approved": True, "user": None}, "approved by nobody"),
        (None, "no answer"),
    ],
)
def test_without_a_persons_approval_nothing_is_carried_out(
    people: People, answer: dict[str, Any] | None, says: str
) -> None:
    chain = Chain(action="rewind", to_position=0)
    chain.preview()
    chain.xcom["approve", "answer"] = answer
    before = events(people)

    with pytest.raises(AirflowFailException, match=says):
        chain.step("carry_out")

    assert events(people) == before


def test_while_a_run_holds_the_lease_the_act_is_stored_for_it(people: People) -> None:
    chain = Chain(action="rewind", to_position=0)
    with people.acquire("dag:a/b/people/replicate") as held:
        body = chain.preview()["body"]
        done = chain.answer()
        people.ledger.release(held.lease)

    assert "holds the lease: it is stored, and the next run applies it" in body
    assert (done["applied"], done["intent"]) == (False, 1)
    assert chain.step("report")["outcome"].startswith("stored as number 1, approved by airflow:oscar")


def test_a_stop_is_ended_by_a_resume(people: People) -> None:
    for action, phase in (("force_stop", "stopped"), ("resume", "running")):
        chain = Chain(action=action)
        chain.preview()
        assert chain.answer()["after"]["phase"] == phase
        assert chain.step("report")["phase"] == phase


def test_a_replay_of_more_than_an_approval_carries_is_refused(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    many = tuple(Letters(BatchKey(1, people.partition, seq), "Sink", 0, 1, 1, 1) for seq in range(5001))
    monkeypatch.setattr(letters, "act_on", lambda *_: Act(ActKind.REPLAY_LETTERS, letters=many))

    with pytest.raises(AirflowFailException, match="5,001 stretches of dead letters are more than an approval carries"):
        Chain(action="replay_dead_letters").preview()


@pytest.mark.parametrize("action", ["release", "recover", "replay_dead_letters", "resume"])
def test_where_there_is_nothing_to_do_nobody_is_asked(people: People, action: str) -> None:
    chain = Chain(action=action)
    before = events(people)

    with pytest.raises(DownstreamTasksSkipped) as skipped:
        chain.preview()

    assert skipped.value.tasks == ["approve"]
    assert chain.step("report")["outcome"] == "there was nothing to do"
    assert events(people) == before


def test_a_dry_run_asks_nobody_and_says_what_it_would_do(people: People) -> None:
    chain = Chain(action="rewind", to_position=0, dry_run=True)
    before = events(people)

    with pytest.raises(DownstreamTasksSkipped):
        chain.preview()

    assert "delivered **again**" in chain.xcom["preview", "return_value"]["body"]
    assert chain.step("report")["outcome"] == "a dry run, nothing was changed"
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
        Chain(**params).preview()

    assert events(people) == before


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"approved": False, "user": "vera"}, "rejected by vera, nothing was changed"),
        ({"approved": False, "user": None}, "not answered in time, nothing was changed"),
    ],
)
def test_a_rejection_is_reported(answer: dict[str, Any], says: str) -> None:
    assert outcome({"proposal": {}}, answer, None) == says
