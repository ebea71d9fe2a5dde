"""Tests of the progress of all pipelines of a declaration of many tables, on both databases."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.ledger.queries.database_progress import PipelineProgress
from tests.integration.ledger.ledger_driver import LedgerDriver, delivered

ORDERS = "shop.public.orders"


@pytest.fixture
def orders(driver: LedgerDriver) -> LedgerDriver:
    """A pipeline of a declaration that has begun at 0."""
    return LedgerDriver(driver.ledger, pipeline=ORDERS).start("public.orders")


def progress(orders: LedgerDriver) -> PipelineProgress:
    return orders.ledger.database_progress("shop")[ORDERS]


def test_pipelines_are_recorded_together_and_only_once(driver: LedgerDriver) -> None:
    driver.ledger.register(["shop.public.a", "shop.public.b"])
    driver.ledger.register(["shop.public.b", "shop.public.c"])
    driver.ledger.register(["shops.public.d", "shopXpublic"])

    assert driver.ledger.database_progress("shop") == dict.fromkeys(
        ["shop.public.a", "shop.public.b", "shop.public.c"], PipelineProgress()
    )
    assert driver.ledger.database_progress("sho_") == {}


def test_registration_leaves_a_pipeline_that_runs_as_it_is(orders: LedgerDriver) -> None:
    [batch] = orders.send(10, name="public.orders")
    orders.ledger.register([ORDERS])

    assert orders.settle(delivered(batch)).checkpoint == {"public.orders": 10}


def test_a_pipeline_is_unfinished_until_its_last_batch_has_a_verdict(orders: LedgerDriver) -> None:
    begun = progress(orders)
    batches = orders.begin(orders.plan(10, 20, name="public.orders"))
    planned = progress(orders)
    orders.settle(delivered(batches[1]))
    behind = progress(orders)
    orders.settle(delivered(batches[0]))

    assert (begun.planned_end, begun.unfinished) == (0, False)
    assert (planned.planned_end, planned.unfinished) == (20, True)
    assert behind.unfinished
    assert (progress(orders).planned_end, progress(orders).unfinished) == (20, False)


def test_a_stored_action_is_work(orders: LedgerDriver) -> None:
    orders.ledger.action(ORDERS, Action(ActionKind.DRAIN), actor="ann", reason="maintenance")
    stored = progress(orders)
    orders.ledger.apply_stored_actions(orders.lease, now=orders.now, behind_fence=True)

    assert stored.unfinished
    assert not progress(orders).unfinished


def test_an_acceptance_of_columns_is_no_work_any_more_after_a_run_that_does_not_compare_columns(
    orders: LedgerDriver,
) -> None:
    accepted = Action(ActionKind.ACCEPT_SCHEMA, fingerprint="f", changes=("column note is new",))
    orders.ledger.action(ORDERS, accepted, actor="ann", reason="agreed")
    assert orders.ledger.apply_stored_actions(orders.lease, now=orders.now, behind_fence=True) == []
    assert progress(orders).unfinished

    [result] = orders.ledger.apply_stored_actions(orders.lease, now=orders.now, compares_columns=False)

    assert not result.applied
    assert not progress(orders).unfinished
    [event] = [event for event in orders.ledger.events(ORDERS) if event["kind"] == "action_refused"]
    assert "no longer has the section schema" in event["detail"]["refusal"]
