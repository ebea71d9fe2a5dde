"""Tests of the commands that show state: status, inspect, audit, lease, and the list of pipelines."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from airflow_provider_ckpt.cli import pipelines
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import tables
from airflow_provider_ckpt.replication.process_lease_owner import of_this_process
from tests.integration.airflow.ckpt import Ckpt, damage
from tests.integration.ledger.ledger_driver import UNNAMED, LedgerDriver, delivered, failed


def test_status_is_the_same_document_in_json_and_yaml(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.settle(*(delivered(batch) for batch in orders.send(10)))

    as_json, as_yaml = ckpt.json("status", "orders"), ckpt.yaml("status", "orders")

    assert as_json == as_yaml
    assert as_json["partitions"][0]["committed"] == 10
    assert next(iter(as_yaml)) == "pipeline"


def test_all_that_is_not_resolved_is_listed(ckpt: Ckpt, orders: LedgerDriver) -> None:
    first, second = orders.send(10, 20)
    orders.settle(failed(first, UNNAMED), delivered(second))

    shown = ckpt.json("inspect", "orders")
    text = ckpt.table("inspect", "orders")

    assert [(item["batch"], item["state"], item["range"]) for item in shown["batches"]] == [("t#0", "planned", [0, 10])]
    assert shown["batches"][0]["error"]["message"] == "nobody knows"
    assert "nobody knows" in text


def test_a_batch_shows_its_attempts_and_its_error(ckpt: Ckpt, orders: LedgerDriver) -> None:
    (batch,) = orders.send(10)
    orders.settle(failed(batch, UNNAMED))

    shown = ckpt.json("inspect", "orders", "t#0")

    assert (shown["state"], shown["attempts"], shown["error"]["type"]) == ("planned", 1, "Generic")
    assert [(item["attempt"], item["outcome"], item["run"]) for item in shown["attempt_history"]] == [
        (1, "failed", "run 1")
    ]
    assert [event["kind"] for event in shown["events"]] == ["failed"]
    assert "nobody knows" in ckpt.table("inspect", "orders", "t#0")


def test_a_batch_that_waits_for_an_earlier_one_shows_its_receipt(ckpt: Ckpt, orders: LedgerDriver) -> None:
    _, second = orders.send(10, 20)
    orders.settle(delivered(second, dead=2, dead_letters={"Serialization": 2}))

    shown = ckpt.json("inspect", "orders", "t#1")

    assert (shown["state"], shown["receipt"]["verdict"]) == ("delivered", "delivered")
    assert shown["dead_letters"] == {"Serialization": 2}


def test_a_batch_below_the_checkpoint_is_said_to_be_there(ckpt: Ckpt, orders: LedgerDriver) -> None:
    (batch,) = orders.send(10)
    orders.settle(delivered(batch, dead=10))

    shown = ckpt.json("inspect", "orders", "t#0")

    assert shown["state"] is None
    assert "the checkpoint has passed it" in shown["remark"]
    assert shown["dead_letters"] == {"unknown": 10}


def test_a_partition_shows_its_generations_receipts_and_batches(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.settle(*(delivered(batch) for batch in orders.send(10, 20)))
    orders.plan(30)

    shown = ckpt.json("inspect", "orders", "t")

    assert (shown["checkpoint"], shown["planned_to"], shown["next_seq"]) == (20, 30, 3)
    assert [(item["from"], item["to"], item["batches"]) for item in shown["receipts"]] == [(0, 20, 2)]
    assert [item["batch"] for item in shown["batches"]] == ["t#2"]
    assert [(item["generation"], item["ended"]) for item in shown["generations"]] == [(1, None)]


def test_a_partition_may_be_named_like_a_batch(ckpt: Ckpt, ledger: Ledger) -> None:
    LedgerDriver(ledger).start("topic#0").plan(10, name="topic#0")

    assert ckpt.json("inspect", "orders", "topic#0")["partition"] == "topic#0"
    assert ckpt.json("inspect", "orders", "topic#0#0")["batch"] == "topic#0#0"


def test_what_is_not_there_is_one_line(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.plan(10)

    assert "batch t#7: there is no such batch. The partition is in generation 1; 1 is the next number there." in (
        ckpt.refused("inspect", "orders", "t#7")
    )
    assert "'tt' is not a batch; write partition#seq" in ckpt.refused("inspect", "orders", "tt")
    assert "Or name a partition: t." in ckpt.refused("inspect", "orders", "tt")
    assert "there is no partition 'u'. Known: t." in ckpt.refused("inspect", "orders", "u#0")


def test_every_command_names_the_nearest_pipelines(ckpt: Ckpt, orders: LedgerDriver) -> None:
    for command in ("status", "inspect", "audit", "lease", "drain", "stop", "resume"):
        assert "the ledger knows no pipeline 'ordres'. Did you mean orders?" in ckpt.refused(command, "ordres")


def test_a_sound_ledger_passes_its_audit(ckpt: Ckpt, orders: LedgerDriver) -> None:
    one, two, three = orders.send(10, 20, 30)
    orders.settle(delivered(one), delivered(two, dead=3, dead_letters={"Serialization": 3}), failed(three, UNNAMED))

    for arguments in (("audit", "orders"), ("audit", "orders", "--quick")):
        result = ckpt.json(*arguments)
        assert (result["ok"], result["violations"]) == (True, [])
        assert result["accounted"]["t"]["checkpoint"] == 20
    assert "audit passed         yes" in ckpt.table("audit", "orders")


def test_an_audit_fails_where_an_invariant_does_not_hold(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.plan(10)
    c = tables.partition.c
    damage(tables.partition.update().where(c.pipeline == "orders").values(committed=10))

    result, said = ckpt.failed("audit", "orders")
    done = ckpt.run("audit", "orders")

    assert result["ok"] is False
    assert "PlannedWorkVisibleToCheckpoint" in {violation["name"] for violation in result["violations"]}
    assert "PlannedWorkVisibleToCheckpoint" in said
    assert done.status == 1
    assert "PlannedWorkVisibleToCheckpoint" in done.out


def test_the_lease_says_who_holds_it(ckpt: Ckpt, ledger: Ledger) -> None:
    mine = LedgerDriver(ledger, owner=of_this_process())

    held = ckpt.json("lease", "orders")
    ledger.release(mine.lease)
    free = ckpt.json("lease", "orders")

    assert (held["held"], held["owner"], held["owner_is_dead"], held["broken"]) == (True, mine.lease.owner, False, None)
    assert (free["held"], free["owner"], free["epoch"]) == (False, None, held["epoch"])
    assert "lease      free" in ckpt.table("lease", "orders")


def test_a_lease_is_broken_with_a_reason_and_its_owner_is_shut_out(ckpt: Ckpt, orders: LedgerDriver) -> None:
    assert "lease --break needs a reason" in ckpt.refused("lease", "orders", "--break")
    dry = ckpt.json("lease", "orders", "--break", "--reason", "host is gone", "--dry-run")
    wet = ckpt.json("lease", "orders", "--break", "--reason", "host is gone")
    again = ckpt.json("lease", "orders", "--break", "--reason", "host is gone")

    assert (dry["broken"], dry["held"], dry["epoch"]) == (False, True, 1)
    assert (wet["broken"], wet["held"], wet["owner"], wet["epoch"]) == (True, False, "first", 2)
    assert (again["broken"], again["epoch"]) == (False, 2)
    assert "lease_broken" in {event["kind"] for event in orders.ledger.events("orders")}


def test_pipelines_are_listed_shown_and_forgotten(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.ledger.declare(orders.lease, {"name": "orders", "source": {"type": "files"}})
    orders.plan(10)
    LedgerDriver(orders.ledger, pipeline="people")

    listed = ckpt.json("pipeline", "list")
    shown = ckpt.json("pipeline", "show", "orders")

    assert [(item["pipeline"], item["lease"], item["batches"]) for item in listed] == [
        ("orders", "first", {"planned": 1}),
        ("people", "first", {}),
    ]
    assert shown["declaration"] == {"name": "orders", "source": {"type": "files"}}
    assert shown["sink_id"] == shown["ledger"] == orders.ledger.id
    assert "type: files" in ckpt.table("pipeline", "show", "orders")
    assert "It has no declaration" in ckpt.table("pipeline", "show", "people")


def test_a_pipeline_that_ran_while_its_deletion_was_confirmed_is_not_deleted(
    ckpt: Ckpt, orders: LedgerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.ledger.release(orders.lease)

    def run_meanwhile(*_: object) -> None:
        orders.ledger.release(orders.ledger.acquire("orders", "second", timedelta(minutes=1)))

    monkeypatch.setattr(pipelines, "confirm", run_meanwhile)
    said = ckpt.refused("pipeline", "delete", "orders", "--reason", "moved to another ledger")

    assert "has been acquired since" in said
    assert "orders" in orders.ledger.pipelines()


@pytest.mark.parametrize(
    ("kind", "table", "staging"),
    [
        ("sql", "shop.target", r"shop\.ckpt_stage_1_[0-9a-f]{16}_target"),
        ("postgres", "target", '"ckpt_stage_1_target"'),
    ],
)
def test_the_deletion_of_a_pipeline_names_the_staging_tables_that_it_leaves(
    ckpt: Ckpt, orders: LedgerDriver, kind: str, table: str, staging: str
) -> None:
    source = {"type": kind, "connection": "shop", "table": "orders", "mode": "full"}
    sink = {"type": kind, "connection": "shop", "table": table, "mode": "replace"}
    orders.ledger.declare(orders.lease, {"name": "orders", "source": source, "sink": sink})
    orders.ledger.release(orders.lease)

    shown = ckpt.json("pipeline", "delete", "orders", "--reason", "moved to another ledger", "--dry-run")

    [name] = shown["staging_tables"]
    assert re.fullmatch(staging, name)


def test_a_pipeline_is_forgotten_only_by_someone_who_is_sure(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.plan(10)
    reason = ("--reason", "moved to another ledger")

    assert "another run holds the lease" in ckpt.refused("pipeline", "delete", "orders", *reason, "--yes")
    orders.ledger.release(orders.lease)
    assert "Add --yes if you are sure" in ckpt.refused("pipeline", "delete", "orders", *reason)
    dry = ckpt.json("pipeline", "delete", "orders", *reason, "--dry-run")
    assert ckpt.json("pipeline", "list") != []
    wet = ckpt.json("pipeline", "delete", "orders", *reason, "--yes")

    assert (dry["deleted"], dry["checkpoints"], dry["batches"]) == (False, {"t": 0}, {"planned": 1})
    assert wet["deleted"] is True
    assert ckpt.json("pipeline", "list") == []
