"""After a user has accepted a changed sink, its audit lists the accepted loss, and reports only new differences."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_ckpt.replication.actions import accept_sink
from airflow_provider_ckpt.replication.actions.carry_out_action import ActionContext, change_sink
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from tests.integration.replication.test_restored_sink import back_up, counted, refused, restore
from tests.services.replication import Replication
from tests.services.tables import add_rows, execute


def audited(orders: Replication) -> dict[str, Any]:
    """Run the audit against the sink, which must find no difference, and return its result."""
    found = audit_sink(orders.setup(), lambda _: None)
    assert found["differences"] == []
    assert found["compared"]["target_rows"] is not None
    return found


def differences(orders: Replication) -> list[str]:
    """Kinds of what ledger and sink disagree about."""
    return [item["kind"] for item in audit_sink(orders.setup(), lambda _: None)["differences"]]


def accept(orders: Replication, *, resend: bool, start: dict[str, int] | None = None) -> None:
    """Accept the sink as a person would."""
    refused(orders)
    setup = orders.setup()
    action = accept_sink.make_acceptance(setup, resend=resend, start=start)
    assert change_sink(ActionContext(orders.ledger, "orders", lambda: setup, "ann", "seen"), action)["applied"]


def lost(found: dict[str, Any]) -> list[tuple[list[int], int]]:
    """Range and delivered records of each accepted loss of receipts."""
    return [(item["range"], item["counts"]["delivered"]) for item in found["accepted_losses"]["lost"]]


def test_a_restored_sink_agrees_once_it_was_sent_its_loss_again(orders: Replication) -> None:
    orders.run()
    back_up(orders.dsn)
    add_rows(orders.dsn, "orders", 1001, 1501)
    orders.run()
    restore(orders.dsn)
    accept(orders, resend=True)
    orders.run()
    assert counted(orders) == (1500, 1500)

    assert lost(audited(orders)) == [([1001, 1501], 500)]

    add_rows(orders.dsn, "orders", 1501, 1601)
    orders.run()
    audited(orders)
    execute(orders.dsn, "CREATE TABLE kept AS TABLE ckpt_sink_receipt", "DELETE FROM target WHERE id = 1001")
    assert differences(orders) == ["TargetRowsDiffer"]
    execute(orders.dsn, "INSERT INTO target SELECT * FROM orders WHERE id = 1001")
    execute(orders.dsn, "DELETE FROM ckpt_sink_receipt WHERE range_start = 1001", "DELETE FROM target WHERE id = 1001")
    assert "ReceiptMissing" in differences(orders)
    execute(orders.dsn, "DELETE FROM ckpt_sink_receipt", "INSERT INTO ckpt_sink_receipt TABLE kept")
    execute(orders.dsn, "DELETE FROM ckpt_sink_receipt WHERE seq = 3 AND generation = 1")
    assert differences(orders)[0] == "ReceiptMissing"


def test_a_hole_that_was_filled_again_agrees(orders: Replication) -> None:
    orders.run()
    gone = ("DELETE FROM target WHERE id BETWEEN 301 AND 500 OR id > 900", "seq IN (3, 4, 9)")
    execute(orders.dsn, gone[0], f"DELETE FROM ckpt_sink_receipt WHERE {gone[1]}")
    accept(orders, resend=True)
    orders.run()

    found = audited(orders)

    assert sum(records for _, records in lost(found)) == 300
    execute(
        orders.dsn, "DELETE FROM ckpt_sink_receipt WHERE seq = 6", "DELETE FROM target WHERE id BETWEEN 601 AND 700"
    )
    assert differences(orders) == ["ReceiptMissing"]


@pytest.mark.parametrize("start", [None, {"public.orders": 1}])
def test_a_truncated_target_agrees_once_all_of_it_was_sent_again(
    orders: Replication, start: dict[str, int] | None
) -> None:
    orders.run()
    add_rows(orders.dsn, "orders", 1001, 1301)
    orders.run()
    execute(orders.dsn, "TRUNCATE target")
    accept(orders, resend=True, start=start)
    orders.run()
    assert counted(orders) == (1300, 1300)

    assert audited(orders)["accepted_losses"]["rows_missing"] == 1300

    execute(orders.dsn, "DELETE FROM target WHERE id = 5")
    assert differences(orders) == ["TargetRowsDiffer"]


def test_a_loss_that_was_given_up_is_listed_and_no_difference_though_events_are_collected(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "DELETE FROM target WHERE id > 900", "DELETE FROM ckpt_sink_receipt WHERE seq = 9")
    accept(orders, resend=False)
    add_rows(orders.dsn, "orders", 1001, 1101)
    orders.run()
    assert counted(orders) == (1000, 1000)
    later = datetime.now(UTC) + timedelta(days=90)
    orders.ledger.garbage_collect("orders", keep=timedelta(days=1), actor="ann", now=later)

    assert lost(audited(orders)) == [([901, 1001], 100)]

    execute(
        orders.dsn, "DELETE FROM ckpt_sink_receipt WHERE seq = 8", "DELETE FROM target WHERE id BETWEEN 801 AND 900"
    )
    assert differences(orders) == ["ReceiptMissing"]


def test_lost_bookkeeping_that_was_given_up_is_no_difference_and_neither_is_a_second_loss(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "DROP TABLE ckpt_sink_fence, ckpt_sink_receipt")
    accept(orders, resend=False)
    add_rows(orders.dsn, "orders", 1001, 1201)
    orders.run()
    assert audited(orders)["accepted_losses"]["rows_missing"] == -1000

    execute(orders.dsn, "TRUNCATE target")
    assert differences(orders) == ["SinkChanged", "TargetRowsDiffer"]
    accept(orders, resend=False)
    add_rows(orders.dsn, "orders", 1201, 1301)
    orders.run()

    assert counted(orders) == (100, 100)
    audited(orders)


def test_a_pipeline_that_moved_is_not_asked_for_what_the_sink_so_far_keeps(orders: Replication) -> None:
    orders.run()
    execute(orders.dsn, "CREATE SCHEMA archive", "CREATE TABLE archive.orders (LIKE target)")
    add_rows(orders.dsn, "orders", 1001, 1101)
    moved = orders.changed(sink={"table": "archive.orders"})
    setup = orders.setup()
    asked = ActionContext(orders.ledger, "orders", lambda: setup, "ann", "another table")
    assert change_sink(asked, accept_sink.make_move(setup))["applied"]
    moved.run()

    audited(moved)

    execute(orders.dsn, "DELETE FROM archive.orders WHERE id = 1050")
    assert differences(moved) == ["TargetRowsDiffer"]
