"""The iceberg sink writes to partitioned tables."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import DateType, DecimalType, LongType, NestedField, StringType, StructType, TimestamptzType

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.receipt import Counts
from tests.integration.connectors.batches import content, expected, task
from tests.integration.connectors.iceberg.iceberg_harness import IcebergHarness
from tests.integration.connectors.two_phase.harness import Run

AT = datetime(2013, 1, 1, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("transform", "parts"),
    [
        (IdentityTransform(), 4),
        (YearTransform(), 2),
        (MonthTransform(), 3),
        (DayTransform(), 4),
        (HourTransform(), 4),
        (BucketTransform(4), 3),
        (VoidTransform(), 0),
    ],
    ids=str,
)
def test_rows_go_to_the_files_of_their_partitions(
    table: IcebergHarness, transform: Transform[Any, Any], parts: int
) -> None:
    columns = (
        NestedField(1, "at", TimestamptzType(), required=False),
        NestedField(2, "id", LongType(), required=False),
    )
    table.create_with(*columns, by=PartitionSpec(PartitionField(1, 1000, transform, "at_part")))
    run = Run(table).fence()
    run.sink.check()
    days = [timedelta(0), timedelta(1), timedelta(40), timedelta(400)]
    at = pa.array([AT + days[i % 4] for i in range(9)] + [None], pa.timestamp("us", tz="UTC"))

    (outcome,) = run.commit(run.writer.deliver(task(0), content(0, at=at)))

    assert outcome.outcome is AttemptOutcome.DELIVERED
    opened = table.opened
    found = {file["partition"]["at_part"] for file in opened.inspect.files().to_pylist()}
    assert (len(found), None in found) == (parts + 1, True)
    assert table.ids() == expected(0)
    assert opened.scan("at >= '2013-02-01T00:00:00+00:00'").to_arrow().num_rows == 4
    assert opened.scan("at is null").to_arrow()["id"].to_pylist() == [9]


def test_several_columns_make_a_partition(table: IcebergHarness) -> None:
    table.create_with(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "day", DateType(), required=False),
        NestedField(3, "city", StringType(), required=False),
        NestedField(4, "price", DecimalType(10, 2), required=False),
        by=PartitionSpec(
            PartitionField(2, 1000, IdentityTransform(), "day"),
            PartitionField(3, 1001, TruncateTransform(2), "city_2"),
            PartitionField(4, 1002, IdentityTransform(), "price"),
        ),
    )
    run = Run(table).fence()
    columns = {
        "day": pa.array([date(2013, 1, 1 + i % 2) for i in range(10)]),
        "city": pa.array(["Ulm", "Ulan"] * 5),
        "price": pa.array([Decimal("1.50")] * 10, pa.decimal128(10, 2)),
    }

    run.commit(*(run.writer.deliver(task(seq), content(seq, **columns)) for seq in (0, 1)))

    opened = table.opened
    found = [tuple(file["partition"].values()) for file in opened.inspect.files().to_pylist()]
    one, two = (date(2013, 1, 1), "Ul", Decimal("1.50")), (date(2013, 1, 2), "Ul", Decimal("1.50"))
    assert sorted(found) == [one, one, two, two]
    assert opened.scan("day = '2013-01-02'").to_arrow().sort_by("id")["id"].to_pylist() == list(range(1, 20, 2))


def test_a_time_that_has_no_partition_costs_that_record_alone(table: IcebergHarness) -> None:
    columns = (
        NestedField(1, "at", TimestamptzType(), required=False),
        NestedField(2, "id", LongType(), required=False),
    )
    table.create_with(*columns, by=PartitionSpec(PartitionField(1, 1000, YearTransform(), "year")))
    run = Run(table).fence()
    at = pa.array([1] * 8 + [2**62, -(2**62)], pa.int64()).cast(pa.timestamp("us", tz="UTC"))

    (outcome,) = run.commit(run.writer.deliver(task(0), content(0, at=at)))

    assert outcome.receipt is not None
    assert outcome.receipt.counts == Counts(10, 8, 0, 2)
    assert [(line["position"], line["sqlstate"]) for line in table.dead_letter_lines()] == [(8, "22008"), (9, "22008")]
    assert table.ids() == list(range(8))


def test_partitioning_that_changes_meanwhile_has_the_batch_sent_again(table: IcebergHarness) -> None:
    run = Run(table).fence()
    run.send(0)
    staged = run.stage(1)
    opened = table.opened
    with opened.update_spec() as update:
        update.add_identity("id")

    (outcome,) = run.commit(*staged)
    (again,) = run.send(1)

    assert outcome.error is not None
    assert outcome.error.recoverable
    assert again.outcome is AttemptOutcome.DELIVERED
    assert table.ids() == expected(0, 1)
    assert table.files() == table.known_files()


def test_rows_without_the_column_of_a_partition_go_to_that_of_nulls(table: IcebergHarness) -> None:
    columns = (
        NestedField(1, "at", TimestamptzType(), required=False),
        NestedField(2, "id", LongType(), required=False),
    )
    table.create_with(*columns, by=PartitionSpec(PartitionField(1, 1000, YearTransform(), "year")))

    (outcome,) = Run(table, grows=True).fence().send(0)

    assert outcome.outcome is AttemptOutcome.DELIVERED
    opened = table.opened
    assert opened.scan("at is null").to_arrow().num_rows == 10


def test_a_table_partitioned_by_a_nested_column_is_refused_at_the_check(table: IcebergHarness) -> None:
    at = NestedField(1, "at", StructType(NestedField(2, "day", LongType(), required=False)))
    table.create_with(at, by=PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day")))

    with pytest.raises(ConfigError, match="partitioned by day, which is not derived from a top-level column"):
        Run(table).sink.check()
