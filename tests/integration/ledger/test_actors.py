"""The ledger itself refuses an action without an actor, and one that gives something up without a reason."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.core.actions import NEED_A_REASON, Act, ActKind
from airflow_provider_ckpt.core.errors import ConfigError, LedgerStateError
from tests.integration.ledger.acts import Acts


@pytest.mark.parametrize("who", ["", "  "])
@pytest.mark.parametrize("kind", ActKind)
def test_an_action_without_an_actor_is_refused_and_says_so(acts: Acts, kind: ActKind, who: str) -> None:
    with pytest.raises(ConfigError, match="actor is missing"):
        acts.ledger.act("orders", Act(kind), who=who, why="because")
    with pytest.raises(ConfigError, match="actor is missing"):
        acts.ledger.act_under(acts.lease, Act(kind), who=who, why="because")
    assert acts.ledger.intents("orders") == []


@pytest.mark.parametrize("why", [None, "", " \t"])
@pytest.mark.parametrize("kind", sorted(NEED_A_REASON))
def test_an_action_that_needs_a_reason_is_refused_without_one(acts: Acts, kind: ActKind, why: str | None) -> None:
    with pytest.raises(ConfigError, match=f"{kind.value.replace('_', ' ')}: reason is missing"):
        acts.ledger.act("orders", Act(kind), who="ann", why=why)
    with pytest.raises(ConfigError, match="reason is missing"):
        acts.ledger.act_under(acts.lease, Act(kind), who="ann", why=why)
    assert acts.ledger.intents("orders") == []


def test_what_takes_the_lease_or_the_history_needs_both(acts: Acts) -> None:
    ledger = acts.ledger
    for who, why in (("", "because"), ("ann", "")):
        with pytest.raises(ConfigError, match="is missing"):
            ledger.break_lease("orders", who=who, why=why)
        with pytest.raises(ConfigError, match="is missing"):
            ledger.adopt(acts.lease, "other", who=who, why=why)
        with pytest.raises(ConfigError, match="is missing"):
            ledger.forget("orders", who=who, why=why)
    ledger.renew(acts.lease)


def test_an_action_of_the_sink_is_never_stored(acts: Acts) -> None:
    for kind in (ActKind.ACCEPT_SINK, ActKind.MOVE):
        with pytest.raises(LedgerStateError, match="not carried out by the ledger alone"):
            acts.ledger.act("orders", Act(kind), who="ann", why="because")
    assert acts.ledger.intents("orders") == []
