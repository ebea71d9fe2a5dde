"""Refreshes of Iceberg tables that other programs have partitioned or deleted rows from."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.types import LongType, NestedField

from airflow_provider_ckpt.connectors.iceberg.table import live_files
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import SinkError
from tests.integration.connectors.batches import expected
from tests.integration.connectors.iceberg.iceberg_harness import IcebergHarness
from tests.integration.connectors.two_phase.refreshes import refresh


@pytest.mark.parametrize("transform", [IdentityTransform(), BucketTransform(4), TruncateTransform(3)], ids=str)
def test_files_of_all_partitions_and_of_older_partitionings_are_replaced(
    table: IcebergHarness, transform: Transform[Any, Any]
) -> None:
    column = NestedField(1, "id", LongType(), required=False)
    table.create_with(column, by=PartitionSpec(PartitionField(1, 1000, transform, "part")))

    refresh(table).stage(0, 1).publish(2)
    again = refresh(table, epoch=2).stage(0, start=2)
    present = again.sink.row_counts(again.key(1))
    again.publish(1)
    with table.opened.update_spec() as update:
        update.remove_field("part")
    for number in (None, 7, 8):
        table.open_writer()(number)  # type: ignore[arg-type]
    table.opened.delete("id = 7")
    last = refresh(table, epoch=3).stage(0, start=3)
    counted = last.sink.row_counts(last.key(1))
    last.publish(1)

    assert (present, counted) == ((10, 20), (10, 12))
    assert [row["id"] for row in table.rows()] == expected(3)
    assert (last.run.sink.target_rows(), list(last.run.sink.damaged_files())) == (10, [])


def test_a_partitioning_that_changes_after_rows_were_staged_ends_the_refresh(table: IcebergHarness) -> None:
    table.create()
    table.append(777)
    begun = refresh(table).stage(0)
    with table.opened.update_spec() as update:
        update.add_field("id", IdentityTransform(), "id")

    outcome = begun.publish(1)

    assert outcome.outcome is AttemptOutcome.FAILED
    assert outcome.error is not None
    assert "was altered after rows were staged" in outcome.error.message
    assert not begun.sink.is_staged(begun.key(1), 10)
    assert table.ids() == [777]
    refresh(table, epoch=2).stage(0).publish(1)
    assert table.ids() == expected(0)


def test_a_table_with_delete_files_is_refused_before_anything_is_staged(
    table: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.create()
    table.append(777)
    run = refresh(table).run
    run.sink.check()
    monkeypatch.setattr(DataFile, "content", property(lambda _: DataFileContent.POSITION_DELETES))

    with pytest.raises(SinkError, match="marks rows of its files as deleted"):
        run.sink.check()
    with pytest.raises(SinkError, match="marks rows of its files as deleted"):
        live_files(table.opened)
