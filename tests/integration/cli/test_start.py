"""A pipeline that has not begun: users see ``start`` in place of the smallest position."""

from __future__ import annotations

import io

import pytest

from airflow_provider_ckpt.cli import run
from airflow_provider_ckpt.core.ranges import START
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.run.summary import RunSummary
from tests.integration.airflow.ckpt import Ckpt
from tests.integration.ledger.ledger_driver import LedgerDriver, delivered


@pytest.fixture
def orders(ledger: Ledger) -> LedgerDriver:
    """Pipeline ``orders`` on a source with a cursor; its first batch is planned."""
    return LedgerDriver(ledger).start("t", base=START)


@pytest.mark.parametrize(
    "command",
    [
        "status orders",
        "inspect orders",
        "inspect orders t",
        "inspect orders t#0",
        "audit orders",
        "pipeline show orders",
    ],
)
def test_no_table_shows_the_least_number(ckpt: Ckpt, orders: LedgerDriver, command: str) -> None:
    orders.plan(1000, records=10)

    shown = ckpt.table(*command.split())

    assert "start" in shown.split() or "start," in shown.split()
    assert "9223" not in shown.replace(",", "")


def test_json_keeps_the_number(ckpt: Ckpt, orders: LedgerDriver) -> None:
    assert ckpt.json("status", orders.lease.pipeline)["partitions"][0]["committed"] == START


def test_a_rewind_to_it_is_shown_by_its_name(ckpt: Ckpt, orders: LedgerDriver) -> None:
    orders.settle(*map(delivered, orders.begin(orders.plan(2000, records=10))))
    orders.ledger.release(orders.lease)

    shown = ckpt.table("rewind", "orders", "--to-position", "start", "--reason=wrong rates", "--dry-run")

    assert "2000 (generation 1)" in shown
    assert "start (generation 2)" in shown


def test_the_summary_of_the_first_run_begins_there() -> None:
    summary = RunSummary("orders", 1, checkpoint={"t": {"before": START, "after": 1000}}, lag={"t": 3, "u": None})

    out = io.StringIO()
    run._table(summary.to_json(), out)

    assert "start → 1000" in out.getvalue()
    assert "t 3, u not begun" in out.getvalue()
