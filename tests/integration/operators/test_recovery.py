"""A recovery from preview to report with a real ledger and a real Delta table; the tasks run in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, DownstreamTasksSkipped

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.dead_letters import DeadLetters
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.replication.actions import dead_letters
from tests.integration.airflow.ckpt import damage
from tests.integration.airflow.recovery_run import NOTHING, Chain, events, hold, refresh
from tests.integration.airflow.users import SIZE, People, filled
from tests.services.ledgers import new_ledger_file


def test_a_rewind_is_shown_approved_and_done_in_the_name_of_whoever_approved(people: People) -> None:
    chain = Chain(people, action="rewind", to_position=2 * SIZE, reason="wrong | rates")
    before = events(people)

    seen = chain.preview()

    assert events(people) == before
    assert seen["subject"] == "Rewind pipeline people?"
    assert "delivered **again**" in seen["body"]
    assert f"| {6 * SIZE} \\(generation 1\\) | {2 * SIZE} \\(generation 2\\) |" in seen["body"]
    assert "requested by **airflow\\:ada**: wrong \\| rates" in seen["body"]

    done = chain.answer("oscar")
    report = chain.step("report")

    assert done["applied"]
    (event,) = [event for event in events(people) if event["kind"] == "rewind"]
    assert event["actor"] == "airflow:oscar"
    assert event["detail"]["reason"] == "wrong | rates (requested by airflow:ada)"
    assert event["detail"]["before"]["checkpoint"] == {people.partition: [1, 6 * SIZE]}
    assert event["detail"]["after"]["checkpoint"] == {people.partition: [2, 2 * SIZE]}
    assert report["outcome"] == "done, approved by airflow:oscar"
    assert report["checkpoint"] == {people.partition: 2 * SIZE}


def test_whoever_approves_what_they_asked_for_is_named_once(people: People) -> None:
    chain = Chain(people, user="ada", action="force_stop", reason="host7 hangs")
    chain.preview()

    chain.answer("ada")

    (event,) = [event for event in events(people) if event["kind"] == "force_stop"]
    assert (event["actor"], event["detail"]["reason"]) == ("airflow:ada", "host7 hangs")
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
    people.ledger.action("people", Action(ActionKind.RELEASE), actor="somebody else")
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

    assert f"read from {people.partition}" in chain.preview()["body"].replace("\\", "")
    chain.answer()

    ranges = [e["detail"]["action"]["ranges"] for e in events(people) if e["kind"] == "recover"]
    assert ranges == [[[people.partition, 0, 6 * SIZE]]]


def test_while_a_run_holds_the_lease_the_act_is_stored_for_it(people: People) -> None:
    chain = Chain(people, action="rewind", to_position=0)
    with people.acquire("dag:a/b/people/replicate") as held:
        body = chain.preview()["body"]
        done = chain.answer()
        people.ledger.release(held.lease)

    assert "holds the lease: the action is stored, and the next run applies it" in body
    assert (done["applied"], done["intent"]) == (False, 1)
    assert chain.step("report")["outcome"].startswith("stored as action 1, approved by airflow:oscar")


def test_a_stop_is_ended_by_a_resume(people: People) -> None:
    for action, phase in (("force_stop", "stopped"), ("resume", "running")):
        chain = Chain(people, action=action)
        chain.preview()
        assert chain.answer()["after"]["phase"] == phase
        assert chain.step("report")["phase"] == phase


def test_a_replay_of_more_than_an_approval_carries_is_refused(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    many = tuple(DeadLetters(BatchKey(1, people.partition, seq), "Sink", 0, 1, 1, 1) for seq in range(5001))
    monkeypatch.setattr(
        dead_letters, "make_action", lambda *_: Action(ActionKind.REPLAY_DEAD_LETTERS, dead_letters=many)
    )

    with pytest.raises(AirflowFailException, match="5,001 ranges of dead letters are more than an approval can name"):
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
        ({"action": "recover", "to_position": 0}, "recover does not take to_position"),
        ({"action": "rewind"}, "give exactly one target of the rewind"),
        ({"action": "rewind", "to_position": 10**9}, "cannot rewind"),
        ({"action": "rewind", "to_time": "yesterday"}, "is not a time"),
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


@pytest.fixture
def lost(ledger: Ledger, tmp_path: Path) -> tuple[People, str]:
    """People whose ledger was lost; the new one does not know them. The lost ledger's id is the second item."""
    with Ledger.open(new_ledger_file(tmp_path / "lost.db")) as old:
        people = filled(old, tmp_path)
    people.ledger = ledger
    return people, old.id


def test_a_lost_ledgers_receipts_are_adopted_though_the_new_ledger_does_not_know_the_pipeline(
    lost: tuple[People, str], tmp_path: Path
) -> None:
    people, old = lost
    chain = Chain(people, pipelines=tmp_path, action="adopt", ledger_id=old, reason="its disk is gone")

    body = chain.preview()["body"].replace("\\", "")
    assert f"| receipts in the sink | of ledger {people.ledger.id} | of ledger {old} |" in body
    assert people.ledger.pipelines() == []
    assert chain.answer()["applied"]

    assert people.ledger.sink_id("people") == old
    assert {event["kind"]: event["actor"] for event in events(people) if event["kind"] in ("adopted", "approved")} == {
        "adopted": "airflow:oscar",
        "approved": "airflow:oscar",
    }
    assert chain.step("report")["outcome"] == "done, approved by airflow:oscar"
    with pytest.raises(AirflowFailException, match="was carried out already"):
        chain.step("carry_out")
    people.acquire().close()
    assert refresh(people)["partitions"][0]["committed"] == 6 * SIZE


def test_a_pipeline_that_the_ledger_has_no_declaration_of_is_adopted_again_from_its_file(
    lost: tuple[People, str], tmp_path: Path
) -> None:
    people, old = lost
    people.ledger.register(["people"])  # as an adoption does, and the first look at a database of many tables
    for _ in range(2):
        chain = Chain(people, pipelines=tmp_path, action="adopt", ledger_id=old)
        chain.preview()
        assert chain.answer()["applied"]

    people.file.unlink()
    with pytest.raises(AirflowFailException, match="neither the ledger nor a file of the folder"):
        chain.preview()


def test_an_adoption_that_is_rejected_leaves_the_pipeline_unknown(lost: tuple[People, str], tmp_path: Path) -> None:
    people, old = lost
    chain = Chain(people, pipelines=tmp_path, action="adopt", ledger_id=old)
    chain.preview()
    chain.hear(chain.ask(), "Reject", "vera")

    assert chain.step("report")["outcome"] == "rejected by airflow:vera, nothing was changed"
    assert people.ledger.pipelines() == []


@pytest.mark.parametrize(("ledger_id", "says"), [("nobody", "no receipts of ledger nobody"), (None, "name the ledger")])
def test_only_receipts_that_the_sink_holds_are_adopted(
    lost: tuple[People, str], tmp_path: Path, ledger_id: str | None, says: str
) -> None:
    with pytest.raises(AirflowFailException, match=says):
        Chain(lost[0], pipelines=tmp_path, action="adopt", ledger_id=ledger_id).preview()
