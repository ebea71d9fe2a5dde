"""Operators for users' actions, with a real ledger and Delta table: their effects, and the actors in the audit log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, BaseOperator

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.replayable_dead_letters import Selection
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.operators.batches import CkptReleaseOperator, CkptSkipOperator
from airflow_provider_ckpt.operators.phases import CkptDrainOperator, CkptForceStopOperator, CkptResumeOperator
from airflow_provider_ckpt.operators.recover import CkptRecoverOperator
from airflow_provider_ckpt.operators.replay_dead_letters import CkptReplayDeadLettersOperator
from airflow_provider_ckpt.operators.rewind import CkptRewindOperator
from airflow_provider_ckpt.replication.actions import dead_letters
from airflow_provider_ckpt.replication.actions.parse_arguments import parse_batch_keys
from airflow_provider_ckpt.replication.setup import PipelineContext
from tests.integration.airflow.ckpt import damage
from tests.integration.airflow.users import SIZE, People


def run(
    kind: type[BaseOperator], *, user: str | None = "alice", params: dict[str, Any] | None = None, **given: Any
) -> Any:
    """Return the result of the task in a DAG run, after its templates were rendered."""
    with DAG("care", schedule=None):
        task = kind(task_id="action", pipeline="people", owner="data-team", **given)
    dag_run = SimpleNamespace(dag_id="care", run_id="one", triggering_user_name=user)
    context: Any = {"dag_run": dag_run, "params": params or {}, "ti": SimpleNamespace(map_index=-1)}
    task.render_template_fields(context)
    return task.execute(context)


def last_event(ledger: Ledger, kind: str) -> dict[str, Any]:
    return next(event for event in reversed(ledger.events("people")) if event["kind"] == kind)


def test_a_drain_and_its_end_name_whoever_triggered_the_dag_run(people: People) -> None:
    drained = run(CkptDrainOperator, reason="maintenance")
    resumed = run(CkptResumeOperator, user="bob")

    assert (drained["before"]["phase"], drained["after"]["phase"], drained["applied"]) == ("running", "draining", True)
    assert (resumed["before"]["phase"], resumed["after"]["phase"]) == ("draining", "running")
    event = last_event(people.ledger, "drain")
    assert (event["actor"], event["detail"]["reason"]) == ("airflow:alice", "maintenance")
    assert (event["detail"]["before"]["phase"], event["detail"]["after"]["phase"]) == ("running", "draining")
    assert last_event(people.ledger, "resume")["actor"] == "airflow:bob"


def test_a_dag_run_that_nobody_triggered_names_the_owner_and_an_approver_may_be_named(people: People) -> None:
    run(CkptDrainOperator, user=None)
    run(CkptResumeOperator, actor="{{ params.approver }}", params={"approver": "carol"})

    assert last_event(people.ledger, "drain")["actor"] == "airflow:data-team (owner of care)"
    assert last_event(people.ledger, "resume")["actor"] == "airflow:carol"


def test_a_rewind_takes_its_typed_arguments_from_templates(people: People) -> None:
    given: dict[str, Any] = {
        "to_position": "{{ params.position }}",
        "to_time": "{{ params.time }}",
        "dry_run": "{{ params.dry_run }}",
        "reason": "{{ params.reason }}",
    }
    params = {"position": 2 * SIZE, "time": None, "reason": "wrong transform"}

    dry = run(CkptRewindOperator, **given, params={**params, "dry_run": True})
    wet = run(CkptRewindOperator, **given, params={**params, "dry_run": False})

    assert (dry["applied"], wet["applied"]) == (False, True)
    assert dry["after"]["checkpoint"] == wet["after"]["checkpoint"] == {people.partition: [2, 2 * SIZE]}
    assert last_event(people.ledger, "rewind")["actor"] == "airflow:alice"


def test_an_act_is_stored_while_a_run_holds_the_lease(people: People) -> None:
    with people.acquire() as held:
        stored = run(CkptRewindOperator, to_position=0, reason="wrong transform")
        people.ledger.release(held.lease)
    people.acquire().close()

    assert (stored["applied"], stored["waits_for"]["owner"]) == (False, "test")
    assert people.ledger.partitions("people")[people.partition].partition.base == 0
    assert last_event(people.ledger, "rewind")["actor"] == "airflow:alice"


def test_a_force_stop_takes_the_lease_from_its_holder(people: People) -> None:
    with people.acquire():
        said = run(CkptForceStopOperator, reason="disk full")

    assert (said["action"], said["after"]["phase"]) == ("force_stop", "stopped")
    assert people.ledger.status("people")["lease"]["held"] is False


def test_held_batches_are_released_all_of_them_or_those_that_are_named(people: People) -> None:
    with people.acquire() as held:
        batches = [str(batch.key) for batch in sorted(held.planned(), key=lambda batch: batch.key)]
        people.ledger.release(held.lease)
    hold_all(people, batches)

    one = run(CkptReleaseOperator, batches="{{ params.batches }}", params={"batches": batches[:1]})
    rest = run(CkptReleaseOperator)

    assert (one["before"]["held"], one["after"]["held"]) == (2, 1)
    assert rest["after"]["held"] == 0


def hold_all(people: People, batches: list[str]) -> None:
    people.ledger.action("people", Action(ActionKind.HOLD, parse_batch_keys(batches)), actor="test")


def test_a_batch_is_skipped_for_a_reason(people: People) -> None:
    name = f"{people.partition}#4"

    said = run(CkptSkipOperator, batches=[name], reason="known junk")

    assert said["after"]["batches"] == {name: "skipped"}
    assert last_event(people.ledger, "skip")["detail"]["reason"] == "known junk"


def test_what_nothing_accounts_for_is_found_and_read_again(people: People) -> None:
    damage(tables.batch.delete().where(tables.batch.c.seq == 4))

    dry = run(CkptRecoverOperator, dry_run=True)
    wet = run(CkptRecoverOperator, reason="a batch is gone")

    assert [item["range"] for item in dry["missing"]] == [[8 * SIZE, 10 * SIZE]]
    assert dry["applied"] is False
    assert wet["pipeline"] == "people"


@pytest.mark.parametrize("query", ["null", "None", " "])
def test_a_text_to_look_for_may_be_any(people: People, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    asked: list[str | None] = []
    found = dead_letters.make_action

    def note(setup: PipelineContext, kind: ActionKind, selection: Selection, query: str | None = None) -> Action:
        asked.append(query)
        return found(setup, kind, selection, query)

    monkeypatch.setattr(dead_letters, "make_action", note)

    run(CkptReplayDeadLettersOperator, query=query)
    run(CkptReplayDeadLettersOperator, query="{{ params.query or '' }}", params={"query": None})

    assert asked == [query, None]


def test_a_reason_may_be_any_word(people: People) -> None:
    run(CkptDrainOperator, reason="None")
    run(CkptResumeOperator, reason=" ")

    assert last_event(people.ledger, "drain")["detail"]["reason"] == "None"
    assert last_event(people.ledger, "resume")["detail"]["reason"] is None


def test_dead_letters_that_nobody_has_are_not_replayed(people: People) -> None:
    said = run(CkptReplayDeadLettersOperator, error_types=["Sink"], since="2020-01-01", stop_at="5")

    assert (said["applied"], said["records"], said["actor"]) == (False, 0, "airflow:alice")


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        (CkptRewindOperator, {"to_position": 0}, "needs a reason"),
        (CkptRewindOperator, {"reason": "reason"}, "give exactly one target of the rewind"),
        (CkptRewindOperator, {"reason": "reason", "to_position": "soon"}, "to_position is 'soon'; it must be a whole"),
        (CkptSkipOperator, {"reason": "reason"}, "name the batches to skip"),
        (CkptReleaseOperator, {"batches": ["x"]}, "'x' is not a batch"),
        (CkptReleaseOperator, {"batches": ["nowhere#0"]}, "nowhere"),
        (CkptDrainOperator, {"dry_run": "maybe"}, "dry_run is 'maybe'; it must be true or false"),
        (CkptReplayDeadLettersOperator, {"stop_at": 0}, "at least 1"),
        (CkptReplayDeadLettersOperator, {"error_types": "Nonsense"}, "no error type 'Nonsense'. Known: Kafka,"),
        (CkptReplayDeadLettersOperator, {"batches": "files#0,files#1"}, "no dead letters of files#0,files#1"),
    ],
)
def test_what_does_not_fit_fails_without_another_try(
    people: People, kind: type[BaseOperator], given: dict[str, Any], says: str
) -> None:
    before = people.ledger.status("people")["partitions"]

    with pytest.raises(AirflowFailException, match=says):
        run(kind, **given)

    assert people.ledger.status("people")["partitions"] == before


def test_a_pipeline_may_be_named_by_its_file(people: People) -> None:
    with DAG("care", schedule=None) as dag:
        task = CkptDrainOperator(task_id="action", pipeline=people.file.name)
    dag.fileloc = str(people.file.with_name("dag.py"))
    dag_run = SimpleNamespace(dag_id="care", run_id="one", triggering_user_name="alice")
    context: Any = {"dag_run": dag_run, "ti": SimpleNamespace(map_index=-1)}

    assert task.execute(context)["pipeline"] == "people"
