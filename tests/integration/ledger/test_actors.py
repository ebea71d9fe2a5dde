"""The ledger refuses an action without an actor, and an action that gives something up without a reason."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.core.action import HAVE_OWN_COMMAND, NEED_REASON, Action, ActionKind
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from tests.integration.ledger.ledger_driver import TTL, LedgerDriver


@pytest.mark.parametrize("actor", ["", "  "])
@pytest.mark.parametrize("kind", ActionKind)
def test_an_action_without_an_actor_is_refused_and_says_so(driver: LedgerDriver, kind: ActionKind, actor: str) -> None:
    with pytest.raises(ConfigError, match="actor is missing"):
        driver.ledger.action("orders", Action(kind), actor=actor, reason="because")
    with pytest.raises(ConfigError, match="actor is missing"):
        driver.ledger.act_under_lease(driver.lease, Action(kind), actor=actor, reason="because")
    assert driver.ledger.stored_actions("orders") == []


@pytest.mark.parametrize("reason", [None, "", " \t"])
@pytest.mark.parametrize("kind", sorted(NEED_REASON))
def test_an_action_that_needs_a_reason_is_refused_without_one(
    driver: LedgerDriver, kind: ActionKind, reason: str | None
) -> None:
    with pytest.raises(ConfigError, match=f"{kind.value.replace('_', ' ')}: reason is missing"):
        driver.ledger.action("orders", Action(kind), actor="ann", reason=reason)
    with pytest.raises(ConfigError, match="reason is missing"):
        driver.ledger.act_under_lease(driver.lease, Action(kind), actor="ann", reason=reason)
    assert driver.ledger.stored_actions("orders") == []


def test_what_takes_the_lease_or_the_history_needs_both(driver: LedgerDriver) -> None:
    ledger = driver.ledger
    for actor, reason in (("", "because"), ("ann", "")):
        with pytest.raises(ConfigError, match="is missing"):
            ledger.break_lease("orders", actor=actor, reason=reason)
        with pytest.raises(ConfigError, match="is missing"):
            ledger.adopt(driver.lease, "other", actor=actor, reason=reason)
        with pytest.raises(ConfigError, match="is missing"):
            ledger.delete_pipeline("orders", actor=actor, reason=reason)
    ledger.renew(driver.lease)


def test_an_action_with_a_command_of_its_own_is_neither_stored_nor_applied(driver: LedgerDriver) -> None:
    for kind in sorted(HAVE_OWN_COMMAND):
        with pytest.raises(LedgerStateError, match="a command of its own"):
            driver.ledger.action("orders", Action(kind), actor="ann", reason="because")
        with pytest.raises(LedgerStateError, match="a command of its own"):
            driver.ledger.act_under_lease(driver.lease, Action(kind), actor="ann", reason="because")
    assert driver.ledger.stored_actions("orders") == []


def test_a_lease_is_broken_and_a_pipeline_deleted_only_under_the_epoch_that_was_seen(driver: LedgerDriver) -> None:
    ledger, seen = driver.ledger, driver.lease.epoch
    later = ledger.acquire("orders", "first", TTL)

    with pytest.raises(LedgerStateError, match=f"its epoch is {later.epoch}, and was {seen}"):
        ledger.break_lease("orders", actor="ann", reason="because", epoch=seen)
    ledger.renew(later)
    ledger.release(later)
    with pytest.raises(LedgerStateError, match="nobody holds the lease"):
        ledger.break_lease("orders", actor="ann", reason="because", epoch=later.epoch)
    with pytest.raises(LedgerStateError, match=f"its epoch is {later.epoch}, and was {seen}"):
        ledger.delete_pipeline("orders", actor="ann", reason="because", epoch=seen)
    assert ledger.pipelines() == ["orders"]


def test_an_action_of_the_sink_is_never_stored(driver: LedgerDriver) -> None:
    for kind in (ActionKind.RESEND_TO_SINK, ActionKind.KEEP_SINK, ActionKind.MOVE):
        with pytest.raises(LedgerStateError, match="not carried out by the ledger alone"):
            driver.ledger.action("orders", Action(kind), actor="ann", reason="because")
    assert driver.ledger.stored_actions("orders") == []
