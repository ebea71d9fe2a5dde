"""A ledger whose pipelines are in all the states that a page shows."""

from __future__ import annotations

from airflow_provider_ckpt.core.actions import Action, ActionKind
from airflow_provider_ckpt.core.task_owners import of_task
from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.integration.ledger.ledger_driver import BAD_DATA, LedgerDriver, delivered, failed

HOSTILE = "<script>alert(1)</script>\u202e'\""
"""Text that a page must show as text."""


def fill(url: str) -> None:
    """Make the pipelines.

    - ``orders``, run by the DAG ``shop``: a held batch, two delivered ones behind it, dead letters, hostile texts
    - ``prices``, run by ``shop`` and ``store``
    - ``bare``, run by the command line
    - ``orphan``, run by a DAG that Airflow does not know
    """
    with Ledger.open(url) as ledger:
        orders = LedgerDriver(ledger, of_task("shop", "manual__1", "orders", "replicate")).start("t")
        orders.deliver(*range(10, 110, 10))
        held, *good = orders.send(120, 130, 140)
        orders.settle(delivered(good[0], dead=3, dead_letters={"Sink": 3}), delivered(good[1]))
        orders.settle(failed(held, BAD_DATA))
        hold = Action(ActionKind.HOLD, (held.key,))
        ledger.action("orders", hold, actor=f"airflow:{HOSTILE}", reason=HOSTILE * 40_000)
        ledger.apply_stored_actions(orders.lease, now=orders.now)
        ledger.release(orders.lease)
        for dag in ("shop", "store"):
            prices = LedgerDriver(ledger, of_task(dag, "manual__1", "prices", "replicate"), "prices").start("t")
            prices.plan(prices.partition().planned_end + 10)
            ledger.release(prices.lease)
        for owner, name in (("cli:host:1:2", "bare"), (of_task("gone", "manual__1", "orphan", "replicate"), "orphan")):
            other = LedgerDriver(ledger, owner, name).start("t")
            other.deliver(10)
            ledger.release(other.lease)
