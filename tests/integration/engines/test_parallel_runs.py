"""Several pipelines run in one process on each engine: all targets are right, and a failure stops no other run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.replication.run.parallel_runs import Limits, ParallelRuns, SharedTurn
from airflow_provider_ckpt.replication.run.summary import RunSummary
from tests.integration.engines.engine_setup import EngineSetup, Kind
from tests.services.replication import orders_pipeline
from tests.services.tables import execute, make_source, make_target


@pytest.mark.parametrize("engine_setup", [Kind.WARM, Kind.SUBMIT, Kind.CONNECT], indirect=True)
def test_pipelines_side_by_side(engine_setup: EngineSetup) -> None:
    names = [f"side_{number}" for number in range(3)]
    for name in names:
        make_source(engine_setup.dsn, f"{name}_source", 500)
        make_target(engine_setup.dsn, f"{name}_target")
    execute(engine_setup.dsn, "ALTER TABLE side_1_target DROP COLUMN id")

    def run_of(name: str) -> Callable[[SharedTurn], RunSummary]:
        document: dict[str, Any] = orders_pipeline(name, source=f"{name}_source", target=f"{name}_target")
        return lambda _: engine_setup.run(document, owner=f"test:{name}")

    ended = ParallelRuns({name: run_of(name) for name in names}, Limits(2, 2, 100)).run()

    assert isinstance(ended.pop("side_1"), CkptError)
    for name, summary in ended.items():
        assert isinstance(summary, RunSummary), summary
        assert summary.records.delivered == 500
        difference = f"SELECT * FROM {name}_source EXCEPT SELECT * FROM {name}_target"
        assert execute(engine_setup.dsn, difference) == []
