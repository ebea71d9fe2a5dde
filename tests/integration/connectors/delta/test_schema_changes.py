"""Changes of a Delta table's columns: those that the library can make, and those that are refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType

from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.storage.local import LocalLocation
from airflow_provider_ckpt.core.errors import ConfigError, FencedError
from airflow_provider_ckpt.core.next_schema_version import StepKind, TargetStep
from tests.integration.connectors.batches import content, task
from tests.integration.connectors.delta.delta_harness import DeltaHarness
from tests.integration.connectors.interruptions import Killed, after, before, kill, once
from tests.integration.connectors.two_phase.harness import Run
from tests.integration.connectors.two_phase.test_schema_changes import NOTE, numbers, version

NULLS = [TargetStep(StepKind.ALLOW_NULL, name) for name in ("size", "name")]
ROWS = {"size": pa.array([5] * 10, pa.int32()), "name": pa.array(["n"] * 10)}


def started(table: DeltaHarness) -> Run:
    """A run that has delivered batch 0 to a table whose columns ``size`` and ``name`` are not nullable."""
    fields = [
        Field("size", PrimitiveType("integer"), nullable=False),
        Field("name", PrimitiveType("string"), nullable=False),
    ]
    DeltaTable.create(table.place, Schema([Field("id", PrimitiveType("long")), *fields]))
    run = Run(table, follows=True).fence()
    run.sink.apply_schema_version(1, version(1), [])
    run.commit(run.writer.deliver(task(0), content(0, **ROWS)))
    return run


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            TargetStep(StepKind.WIDEN, "size", "bigint", "bigint"),
            r"column size of the Delta table .* is integer, .* are long now; the Delta library does not widen",
        ),
        (TargetStep(StepKind.WIDEN, "size", "text", "string"), r"column size of .* is integer, .* are string now"),
        (
            TargetStep(StepKind.RENAME, "size", "amount"),
            r"column size of .* cannot be renamed to amount: the Delta library does not rename columns",
        ),
    ],
)
def test_a_change_that_the_library_cannot_make_is_refused_with_the_column_and_the_remedy(
    table: DeltaHarness, step: TargetStep, message: str
) -> None:
    run = started(table)
    state = table.state

    with pytest.raises(ConfigError, match=message) as error:
        run.sink.apply_schema_version(1, version(2), [NOTE, step])

    assert "Give the table a column" in str(error.value)
    assert (table.state, numbers(run)) == (state, [1])


def test_after_the_remedy_the_run_goes_on(table: DeltaHarness) -> None:
    """The table's rows are written anew with a wider type, by its owner."""
    run = started(table)
    rows = pa.table(table.opened.to_pyarrow_dataset().to_table(use_threads=False))
    wide = rows.set_column(1, "size", rows.column("size").cast(pa.int64()))
    write_deltalake(table.place, wide, mode="overwrite", schema_mode="overwrite")

    run.sink.apply_schema_version(1, version(2), [TargetStep(StepKind.WIDEN, "size", "bigint", "bigint")])
    later = {**ROWS, "size": pa.array([1 << 40] * 10)}
    (outcome,) = run.commit(run.writer.deliver(task(1), content(1, **later)))
    (narrow,) = run.commit(run.writer.deliver(task(2), content(2, **ROWS)))

    assert (outcome.error, narrow.error) == (None, None)
    assert [row["size"] for row in table.rows()] == [5] * 10 + [1 << 40] * 10 + [5] * 10


def test_columns_may_be_null_once_the_source_has_dropped_them(table: DeltaHarness) -> None:
    run = started(table)

    run.sink.apply_schema_version(1, version(2), [*NULLS, NOTE])
    nulls = {"size": pa.nulls(10, pa.int32()), "name": pa.nulls(10, pa.string()), "note": pa.array(["x"] * 10)}
    (outcome,) = run.commit(run.writer.deliver(task(1), content(1, **nulls)))

    assert outcome.error is None
    assert all(field.nullable for field in table.opened.schema().fields)
    assert [row["size"] for row in table.rows()] == [5] * 10 + [None] * 10
    assert numbers(run) == [1, 2]


def test_a_process_killed_between_the_commits_of_a_version_is_settled_by_the_next_run(
    table: DeltaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(table)
    with monkeypatch.context() as patch:
        patch.setattr(delta_table, "add_columns", kill)
        with pytest.raises(Killed):
            run.sink.apply_schema_version(1, version(2), [*NULLS, NOTE])
    assert numbers(run) == [1]

    second = Run(table, epoch=2, follows=True).fence()
    second.sink.apply_schema_version(2, version(2), [*NULLS, NOTE])

    assert (table.columns(), numbers(second)) == (["id", "size", "name", "note"], [1, 2])


def test_a_constraint_is_not_dropped_by_an_epoch_that_gets_stale(
    table: DeltaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(table)
    taken = once(lambda: Run(table, epoch=2, follows=True).fence())
    monkeypatch.setattr(delta_table, "allow_null", before(delta_table.allow_null, taken))

    with pytest.raises(FencedError):
        run.sink.apply_schema_version(1, version(2), NULLS)

    assert [field.nullable for field in table.opened.schema().fields] == [True, False, False]


def test_an_epoch_that_gets_stale_while_it_stores_a_receipt_without_a_table_leaves_none(
    table: DeltaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = Run(table, follows=True).fence()
    taken = once(lambda: Run(table, epoch=2, follows=True).fence())
    monkeypatch.setattr(LocalLocation, "write", after(LocalLocation.write, taken))

    with pytest.raises(FencedError):
        stale.sink.apply_schema_version(1, version(1), [])

    assert numbers(stale) == []


def test_a_receipt_from_the_time_before_the_table_that_a_crash_cut_short_does_not_count(table: DeltaHarness) -> None:
    run = Run(table, follows=True).fence()
    run.sink.apply_schema_version(1, version(1), [])
    (stored,) = (table.bookkeeping / "schema").iterdir()
    stored.write_bytes(stored.read_bytes()[:-9])
    second = Run(table, epoch=2, follows=True).fence()
    assert numbers(second) == []

    second.sink.apply_schema_version(2, version(1), [])

    assert numbers(second) == [1]


def test_wider_rows_do_not_fit_a_narrower_column(table: DeltaHarness) -> None:
    run = started(table)

    (outcome,) = run.commit(run.writer.deliver(task(1), content(1, **{**ROWS, "size": pa.array([1] * 10)})))

    assert outcome.error is not None
    assert "size is long, the table's is integer" in outcome.error.message


def test_new_columns_are_one_commit_with_the_epoch_and_the_receipt(table: DeltaHarness) -> None:
    run = started(table)
    number = table.version

    run.sink.apply_schema_version(1, version(2), [NOTE, TargetStep(StepKind.ADD, "more", "integer", "int")])

    assert table.version == number + 1
    log = (table.place / f"_delta_log/{number + 1:020d}.json").read_text().splitlines()
    actions = [json.loads(line) for line in log]
    assert {next(iter(action)) for action in actions} == {"commitInfo", "metaData", "txn"}
    newest = int(table.nodes[-1].stem)
    assert sorted(action["txn"]["version"] for action in actions if "txn" in action) == [1, newest]
    assert actions[0]["commitInfo"]["ckpt"]["schema_version"] == 2
