"""An Iceberg table that is restored to an older state by its snapshots, its branches or its catalog."""

from __future__ import annotations

import pytest

from airflow_provider_ckpt.core.batch_key import BatchKey
from tests.integration.connectors.iceberg.iceberg_harness import TABLE, IcebergHarness
from tests.integration.connectors.two_phase.harness import Run

KEYS = [BatchKey(1, "files", seq) for seq in range(3)]


@pytest.fixture(autouse=True)
def delivered(table: IcebergHarness) -> None:
    """Three batches that three waves of epoch 1 delivered: snapshots 2, 3 and 4, after the fence's."""
    run = Run(table).fence()
    for seq in range(3):
        run.send(seq)


def test_a_rollback_whose_snapshots_expired_is_told(table: IcebergHarness) -> None:
    newest = table.opened.metadata.current_snapshot_id
    assert newest is not None
    table.restore(2)
    table.opened.maintenance.expire_snapshots().by_ids([newest]).commit()
    sink = Run(table, epoch=2).sink

    assert sink.claims().loss_evidence is not None
    assert [key.seq for key in sink.batches_without_receipt(KEYS)] == [2]


def test_a_branch_that_was_replaced_is_told(table: IcebergHarness) -> None:
    (first,) = (s.snapshot_id for s in table.opened.snapshots() if s.sequence_number == 2)
    with table.opened.manage_snapshots() as manage:
        manage.create_branch(first, "main")
    sink = Run(table, epoch=2).sink

    assert sink.claims().loss_evidence is not None
    assert [key.seq for key in sink.batches_without_receipt(KEYS)] == [1, 2]


def test_a_catalog_that_names_older_metadata_has_an_older_fence_or_lacks_receipts(table: IcebergHarness) -> None:
    metadata = table.opened.metadata_location
    Run(table, epoch=2).fence().send(3)
    with table.lake.catalog() as catalog:
        catalog.drop_table(TABLE)
        catalog.register_table(TABLE, metadata)
    sink = Run(table, epoch=3).sink

    assert sink.claims().epoch == 1
    assert sink.batches_without_receipt([*KEYS, BatchKey(1, "files", 3)]) == [BatchKey(1, "files", 3)]
