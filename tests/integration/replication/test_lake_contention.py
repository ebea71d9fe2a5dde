"""A Delta table to which others write all the time: the run fails as in an outage, and no attempt is counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.core.batch import BatchState
from airflow_provider_ckpt.replication.run.halt import HaltError
from tests.services.contender import to_delta
from tests.services.delta import read_delta
from tests.services.replication import Replication


def test_a_table_that_is_never_quiet_fails_the_run_and_leaves_its_batches_planned(
    orders: Replication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table"
    document = {**orders.document, "sink": {"type": "delta", "path": str(path)}, "run": {"time_budget": "10s"}}
    replication = replace(orders, document=document)
    real = delta_table.commit

    def beaten(*arguments: object, **named: object) -> None:
        to_delta(str(path))()
        real(*arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(delta_table, "commit", beaten)
        with pytest.raises(HaltError, match="other writers committed first"):
            replication.run()

    (record,) = replication.ledger.partitions("orders").values()
    batches = list(record.partition.blocking.values())
    assert len(batches) == 10
    assert {(batch.state, batch.failures, batch.finished, batch.round) for batch in batches} == {
        (BatchState.PLANNED, 0, 0, 1)
    }
    summary = replication.run()
    assert (summary.records.delivered, summary.records.dead_lettered) == (1000, 0)
    assert sorted(read_delta(path)["id"].to_pylist()) == list(range(1, 1001))
