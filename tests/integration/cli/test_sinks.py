"""Tests of actions on the command line that raise the sink's fence: rewind, force stop, adopt.

The sinks are a directory and a Delta table.
"""

from __future__ import annotations

from pathlib import Path
from socket import gethostname

import pytest
import yaml

from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import tables
from tests.integration.airflow.ckpt import Ckpt, damage
from tests.integration.airflow.users import SIZE, People, filled
from tests.integration.ledger.ledger_driver import TTL
from tests.services.ledgers import new_ledger_file


def test_a_rewind_begins_a_new_generation_at_a_position(ckpt: Ckpt, people: People) -> None:
    where = ("rewind", "people", "--to-position", str(2 * SIZE), "--reason", "wrong transform")

    dry = ckpt.json(*where, "--dry-run")
    wet = ckpt.json(*where)

    for said in (dry, wet):
        assert said["before"]["checkpoint"] == {people.partition: [1, 6 * SIZE]}
        assert said["after"]["checkpoint"] == {people.partition: [2, 2 * SIZE]}
    assert (dry["applied"], wet["applied"]) == (False, True)
    shown = ckpt.json("inspect", "people", people.partition)
    assert [item["reason"] for item in shown["generations"]] == ["first start", "wrong transform"]
    assert ckpt.json("audit", "people")["ok"] is True


def test_a_rewind_goes_back_to_the_beginning_of_a_batch(ckpt: Ckpt, people: People) -> None:
    said = ckpt.json("rewind", "people", "--to-batch", f"{people.partition}#1", "--reason", "wrong transform")

    assert said["after"]["checkpoint"] == {people.partition: [2, 2 * SIZE]}


def test_a_rewind_waits_for_the_run_after_the_one_that_holds_the_lease(ckpt: Ckpt, people: People) -> None:
    where = ("rewind", "people", "--to-position", "0", "--reason", "wrong transform")
    with people.acquire() as run:
        stored = ckpt.json(*where)
        shown = ckpt.table(*where)
        people.ledger.release(run.lease)
    people.acquire().close()

    assert (stored["applied"], stored["intent"], stored["waits_for"]["owner"]) == (False, 1, "test")
    assert "stored as action 2; the next run applies it, after test" in shown
    assert ckpt.json("inspect", "people", people.partition)["base"] == 0


def test_a_stretch_below_the_checkpoint_is_read_once_more(ckpt: Ckpt, people: People) -> None:
    said = ckpt.json("replay", "range", "people", "--from", str(SIZE), "--to", str(3 * SIZE))

    assert (said["applied"], said["after"]["checkpoint"]) == (True, {people.partition: [1, 6 * SIZE]})
    side = f"replay:2:{people.partition}"
    assert said["next"] == f"the next run reads the range, as partition {side}"
    assert people.ledger.partitions("people")[side].partition.limit == 3 * SIZE


def test_a_replay_waits_for_the_run_that_holds_the_lease(ckpt: Ckpt, people: People) -> None:
    with people.acquire() as run:
        shown = ckpt.table("replay", "range", "people", "--from", "0", "--to", str(SIZE))
        people.ledger.release(run.lease)

    assert "stored as action 1; the run that holds the lease applies it: test" in shown


def test_a_rewind_does_not_wait_for_a_process_that_is_gone(ckpt: Ckpt, people: People) -> None:
    people.ledger.acquire("people", f"cli:{gethostname()}:1:1", TTL)

    assert ckpt.json("rewind", "people", "--to-position", "0", "--reason", "wrong transform")["applied"] is True


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give exactly one target of the rewind: a position, a time or a batch"),
        (("--to-position", "0", "--to-batch", "x#0"), "give exactly one target of the rewind"),
        (("--to-position", "1,000"), "cannot rewind"),
        (("--to-position", "0", "--partition", "u"), "there is no source partition 'u'. Known: "),
        (("--to-batch", "first"), "'first' is not a batch; write partition#seq"),
        (("--to-batch", "u#0"), "the sink holds no receipt of u#0"),
        (("--to-batch", "u#0", "--partition", "v"), "u#0 is a batch of partition 'u', not 'v'"),
        (("--to-time", "yesterday"), "'yesterday' is not a time"),
        (("--to-position", "0", "--file", "/nowhere.yaml"), "/nowhere.yaml: cannot be read"),
    ],
)
def test_a_rewind_to_nowhere_is_refused(ckpt: Ckpt, people: People, arguments: tuple[str, ...], says: str) -> None:
    assert says in ckpt.refused("rewind", "people", *arguments, "--reason", "wrong transform")
    assert ckpt.json("inspect", "people", people.partition)["generation"] == 1


