"""Declarations of full refreshes: source and sink mode go together, and errors say what to write instead."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.staging_name import staging_name
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.refresh import ReplaceLimits

SOURCE = {"type": "postgres", "connection": "shop", "table": "countries", "mode": "full"}
SINK = {"type": "postgres", "connection": "warehouse", "table": "countries", "mode": "replace"}


def declared(**parts: Any) -> Pipeline:
    """The declaration of a refresh with other parts."""
    return build({"name": "countries", "source": SOURCE, "sink": SINK, **parts})


@pytest.mark.parametrize(
    "sink",
    [
        SINK,
        {"type": "sql", "connection": "reports", "table": "t"},
        {"type": "delta", "path": "/t"},
        {"type": "iceberg", "connection": "lake", "table": "a.t"},
    ],
)
def test_a_refresh_needs_no_cursor_and_is_stored_as_it_was_declared(sink: dict[str, Any]) -> None:
    pipeline = declared(sink={**sink, "mode": "replace", "replace": {"max_shrink": "20%", "allow_empty": True}})

    assert pipeline.refreshes
    assert pipeline.sink.replaces == ReplaceLimits(allow_empty=True, max_shrink=Decimal("0.2"))
    assert Pipeline.model_validate(pipeline.document()) == pipeline
    assert not declared(
        source={**SOURCE, "mode": "incremental", "cursor": "id"}, sink={**sink, "mode": "append"}
    ).refreshes


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"sink": {**SINK, "mode": "append"}}, "write sink.mode: replace"),
        ({"sink": {**SINK, "mode": "upsert", "key": ["id"]}}, "write sink.mode: replace"),
        ({"sink": {"type": "kafka", "connection": "k", "topic": "t"}}, "write sink.mode: replace"),
        ({"sink": {"type": "kafka", "connection": "k", "topic": "t", "mode": "replace"}}, "no such key"),
        ({"sink": {"type": "files", "path": "/t", "format": "jsonl", "mode": "replace"}}, "no such key"),
        ({"sink": {"type": "delta", "path": "/t"}}, "write sink.mode: replace"),
        ({"sink": {"type": "delta", "path": "/t", "replace": {"allow_empty": True}}}, "replace requires mode: replace"),
        ({"sink": {"type": "sql", "connection": "s", "table": "t", "mode": "replace", "key": ["id"]}}, "leave key out"),
        ({"source": {**SOURCE, "mode": "incremental", "cursor": "id"}}, "write source.mode: full"),
        ({"source": {**SOURCE, "mode": "incremental"}}, "source.cursor: missing"),
        ({"source": {**SOURCE, "start_from": "latest"}}, "leave start_from out"),
        ({"schema": {"new_column": "evolve"}}, "leave it out"),
        ({"delivery": "at_most_once"}, "leave delivery out"),
        ({"sink": {**SINK, "replace": {"max_shrink": "half"}}}, "such as 50%"),
        ({"sink": {**SINK, "replace": {"swap": "move"}}}, "supported: rows, rename"),
        ({"sink": {"type": "delta", "path": "/t", "mode": "replace", "replace": {"swap": "rename"}}}, "unknown key"),
        (
            {"source": {**SOURCE, "mode": "incremental", "cursor": "id"},
             "sink": {**SINK, "mode": "append", "replace": {"swap": "rename"}}},
            "replace requires mode: replace",
        ),
        (
            {"source": {**SOURCE, "mode": "incremental", "cursor": "id"},
             "sink": {**SINK, "mode": "append", "replace": {"allow_empty": True}}},
            "replace requires mode: replace",
        ),
    ],
)  # fmt: skip
def test_what_is_no_refresh_is_refused_with_what_to_write(parts: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        declared(**parts)


def test_names_of_staging_tables_fit_and_differ() -> None:
    long = ["ä" * 40, "ä" * 39 + "b", "ä" * 40 + "c"]
    names = {staging_name(table, generation) for table in [*long, "t"] for generation in (1, 12)}

    assert len(names) == 8
    assert "ckpt_stage_12_t" in names
    assert max(len(name.encode()) for name in names) <= 63
