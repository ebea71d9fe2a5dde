"""``sink.create``: declarations in which a target's columns are not known are refused, with a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.core.errors import ConfigError

SOURCE = {"type": "postgres", "connection": "shop", "table": "orders", "cursor": "id"}
SINK = {"type": "postgres", "connection": "warehouse", "table": "orders", "create": True}


def declared(**parts: Any) -> Pipeline:
    """The declaration of a pipeline that creates its target, with other parts."""
    return build({"name": "orders", "source": SOURCE, "sink": SINK, **parts})


def test_a_target_is_created_only_if_the_pipeline_says_so() -> None:
    assert declared().sink.creates_target
    assert declared(transform={"where": "id > 1"}).sink.creates_target
    assert not declared(sink={**SINK, "create": False}).sink.creates_target


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"transform": {"select": {"id": "id"}}}, "transform.select chooses others; create the target"),
        (
            {"transform": {"python": "shop.rows:clean", "returns": "id bigint"}},
            "transform.python chooses others; create the target",
        ),
        (
            {"source": {"type": "kafka", "connection": "broker", "topic": "orders"}},
            "a kafka source does not tell the types of its columns; create the target and leave sink.create out",
        ),
        ({"sink": {"type": "sql", "connection": "s", "table": "t", "create": True}}, "no such key"),
        ({"sink": {**SINK, "create": "perhaps"}}, "sink.create"),
    ],
)
def test_a_target_whose_columns_are_unknown_is_refused(parts: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        declared(**parts)
