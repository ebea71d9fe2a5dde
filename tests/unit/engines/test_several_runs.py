"""Runs of several pipelines: how many lanes each may occupy while others wait, and after them."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.engines import several_runs
from airflow_provider_ckpt.replication.setup import PipelineContext


def setup(name: str) -> PipelineContext:
    place = {"type": "postgres", "connection": "db", "table": name}
    pipeline = build({"name": name, "source": {**place, "cursor": "id"}, "sink": place})
    return PipelineContext(pipeline, Any, Any, "test")  # type: ignore[arg-type]


def test_a_run_occupies_few_lanes_until_it_is_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[int | None]] = {}
    others = threading.Event()

    def replicate(given: PipelineContext, engine: object) -> Any:
        lanes = seen.setdefault(given.pipeline.name, [])
        lanes.append(given.most_lanes())
        if given.pipeline.name == "first":
            assert others.wait(30)
            deadline = time.monotonic() + 30
            while given.most_lanes() is not None and time.monotonic() < deadline:
                given.check()  # the main thread has yet to see that the others have ended
            lanes.append(given.most_lanes())
        if given.pipeline.name == "last":
            others.set()
        return SimpleNamespace(to_json=lambda: {"route": []})

    monkeypatch.setattr(several_runs, "replicate", replicate)
    monkeypatch.setattr(several_runs, "make_engine", lambda pipeline: None)
    setups = {name: setup(name) for name in ("first", "second", "last")}

    ended = several_runs.run_several(setups, 2, lanes_each=3)

    assert seen == {"first": [3, None], "second": [3], "last": [3]}
    assert {result.state for result in ended.values()} == {"done"}
