"""Tests of actions on the command line: hold, skip, drain and stop, with and without a run in progress."""

from __future__ import annotations

import os
import pwd
import socket
from datetime import UTC, datetime, timedelta, timezone

import pytest

from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.process_lease_owner import of_this_process
from tests.integration.airflow.ckpt import Ckpt
from tests.integration.ledger.ledger_driver import LedgerDriver, delivered

ME = f"cli:{pwd.getpwuid(os.getuid()).pw_name}@{socket.gethostname()}"


def ended(orders: LedgerDriver) -> None:
    """The run is over; nobody holds the lease."""
    orders.ledger.release(orders.lease)


def test_a_batch_is_held_released_and_skipped_by_name(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.plan(10, 20)
    ended(orders)

    held = ckpt.json("hold", "orders", "t#0", "t#1", "--reason", "wait for the fix")
    released = ckpt.json("release", "orders", "--all")
    skipped = ckpt.json("skip", "orders", "t#0", "--reason", "a test order")

    assert (held["applied"], held["action"], held["waits_for"]) == (True, "hold", None)
    assert held["before"]["batches"] == {"t#0": "planned", "t#1": "planned"}
    assert held["after"]["batches"] == {"t#0": "held", "t#1": "held"}
    assert (released["before"]["held"], released["after"]["held"]) == (2, 0)
    assert skipped["after"]["batches"] == {"t#0": None}
    assert orders.partition().committed == 10


def test_the_audit_trail_names_the_person_and_the_reason(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.plan(10)
    ended(orders)

    said = ckpt.json("hold", "orders", "t#0", "--reason", "wait for the fix")

    (event,) = orders.events("hold")
    assert said["actor"] == event["actor"] == ME
    assert event["detail"]["reason"] == "wait for the fix"


def test_a_person_sees_before_and_after(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.plan(10)
    ended(orders)

    shown = ckpt.table("hold", "orders", "t#0", "--reason", "wait for the fix")

    assert "wait for the fix" in shown
    assert shown.splitlines()[-2].split() == ["t#0", "planned", "held"]


def test_an_act_waits_for_the_run_that_holds_the_lease(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.plan(10)

    stored = ckpt.json("hold", "orders", "t#0")
    shown = ckpt.table("drain", "orders")

    assert (stored["applied"], stored["intent"]) == (False, 1)
    assert stored["waits_for"]["owner"] == "first"
    assert "stored as action 2; the run that holds the lease applies it: first, epoch 1" in shown
    assert [intent.action.kind.value for intent in orders.ledger.stored_actions("orders")] == ["hold", "drain"]
    assert [intent["action"] for intent in ckpt.json("status", "orders")["intents"]] == ["hold", "drain"]


def test_a_dead_process_of_this_machine_keeps_nobody_waiting(ckpt: Ckpt, ledger: Ledger) -> None:
    host, start = socket.gethostname(), "1"
    LedgerDriver(ledger, owner=f"cli:{host}:1:{start}").start("t").plan(10)

    assert ckpt.json("hold", "orders", "t#0")["applied"] is True


def test_a_living_process_does(ckpt: Ckpt, ledger: Ledger) -> None:
    LedgerDriver(ledger, owner=of_this_process()).start("t").plan(10)

    assert ckpt.json("hold", "orders", "t#0")["applied"] is False


@pytest.mark.parametrize("busy", [False, True])
def test_a_dry_run_shows_the_same_and_stores_nothing(ckpt: Ckpt, orders: LedgerDriver, busy: bool) -> None:
    orders.plan(10)
    if not busy:
        ended(orders)
    before = orders.ledger.status("orders")

    shown = ckpt.json("skip", "orders", "t#0", "--reason", "a test order", "--dry-run")

    assert (shown["applied"], shown["dry_run"], shown["intent"]) == (False, True, None)
    assert (shown["before"]["batches"], shown["after"]["batches"]) == ({"t#0": "planned"}, {"t#0": None})
    assert (shown["waits_for"] is not None) is busy
    assert orders.ledger.status("orders") == before


def test_skipping_what_was_begun_says_who_carries_it_out(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.send(10)
    orders.again()
    orders.reconcile()
    ended(orders)

    said = ckpt.json("skip", "orders", "t#0", "--reason", "a test order")

    assert said["after"]["batches"] == {"t#0": "planned"}
    assert "the next attempt claims `void`" in said["next"]
    assert ckpt.json("inspect", "orders", "t#0")["instruction"] == "void"


def test_what_does_not_fit_is_refused_as_a_whole(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.plan(10, 20)
    ended(orders)

    said = ckpt.refused("release", "orders", "t#0")
    ckpt.refused("hold", "orders", "t#0", "t#7")

    assert "pipeline orders, batch t#0: it is planned, not held" in said
    assert "airflow ckpt inspect orders" in said
    assert {state.value for state in orders.states().values()} == {"planned"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("hold", "order", "t#0"), "the ledger knows no pipeline 'order'. Did you mean orders?"),
        (("hold", "orders", "t-0"), "'t-0' is not a batch; write partition#seq"),
        (("hold", "orders", "u#0"), "there is no partition 'u'. Known: t."),
        (("hold", "orders", "t#0@2"), "generation 2 "),
        (("release", "orders"), "name the batches to release, or add --all"),
        (("release", "orders", "t#0", "--all"), "name the batches to release, or add --all"),
        (("skip", "orders", "t#0", "--reason", " "), "skip needs a reason"),
        (("stop", "orders", "--force"), "stop --force needs a reason"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(
    ckpt: Ckpt, orders: LedgerDriver, arguments: tuple[str, ...], says: str
) -> None:
    orders.plan(10)
    ended(orders)

    assert says in ckpt.refused(*arguments)


def test_a_missing_reason_is_a_mistake_in_the_call(ckpt: Ckpt, orders: LedgerDriver) -> None:
    done = ckpt.run("skip", "orders", "t#0")

    assert done.status == 2
    assert "--reason" in done.err


def test_a_pipeline_drains_stops_and_resumes(ckpt: Ckpt, orders: LedgerDriver) -> None:
    ended(orders)

    phases = [ckpt.json(action, "orders")["after"]["phase"] for action in ("drain", "stop", "resume")]

    assert phases == ["draining", "stopped", "running"]


def test_stop_drains_by_itself_where_nothing_is_in_flight(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.plan(10)
    ended(orders)

    dry = ckpt.json("stop", "orders", "--dry-run")
    wet = ckpt.json("stop", "orders", "--reason", "maintenance")

    for said in (dry, wet):
        assert (said["action"], said["before"]["phase"], said["after"]["phase"]) == ("stop", "running", "stopped")
    assert (dry["applied"], wet["applied"]) == (False, True)
    assert ckpt.json("status", "orders")["batches"] == {"planned": 1}


def test_stop_leaves_a_pipeline_draining_where_something_is_in_flight(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.send(10)
    ended(orders)

    dry, _ = ckpt.failed("stop", "orders", "--dry-run")
    result, said = ckpt.failed("stop", "orders")

    assert dry["applied"] is False
    assert result["after"]["phase"] == "draining"
    assert "cannot be stopped: 1 batches are in flight" in said
    assert ckpt.json("status", "orders")["phase"] == "draining"
    assert "1 batches are in flight" in ckpt.refused("stop", "orders")


def test_stop_asks_the_run_that_holds_the_lease_to_drain_first(ckpt: Ckpt, orders: LedgerDriver) -> None:
    batches = orders.send(10)

    said = ckpt.json("stop", "orders")
    orders.settle(*(delivered(batch) for batch in batches))
    results = orders.ledger.apply_stored_actions(orders.lease, now=orders.lease.expires_at)

    assert (said["applied"], said["next"]) == (False, "the pipeline drains first, which is stored as action 1")
    assert [(result.action.kind.value, result.applied) for result in results] == [("drain", True), ("stop", True)]


def test_a_dry_run_of_a_forced_stop_shows_what_is_abandoned(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.send(10)

    said = ckpt.json("stop", "orders", "--force", "--reason", "disk full", "--dry-run")

    assert (said["action"], said["after"]["phase"], said["waits_for"]) == ("force_stop", "stopped", None)
    assert ckpt.json("status", "orders")["batches"] == {"in_flight": 1}


@pytest.mark.parametrize(
    ("minutes", "position"),
    [(0, 0), (5, 0), (10, 10), (19, 10), (20, 20), (60, 30)],
)
def test_a_rewind_to_a_time_goes_to_where_the_checkpoint_stood(
    ckpt: Ckpt, orders: LedgerDriver, minutes: int, position: int
) -> None:
    start = datetime.now(UTC)
    for number, batch in enumerate(orders.send(10, 20, 30), start=1):
        orders.settle(delivered(batch), now=start + timedelta(minutes=10 * number))
    ended(orders)
    moment = start + timedelta(minutes=minutes, seconds=1)
    rewind = ("rewind", "orders", "--reason", "wrong rates", "--dry-run", "--to-time")

    with_zone = ckpt.json(*rewind, moment.astimezone(timezone(timedelta(hours=5))).isoformat())
    in_utc = ckpt.json(*rewind, moment.replace(tzinfo=None).isoformat(), "--partition", "t")

    assert with_zone["before"]["checkpoint"] == {"t": [1, 30]}
    assert with_zone["after"]["checkpoint"] == in_utc["after"]["checkpoint"] == {"t": [2, position]}


@pytest.mark.parametrize(
    ("span", "says"),
    [
        (("--from", "5", "--to", "25"), "reaches beyond the checkpoint, 20"),
        (("--from", "5", "--to", "5"), "a range must not be empty"),
        (("--from", "5", "--to", "6", "--partition", "u"), "there is no source partition 'u'. Known: t."),
    ],
)
def test_a_stretch_that_cannot_be_read_is_refused(
    ckpt: Ckpt, orders: LedgerDriver, span: tuple[str, ...], says: str
) -> None:
    orders.settle(*(delivered(batch) for batch in orders.send(10, 20)))
    ended(orders)

    assert says in ckpt.refused("replay", "range", "orders", "--dry-run", *span)


def test_of_several_partitions_one_must_be_named(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.start("u")
    ended(orders)

    assert "it has 2 partitions. Name one: t, u." in ckpt.refused(
        "replay", "range", "orders", "--from", "0", "--to", "1"
    )
