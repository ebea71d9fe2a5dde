"""The delta sink adds columns to a table while another writer adds columns too."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.core.batch import AttemptOutcome
from tests.integration.connectors.batches import content, task
from tests.integration.connectors.delta.delta_harness import DeltaHarness
from tests.integration.connectors.interruptions import before, once
from tests.integration.connectors.two_phase.harness import Run


def test_two_that_add_columns_at_once_both_deliver(table: DeltaHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Run(table, grows=True).fence(), Run(table, ledger="another", grows=True).fence()
    one.send(0)
    mine = one.writer.deliver(task(1), content(1, a=pa.array([1] * 10)))
    theirs = two.writer.deliver(task(2), content(2, b=pa.array([2] * 10)))
    with monkeypatch.context() as patch:
        rival = once(lambda: two.commit(theirs))
        patch.setattr(delta_table, "add_columns", before(delta_table.add_columns, rival))
        (outcome,) = one.commit(mine)

    assert outcome.outcome is AttemptOutcome.DELIVERED
    rows = table.rows()
    assert (rows[10], rows[20]) == ({"id": 10, "b": None, "a": 1}, {"id": 20, "b": 2, "a": None})
