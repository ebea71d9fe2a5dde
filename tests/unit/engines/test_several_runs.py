"""Several runs in one process: how many lanes each may occupy while others wait, and how many runs begin."""

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
        lanes.append(given.turn.most_lanes)
        if given.pipeline.name == "first":
            assert others.wait(30)
            deadline = time.monotonic() + 30
            while given.turn.most_lanes is not None and time.monotonic() < deadline:
                given.check()  # the main thread has yet to see that the others have ended
            lanes.append(given.turn.most_lanes)
        if given.pipeline.name == "last":
            others.set()
        return SimpleNamespace(to_json=lambda: {"route": []})

    monkeypatch.setattr(several_runs, "replicate", replicate)
    monkeypatch.setattr(several_runs, "make_engine", lambda pipeline: None)
    setups = {name: setup(name) for name in ("first", "second", "last")}

    monkeypatch.setattr(several_runs, "starts_own_spark", lambda _: False)

    ended = several_runs.run_several(setups, 2, lanes_each=3)

    assert seen == {"first": [3, None], "second": [3], "last": [3]}
    assert {result.state for result in ended.values()} == {"done"}


@pytest.mark.parametrize(("own_spark", "most"), [(True, 2), (False, 4)])
def test_runs_with_a_spark_of_their_own_do_not_keep_it_while_others_work(
    monkeypatch: pytest.MonkeyPatch, own_spark: bool, most: int
) -> None:
    begun, together = threading.Semaphore(0), threading.Event()
    now: set[str] = set()
    found: list[int] = []

    def replicate(given: PipelineContext, engine: object) -> Any:
        now.add(given.pipeline.name)
        found.append(len(now))
        given.turn.leave()
        begun.release()
        assert together.wait(30)
        assert not (own_spark and given.turn.must_pause(0, 1))
        while not given.turn.take(1):
            given.check()
        now.remove(given.pipeline.name)
        return SimpleNamespace(to_json=lambda: {"route": []})

    def let_go() -> None:
        for _ in range(most):
            assert begun.acquire(timeout=30)
        time.sleep(0.2)  # another one could begin
        together.set()

    monkeypatch.setattr(several_runs, "replicate", replicate)
    monkeypatch.setattr(several_runs, "make_engine", lambda pipeline: None)
    monkeypatch.setattr(several_runs, "starts_own_spark", lambda _: own_spark)
    setups = {name: setup(name) for name in "abcdefgh"}
    threading.Thread(target=let_go).start()

    ended = several_runs.run_several(setups, 2)

    assert {result.state for result in ended.values()} == {"done"}
    assert max(found) == most
