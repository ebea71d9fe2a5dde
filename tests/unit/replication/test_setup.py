"""Tests of the checks before a run begins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.setup import OpenConnectors, PipelineContext


@pytest.mark.parametrize(
    ("delivery", "promises", "refused"),
    [
        ("exactly_once", False, True),
        ("exactly_once", True, False),
        ("at_least_once", False, False),
        ("at_most_once", False, False),
    ],
)
def test_a_guarantee_that_the_sink_cannot_keep_is_refused(
    delivery: str, promises: bool, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = build(
        {
            "name": "orders",
            "source": {"type": "files", "path": "/in"},
            "transform": {"decode": "json", "schema": "id bigint"},
            "sink": {"type": "delta", "path": "/t"},
            "delivery": delivery,
        }
    )
    half = SimpleNamespace(exactly_once=promises, check=lambda **_: None)
    monkeypatch.setattr(registry, "open_source", lambda *_: half)
    monkeypatch.setattr(registry, "open_sink", lambda *_: half)
    ledger = cast("Ledger", SimpleNamespace(sink_id=lambda _: "ledger"))
    opened = OpenConnectors(
        PipelineContext(pipeline, ledger, connections=lambda _: pytest.fail("no connection"), owner="test")
    )

    if refused:
        with pytest.raises(ConfigError, match="exactly_once is not supported by a delta sink"):
            opened.check()
    else:
        opened.check()
