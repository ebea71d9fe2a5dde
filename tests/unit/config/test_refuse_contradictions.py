"""Declarations whose keys contradict each other are refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.core.error_policy import always_halts, default_action
from airflow_provider_ckpt.core.errors import ConfigError, ErrorInfo, ErrorType

TABLE = {"type": "postgres", "connection": "shop", "table": "orders"}
DECLARATION: dict[str, Any] = {"name": "orders", "source": {**TABLE, "cursor": "id"}, "sink": TABLE}


def refusal(**changes: Any) -> str:
    """Return the error of the declaration with other keys."""
    with pytest.raises(ConfigError) as caught:
        build({**DECLARATION, **changes})
    return caught.value.message


@pytest.mark.parametrize("action", ["dead_letter", "skip_and_log"])
@pytest.mark.parametrize("kind", [kind for kind in ErrorType if always_halts(kind)])
def test_no_override_drops_records_after_an_error_that_always_halts(kind: ErrorType, action: str) -> None:
    assert f"error_policy.{kind}: {action} would drop records" in refusal(error_policy={kind.value: action})


@pytest.mark.parametrize("action", ["halt", "retry"])
def test_an_error_that_always_halts_may_be_retried(action: str) -> None:
    assert build({**DECLARATION, "error_policy": {"Config": action}}).policy.overrides == {ErrorType.CONFIG: action}


def test_a_type_that_may_be_dropped_is_not_one_that_always_halts() -> None:
    for kind in ErrorType:
        errors = [ErrorInfo(kind, "", recoverable, state) for recoverable in (True, False) for state in (None, "22000")]
        assert always_halts(kind) == all(default_action(error) == "halt" for error in errors), kind


def test_a_partition_is_not_spread_over_lanes_where_order_matters() -> None:
    spread = {"strategy": "round_robin"}

    assert "refused for an upsert sink" in refusal(sink={**TABLE, "mode": "upsert", "key": ["id"]}, consumer=spread)
    topic = {"type": "kafka", "connection": "kafka", "topic": "orders"}
    assert "refused for kafka" in refusal(sink=topic, consumer=spread)


def test_columns_are_not_decoded() -> None:
    assert "leave transform.decode out" in refusal(transform={"decode": "json", "schema": "id int"})
