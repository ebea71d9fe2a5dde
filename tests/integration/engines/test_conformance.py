"""Conformance tests of every engine on every kind of Spark: the same records end in the same places."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.receipt import Counts
from tests.integration.engines.engine_setup import EngineSetup, Kind, delivered, expected, slow_orders
from tests.services.delta import read_delta
from tests.services.replication import orders_pipeline
from tests.services.tables import add_rows, execute, make_source, scalar

ROWS = 1_000
EVERY_ENGINE = pytest.mark.parametrize("engine_setup", [Kind.WARM, Kind.SUBMIT, Kind.CONNECT], indirect=True)
SHARED = pytest.mark.parametrize("engine_setup", [Kind.WARM, Kind.CONNECT], indirect=True)
"""The engines whose Spark outlives a run.

A Spark of the run's own is driven by the same code as one that stands; ``test_submit.py`` has what it refuses.
"""


@EVERY_ENGINE
def test_each_record_is_delivered_filtered_or_dead_lettered_and_none_twice(engine_setup: EngineSetup) -> None:
    document = slow_orders(engine_setup, ROWS, seconds=0)

    first = engine_setup.run(document)
    again = engine_setup.run(document)
    add_rows(engine_setup.dsn, "orders", ROWS + 1, ROWS + 101)
    more = engine_setup.run_again(document)

    kept = 749
    assert (first.records, first.route) == (Counts(ROWS, kept, 250, 1), ["dead_letters", "done"])
    assert (again.records, again.spark_started) == (Counts(0, 0, 0, 0), False)
    assert (more.records, more.route) == (Counts(100, 75, 25, 0), ["done"])
    assert delivered(engine_setup) == expected(engine_setup) == (kept + 75, kept + 75)
    ((message, headers),) = execute(engine_setup.dsn, "SELECT error, headers::text FROM ckpt_sink_dead_letter")
    assert "share failed: 1000 div (id - 8)" in message
    assert "DIVIDE_BY_ZERO" in headers
    assert engine_setup.ledger.audit("orders")["ok"]


@SHARED
def test_files_into_a_table_that_is_committed_once_a_wave(engine_setup: EngineSetup, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for file in range(4):
        (source / f"{file}.jsonl").write_text("".join(f'{{"id": {file * 100 + n}}}\n' for n in range(100)))
    document = {
        "name": "files",
        "source": {"type": "files", "path": str(source)},
        "sink": {"type": "delta", "path": str(tmp_path / "out")},
        "transform": {"decode": "json", "schema": "id bigint", "select": {"id": "id + 1"}},
    }

    summary = engine_setup.run(document)

    assert summary.records == Counts(400, 400, 0, 0)
    assert sorted(read_delta(tmp_path / "out")["id"].to_pylist()) == list(range(1, 401))


@SHARED
def test_an_expression_that_no_lane_can_bear_is_refused_before_anything_is_sent(engine_setup: EngineSetup) -> None:
    make_source(engine_setup.dsn, "orders", 10)
    execute(engine_setup.dsn, "CREATE TABLE target (id bigint)")

    with pytest.raises(ConfigError, match=r"transform\.select\.id needs other records than its own"):
        engine_setup.run(orders_pipeline() | {"transform": {"select": {"id": "row_number() over (order by id)"}}})

    assert scalar(engine_setup.dsn, "SELECT count(*) FROM target") == 0


@SHARED
def test_a_batch_that_kills_its_python_is_held_and_the_others_are_delivered(engine_setup: EngineSetup) -> None:
    make_source(engine_setup.dsn, "orders", 500)
    execute(engine_setup.dsn, "CREATE TABLE target (id bigint)")

    def deadly(rows: pa.Table) -> pa.Table:
        if 250 in rows.column("id").to_pylist():
            os.kill(os.getpid(), signal.SIGKILL)
        return rows

    document = orders_pipeline() | {
        "consumer": {"strategy": "round_robin", "lanes": 2},
        "commit_strategy": {"commit_interval": 100},
        "retry": {"rounds": 2, "max_attempts": 2},
        "transform": {"select": {"id": "id"}, "python": "task", "returns": "id bigint"},
    }
    summary = engine_setup.run(document, function=deadly)

    assert (summary.records, summary.batches_by_state) == (Counts(400, 400, 0, 0), {"held": 1})
    assert scalar(engine_setup.dsn, "SELECT count(*) FROM target WHERE id BETWEEN 201 AND 300") == 0
