"""Restored Delta tables, in all forms that a Delta log has for a restore, and tables with another log than before."""

from __future__ import annotations

import json
import shutil
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import SinkError
from tests.integration.connectors.delta.delta_harness import DeltaHarness
from tests.integration.connectors.two_phase.harness import Run

KEYS = [BatchKey(1, "files", seq) for seq in range(3)]


@pytest.fixture(autouse=True)
def delivered(table: DeltaHarness) -> None:
    """Three batches that three waves of epoch 1 delivered, each in a version of its own: 1, 2 and 3."""
    run = Run(table).fence()
    for seq in range(3):
        run.send(seq)


def restore_as_noted(table: DeltaHarness, **parameters: Any) -> None:
    """Restore to version 0, with the parameters in the log as another writer would note them."""
    table.restore(0)
    entry = table.place / "_delta_log" / f"{table.version:020d}.json"
    actions = [json.loads(line) for line in entry.read_bytes().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["operationParameters"] = parameters
    entry.write_text("\n".join(map(json.dumps, actions)) + "\n")


class TestRestore:
    @pytest.mark.parametrize("version", [0, "0"])
    def test_to_version_0_is_not_overlooked_be_it_noted_as_number_or_text(
        self, table: DeltaHarness, version: int | str
    ) -> None:
        restore_as_noted(table, version=version, timestamp=None)
        sink = Run(table, epoch=2).sink

        assert "was restored or rolled back to its version 0," in (sink.claims().loss_evidence or "")
        assert sink.batches_without_receipt(KEYS) == KEYS

    @pytest.mark.parametrize(
        "parameters",
        [{}, {"tag": "noon"}, {"version": None}, {"version": "noon"}, {"version": True}, {"timestamp": ""}],
    )
    def test_to_nobody_knows_what_is_refused_until_it_is_restored_by_number(
        self, table: DeltaHarness, parameters: dict[str, Any]
    ) -> None:
        restore_as_noted(table, **parameters)

        with pytest.raises(SinkError, match=r"version 4 of .* was created by RESTORE.*TO VERSION AS OF"):
            Run(table, epoch=2).sink.claims()

        table.restore(3)
        assert Run(table, epoch=2).sink.claims().loss_evidence is None

    def test_to_a_moment_is_told_too(self, table: DeltaHarness) -> None:
        moment = datetime.now(UTC)
        time.sleep(0.01)  # the log counts in milliseconds
        Run(table).send(3)
        table.opened.restore(moment)
        sink = Run(table, epoch=2).sink

        assert sink.claims().loss_evidence is not None
        assert sink.batches_without_receipt([*KEYS, BatchKey(1, "files", 3)]) == [BatchKey(1, "files", 3)]


class TestTarget:
    def test_a_table_that_was_created_again_beside_the_old_bookkeeping_is_another_one(
        self, table: DeltaHarness
    ) -> None:
        target = Run(table).sink.claims().target
        shutil.rmtree(table.place / "_delta_log")
        assert Run(table).sink.claims().target is None
        table.create()
        sink = Run(table, epoch=2).sink

        assert sink.claims().target not in (None, target)
        assert sink.batches_without_receipt(KEYS) == KEYS

    def test_a_log_that_lost_its_tail_lacks_receipts(self, table: DeltaHarness) -> None:
        (table.place / "_delta_log" / f"{3:020d}.json").unlink()
        sink = Run(table, epoch=2).sink

        assert [key.seq for key in sink.batches_without_receipt(KEYS)] == [2]