def test_a_forced_stop_takes_the_lease_and_abandons_what_is_in_flight(ckpt: Ckpt, people: People) -> None:
    with people.acquire() as run:
        planned = sorted(run.planned(), key=lambda batch: batch.key)
        people.begin(run, planned[:1])

        said = ckpt.json("stop", "people", "--force", "--reason", "disk full")

        assert (said["action"], said["applied"], said["after"]["phase"]) == ("force_stop", True, "stopped")
        assert "stop --force needs a reason" in ckpt.refused("stop", "people", "--force")
    status = ckpt.json("status", "people")
    assert (status["phase"], status["batches"]) == ("stopped", {"planned": 2})
    assert status["lease"]["held"] is False


def test_a_file_may_stand_in_for_the_stored_declaration(ckpt: Ckpt, people: People) -> None:
    other = people.file.with_name("other.yaml")
    other.write_text(yaml.safe_dump({**people.document, "name": "other"}))
    force = ("stop", "people", "--force", "--reason", "moved")

    assert f"{other} declares pipeline 'other', not 'people'" in ckpt.refused(*force, "--file", str(other))
    assert ckpt.json(*force, "--file", str(people.file))["applied"] is True


def test_nothing_is_recovered_where_nothing_is_missing(ckpt: Ckpt, people: People) -> None:
    said = ckpt.json("recover", "people")

    assert (said["missing"], said["applied"]) == ([], False)


def test_what_nothing_accounts_for_is_found_and_read_by_the_next_run(ckpt: Ckpt, people: People) -> None:
    damage(tables.batch.delete().where(tables.batch.c.seq == 4))

    dry = ckpt.json("recover", "people", "--dry-run")
    shown = ckpt.table("recover", "people", "--reason", "a batch is gone")
    with people.acquire() as run:
        run.plan()
        people.ledger.release(run.lease)

    assert [(item["range"], item["reason"]) for item in dry["missing"]] == [([8 * SIZE, 10 * SIZE], "unreceipted")]
    assert "unreceipted" in shown
    assert [item["range"] for item in ckpt.json("inspect", "people")["batches"]] == [
        [6 * SIZE, 8 * SIZE],
        [8 * SIZE, 10 * SIZE],
    ]


def test_without_a_declaration_one_must_be_named(ckpt: Ckpt, ledger: Ledger) -> None:
    ledger.release(ledger.acquire("bare", "someone", TTL))

    assert "the ledger holds no declaration" in ckpt.refused("stop", "bare", "--force", "--reason", "disk full")


def test_another_ledgers_receipts_are_adopted(ckpt: Ckpt, ledger: Ledger, tmp_path: Path) -> None:
    with Ledger.open(new_ledger_file(tmp_path / "lost.db")) as lost:
        people = filled(lost, tmp_path)
    adopt = ("adopt", "people", "--ledger-id", lost.id, "--reason", "its disk is gone")
    file = ("--file", str(people.file))

    assert "this ledger has never run 'people'. Name the pipeline's declaration with --file." in ckpt.refused(*adopt)
    for dry in ((), ("--dry-run",)):
        wrong = ("adopt", "people", "--ledger-id", "nobody", "--reason", "its disk is gone", *file, *dry)
        refusal = ckpt.refused(*wrong)
        assert "the sink holds no receipts of ledger nobody for this pipeline." in refusal
        assert f"It holds receipts of these ledgers: {lost.id}." in refusal
    dry_run = ckpt.json(*adopt, *file, "--dry-run")
    assert ckpt.json("pipeline", "list") == []
    said = ckpt.json(*adopt, *file)
    people.ledger = ledger
    people.acquire().close()

    for document, adopted in ((dry_run, False), (said, True)):
        assert (document["adopted"], document["before"], document["after"]) == (adopted, ledger.id, lost.id)
    assert ckpt.json("pipeline", "show", "people")["sink_id"] == lost.id
    assert ckpt.json("inspect", "people", people.partition)["checkpoint"] == 6 * SIZE
