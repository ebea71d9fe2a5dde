"""Changes of an Iceberg table's columns: wider types, other names and NOT NULL, and readers of older files."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DecimalType, FloatType, IntegerType, LongType, NestedField, StringType

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.next_schema_version import StepKind, TargetStep
from tests.integration.connectors.batches import content, task
from tests.integration.connectors.iceberg.iceberg_harness import IcebergHarness
from tests.integration.connectors.interruptions import before, once
from tests.integration.connectors.two_phase.harness import Run
from tests.integration.connectors.two_phase.test_schema_changes import NOTE, numbers, version

WIDENING = [
    TargetStep(StepKind.WIDEN, "size", "bigint", "bigint"),
    TargetStep(StepKind.WIDEN, "weight", "double precision", "double"),
    TargetStep(StepKind.WIDEN, "price", "numeric(9,2)", "decimal(9,2)"),
]
NARROW = {
    "size": pa.array([5] * 10, pa.int32()),
    "weight": pa.array([0.1] * 10, pa.float32()),
    "price": pa.array([Decimal("1.25")] * 10, pa.decimal128(6, 2)),
}
WIDE = {
    "size": pa.array([1 << 40] * 10, pa.int64()),
    "weight": pa.array([1e300] * 10),
    "price": pa.array([Decimal("1234567.25")] * 10, pa.decimal128(9, 2)),
}


def started(table: IcebergHarness, *, by: PartitionSpec | None = None, required: bool = False) -> Run:
    """A run that has delivered batch 0 to a table with columns of four types.

    :param by: how the table is partitioned
    :param required: whether its column ``size`` is not nullable
    """
    table.create_with(
        NestedField(1, "id", LongType()),
        NestedField(2, "size", IntegerType(), required=required),
        NestedField(3, "weight", FloatType()),
        NestedField(4, "price", DecimalType(6, 2)),
        by=by,
    )
    run = Run(table, follows=True).fence()
    run.sink.apply_schema_version(1, version(1), [])
    run.commit(run.writer.deliver(task(0), content(0, **NARROW)))
    return run


@pytest.mark.parametrize("by", [None, PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "size"))])
def test_wider_types_are_read_from_older_and_newer_files_with_and_without_a_condition(
    table: IcebergHarness, by: PartitionSpec | None
) -> None:
    run = started(table, by=by)
    opened = table.opened

    run.sink.apply_schema_version(1, version(2), WIDENING)
    (outcome,) = run.commit(run.writer.deliver(task(1), content(1, **WIDE)))

    assert outcome.outcome is AttemptOutcome.DELIVERED
    assert [str(field.field_type) for field in table.opened.schema().fields] == [
        "long", "long", "double", "decimal(9, 2)"
    ]  # fmt: skip
    rows = table.rows()
    assert [row["size"] for row in rows] == [5] * 10 + [1 << 40] * 10
    assert [row["price"] for row in rows] == [Decimal("1.25")] * 10 + [Decimal("1234567.25")] * 10
    for condition, seq in (("size = 5", 0), ("size > 5", 1), ("weight < 1", 0), ("price > 2", 1)):
        found = table.opened.scan(condition).to_arrow().column("id").to_pylist()
        assert sorted(found) == list(range(seq * 10, seq * 10 + 10))
    assert opened.scan().to_arrow().num_rows == 10  # as a reader that opened the table before the change
    assert opened.scan().to_arrow().schema.field("size").type == pa.int32()


def test_rows_of_narrower_types_fit_a_wider_table(table: IcebergHarness) -> None:
    """As after a change of the source to a narrower type, which a person has accepted."""
    run = started(table)
    run.sink.apply_schema_version(1, version(2), WIDENING)

    narrower = [TargetStep(StepKind.WIDEN, "size", "integer", "int")]
    run.sink.apply_schema_version(1, version(3), narrower)
    (outcome,) = run.commit(run.writer.deliver(task(1), content(1, **NARROW)))

    assert outcome.error is None
    assert str(table.opened.schema().find_field("size").field_type) == "long"
    assert [row["size"] for row in table.rows()] == [5] * 20


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (TargetStep(StepKind.WIDEN, "size", "text", "string"), r"column size of .* is int, .* are string now"),
        (TargetStep(StepKind.WIDEN, "weight", "bigint", "bigint"), r"column weight of .* is float, .* are long now"),
        (
            TargetStep(StepKind.WIDEN, "price", "numeric(9,4)", "decimal(9,4)"),
            r"column price of .* Iceberg does not change decimal\(6, 2\) to decimal\(9, 4\)",
        ),
        (TargetStep(StepKind.WIDEN, "day", "timestamp", "timestamp_ntz"), r"column day of .* are timestamp now"),
        (TargetStep(StepKind.WIDEN, "name", "bytea", "binary"), r"column name of .* is string, .* are binary now"),
    ],
)
def test_a_type_that_the_format_cannot_widen_is_refused_with_the_column_and_the_remedy(
    table: IcebergHarness, step: TargetStep, message: str
) -> None:
    run = started(table)
    with table.opened.update_schema() as update:
        update.add_column("day", DateType())
        update.add_column("name", StringType())
    state = table.state

    with pytest.raises(ConfigError, match=message) as error:
        run.sink.apply_schema_version(1, version(2), [NOTE, step])

    assert f"Give the table a column {step.name} of type" in str(error.value)
    assert (table.state, numbers(run)) == (state, [1])


def test_a_renamed_column_keeps_the_values_of_older_files_even_if_its_name_is_given_again(
    table: IcebergHarness,
) -> None:
    run = started(table)
    steps = [
        TargetStep(StepKind.RENAME, "size", "amount"),
        TargetStep(StepKind.WIDEN, "amount", "bigint", "bigint"),
        TargetStep(StepKind.ADD, "size", "text", "string"),
    ]

    run.sink.apply_schema_version(1, version(2), steps)
    later = {**NARROW, "amount": WIDE["size"], "size": pa.array(["large"] * 10)}
    (outcome,) = run.commit(run.writer.deliver(task(1), content(1, **later)))

    assert outcome.error is None
    assert [(row["amount"], row["size"]) for row in table.rows()] == [(5, None)] * 10 + [(1 << 40, "large")] * 10


def test_a_rename_to_a_name_that_the_table_has_is_refused(table: IcebergHarness) -> None:
    run = started(table)

    with pytest.raises(ConfigError, match="has both size and weight, so that size cannot be renamed"):
        run.sink.apply_schema_version(1, version(2), [TargetStep(StepKind.RENAME, "size", "weight")])


def test_a_required_column_may_be_null_once_the_source_has_dropped_it(table: IcebergHarness) -> None:
    run = started(table, required=True)

    run.sink.apply_schema_version(1, version(2), [TargetStep(StepKind.ALLOW_NULL, "size"), NOTE])
    nulls = {**WIDE, "size": pa.nulls(10, pa.int32()), "note": pa.array(["n"] * 10)}
    del nulls["weight"], nulls["price"]
    (outcome,) = run.commit(run.writer.deliver(task(1), content(1, **nulls)))

    assert outcome.error is None
    assert [row["size"] for row in table.rows()] == [5] * 10 + [None] * 10


def test_a_column_that_another_writer_widens_in_between_is_not_narrowed(
    table: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(table)
    change = table.steps["change columns"]

    def widen() -> None:
        with table.opened.update_schema() as update:
            update.update_column("size", LongType())
            update.rename_column("weight", "mass")

    monkeypatch.setattr(*change, before(change.real, once(widen)))

    run.sink.apply_schema_version(1, version(2), WIDENING)

    assert {field.name: str(field.field_type) for field in table.opened.schema().fields} == {
        "id": "long", "size": "long", "mass": "float", "price": "decimal(9, 2)", "weight": "double"
    }  # fmt: skip


def test_the_change_is_one_metadata_commit_that_names_the_version(table: IcebergHarness) -> None:
    run = started(table)
    snapshots = len(table.opened.snapshots())

    run.sink.apply_schema_version(1, version(2), [*WIDENING, NOTE])

    assert len(table.opened.snapshots()) == snapshots + 1
    newest = table.opened.current_snapshot()
    assert newest is not None
    assert newest.summary is not None
    assert newest.summary["ckpt"] == '{"pipeline": "flights", "epoch": 1, "schema_version": 2}'
    assert newest.schema_id == table.opened.schema().schema_id
