"""Changes of a table's columns by a two-phase sink: one commit with the receipt of the schema version."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import (
    ConfigError,
    FencedError,
    ReceiptsUnreadableError,
    SinkChangedError,
    SinkError,
)
from airflow_provider_ckpt.core.next_schema_version import StepKind, TargetStep
from airflow_provider_ckpt.core.schema_version import SchemaVersion, VersionColumn
from tests.integration.connectors.batches import content, expected, task
from tests.integration.connectors.interruptions import Killed, after, before, kill, once
from tests.integration.connectors.two_phase.formats import PLACES
from tests.integration.connectors.two_phase.harness import Run, TableHarness

NOTE = TargetStep(StepKind.ADD, "note", "text", "string")


def version(number: int, *columns: str, partition: str = "public.flights") -> SchemaVersion:
    """A schema version.

    :param number: its number
    :param columns: names of its columns
    :param partition: id of the source partition
    """
    found = tuple(VersionColumn(name, place, "text") for place, name in enumerate(columns or ("id",), 1))
    return SchemaVersion(number, partition, 1, number, found, ("a decision",))


def numbers(run: Run) -> list[int]:
    """Numbers of the schema versions that have a receipt."""
    return sorted(found.number for found in run.sink.schema_versions())


def started(table: TableHarness, epoch: int = 1) -> Run:
    """A run that has delivered batch 0 under schema version 1."""
    run = Run(table, epoch=epoch, follows=True).fence()
    run.sink.apply_schema_version(epoch, version(1), [])
    run.send(0)
    return run


class TestNewColumn:
    @pytest.mark.parametrize("table", PLACES, indirect=True)
    def test_it_is_null_in_rows_before_and_has_its_values_after(self, table: TableHarness) -> None:
        run = started(table)

        run.sink.apply_schema_version(1, version(2), [NOTE])
        noted = run.writer.deliver(task(1), content(1, note=pa.array(["n"] * 10)))
        (outcome,) = run.commit(noted)

        assert outcome.outcome is AttemptOutcome.DELIVERED
        assert [row["note"] for row in table.rows()] == [None] * 10 + ["n"] * 10
        assert run.sink.schema_versions()[0] == version(2)
        assert numbers(run) == [1, 2]
        assert run.receipted == [0, 1]
        assert run.sink.target_rows() == 20

    def test_a_table_that_has_it_already_keeps_it_as_it_is(self, table: TableHarness) -> None:
        run = started(table)
        table.add_column("note")

        run.sink.apply_schema_version(1, version(2), [NOTE])

        assert table.columns() == ["id", "note"]
        assert numbers(run) == [1, 2]

    def test_rows_may_lack_it_and_are_null(self, table: TableHarness) -> None:
        """As those of a version that leaves the column out, or of a batch that was staged before."""
        run = started(table)
        staged = run.stage(1)
        run.sink.apply_schema_version(1, version(2), [NOTE])

        first = run.commit(*staged)
        again = run.send(1, 2)

        assert [each.outcome for each in again] == [AttemptOutcome.DELIVERED] * 2
        assert first[0].outcome is AttemptOutcome.DELIVERED or (first[0].error and first[0].error.recoverable)
        assert table.rows() == [{"id": number, "note": None} for number in expected(0, 1, 2)]

    @pytest.mark.parametrize(
        ("spark", "value"),
        [
            ("boolean", True), ("smallint", 3), ("int", 1 << 20), ("bigint", 1 << 40), ("float", 0.5),
            ("double", 1e300), ("string", "text"), ("binary", b"\xff"), ("date", "date"), ("timestamp", "time"),
            ("timestamp_ntz", "time"),
        ],
    )  # fmt: skip
    def test_every_type_that_a_source_has_can_be_added(self, table: TableHarness, spark: str, value: Any) -> None:
        kinds = {
            "boolean": pa.bool_(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64(),
            "float": pa.float32(), "double": pa.float64(), "string": pa.string(), "binary": pa.binary(),
            "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
        }  # fmt: skip
        run = started(table)

        run.sink.apply_schema_version(1, version(2), [TargetStep(StepKind.ADD, "new", "", spark)])
        values = pa.array([7] * 10, pa.int32() if value == "date" else pa.int64()) if isinstance(value, str) else None
        if spark == "string" or values is None:
            array = pa.array([value] * 10, kinds[spark])
        else:
            array = values.cast(kinds[spark])
        (outcome,) = run.commit(run.writer.deliver(task(1), content(1, new=array)))

        assert outcome.error is None
        assert [row["new"] is None for row in table.rows()] == [True] * 10 + [False] * 10

    def test_a_name_that_differs_only_in_case_is_refused(self, table: TableHarness) -> None:
        run = started(table)
        table.add_column("NOTE")

        with pytest.raises(ConfigError, match="cannot get the column note, since its column NOTE differs only in case"):
            run.sink.apply_schema_version(1, version(2), [NOTE])

        assert (table.columns(), numbers(run)) == (["id", "NOTE"], [1])


class TestReaders:
    def test_a_version_that_was_opened_before_is_read_as_it_was(self, table: TableHarness) -> None:
        run = started(table)
        read = table.at_this_version()

        run.sink.apply_schema_version(1, version(2), [NOTE])
        run.commit(run.writer.deliver(task(1), content(1, note=pa.array(["n"] * 10))))

        assert read() == expected(0)


class TestOnce:
    def test_a_version_is_applied_once(self, table: TableHarness) -> None:
        run = started(table)
        run.sink.apply_schema_version(1, version(2), [NOTE])
        state = table.state

        for again in (version(2), version(2, "other"), version(1)):
            with pytest.raises(SinkError, match=f"schema version {again.number} has a receipt"):
                run.sink.apply_schema_version(1, again, [TargetStep(StepKind.ADD, "other", "text", "string")])

        assert (table.columns(), table.state) == (["id", "note"], state)

    def test_versions_of_another_partition_have_numbers_of_their_own(self, table: TableHarness) -> None:
        run = started(table)
        run.sink.apply_schema_version(1, version(2), [NOTE])

        run.sink.apply_schema_version(1, version(1, partition="public.others"), [])

        assert numbers(run) == [1, 1, 2]

    @pytest.mark.parametrize("step", ["check the fence", "write receipts", "change columns"])
    @pytest.mark.parametrize("done", [False, True])
    def test_a_process_killed_anywhere_is_settled_by_the_next_run(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch, step: str, done: bool
    ) -> None:
        first = started(table)
        with monkeypatch.context() as patch:
            dies = table.steps[step]
            patch.setattr(*dies, after(dies.real, kill) if done else kill)
            with pytest.raises(Killed):
                first.sink.apply_schema_version(1, version(2), [NOTE])

        second = Run(table, epoch=2, follows=True).fence()
        applied = numbers(second) == [1, 2]
        assert applied == ("note" in table.columns())
        assert applied == (step == "change columns" and done)
        if applied:
            with pytest.raises(SinkError, match="schema version 2 has a receipt"):
                second.sink.apply_schema_version(2, version(2), [NOTE])
        else:
            second.sink.apply_schema_version(2, version(2), [NOTE])
        (outcome,) = second.commit(second.writer.deliver(task(1), content(1, note=pa.array(["n"] * 10))))
        assert outcome.outcome is AttemptOutcome.DELIVERED
        assert (table.columns(), numbers(second), second.receipted) == (["id", "note"], [1, 2], [0, 1])

    @pytest.mark.parametrize("error", ["unknown", "conflict", "failure"])
    def test_an_error_after_the_commit_is_a_commit(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch, error: str
    ) -> None:
        run = started(table)
        change = {"delta": "commit", "iceberg": "change columns"}
        step = table.steps[change["delta" if table.location.startswith("delta") else "iceberg"]]

        def fail() -> None:
            raise table.errors[error]("the answer was lost")

        with monkeypatch.context() as patch:
            patch.setattr(*step, after(step.real, once(fail)))
            run.sink.apply_schema_version(1, version(2), [])

        assert numbers(run) == [1, 2]

    def test_a_table_that_lies_about_a_commit_is_an_outage(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = started(table)
        monkeypatch.setattr(*table.steps["commit"], lambda *given, **named: table.fake_commit(*given, **named))

        with pytest.raises(SinkError, match="its newest version does not contain the commit"):
            run.sink.apply_schema_version(1, version(2), [])


class TestFence:
    def test_a_stale_epoch_changes_nothing(self, table: TableHarness) -> None:
        stale = started(table)
        Run(table, epoch=2, follows=True).fence()
        state = table.state

        with pytest.raises(FencedError, match="epoch 2"):
            stale.sink.apply_schema_version(1, version(2), [NOTE])

        assert (table.columns(), table.state) == (["id"], state)

    def test_an_epoch_that_gets_stale_between_look_and_commit_changes_nothing(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stale = started(table)
        change = table.steps["change columns"]
        taken = once(lambda: Run(table, epoch=2, follows=True).fence())
        with monkeypatch.context() as patch:
            patch.setattr(*change, before(change.real, taken))
            with pytest.raises(FencedError, match="epoch 2"):
                stale.sink.apply_schema_version(1, version(2), [NOTE])

        assert table.columns() == ["id"]
        assert numbers(stale) == [1]

    def test_the_change_carries_the_epoch_so_that_the_fence_stands_after_it(self, table: TableHarness) -> None:
        run = started(table)
        run.sink.apply_schema_version(1, version(2), [NOTE])

        assert run.sink.claims().epoch == 1
        assert run.sink.claims().loss_evidence is None
        assert Run(table, epoch=2, follows=True).fence().send(1)[0].outcome is AttemptOutcome.DELIVERED


class TestOtherWriters:
    def test_a_column_that_another_writer_adds_in_between_is_kept(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = started(table)
        change = table.steps["change columns"]
        monkeypatch.setattr(*change, before(change.real, once(lambda: table.add_column("theirs"))))

        run.sink.apply_schema_version(1, version(2), [NOTE])

        assert sorted(table.columns()) == ["id", "note", "theirs"]
        assert numbers(run) == [1, 2]

    def test_the_same_column_that_another_writer_adds_in_between_is_added_once(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = started(table)
        change = table.steps["change columns"]
        monkeypatch.setattr(*change, before(change.real, once(lambda: table.add_column("note"))))

        run.sink.apply_schema_version(1, version(2), [NOTE])

        assert (table.columns(), numbers(run)) == (["id", "note"], [1, 2])

    def test_rows_that_another_writer_appends_in_between_are_kept(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = started(table)
        change = table.steps["change columns"]
        monkeypatch.setattr(*change, before(change.real, once(lambda: table.append(99))))

        run.sink.apply_schema_version(1, version(2), [NOTE])

        assert [row["id"] for row in table.rows()] == [*expected(0), 99]
        assert (table.columns(), numbers(run)) == (["id", "note"], [1, 2])

    def test_a_table_that_is_never_quiet_is_an_outage_once_the_time_budget_is_over(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started(table)
        run = Run(table, follows=True, time_budget="1s")
        change = table.steps["change columns"]
        monkeypatch.setattr(*change, before(change.real, table.commit_nothing))

        with pytest.raises(SinkError, match="other writers committed first"):
            run.sink.apply_schema_version(1, version(2), [NOTE])

        assert table.columns() == ["id"]


class TestReceipts:
    def test_they_are_found_without_the_nodes_between_them(self, table: TableHarness) -> None:
        run = started(table)
        for seq in range(1, 4):
            run.send(seq)
        run.sink.apply_schema_version(1, version(2), [NOTE])
        run.send(4)
        run.send(5)
        schema_nodes = [0, 5]  # version 1, batches 0 to 3, version 2, batches 4 and 5
        if table.location.startswith("delta"):
            schema_nodes = [4]  # version 1 came before the table
        for index, node in enumerate(table.nodes[:-1]):
            if index not in schema_nodes:
                node.unlink()

        assert numbers(Run(table, follows=True)) == [1, 2]

    def test_an_older_one_that_is_lost_leaves_the_newer_ones(self, table: TableHarness) -> None:
        run = started(table)
        run.sink.apply_schema_version(1, version(2), [NOTE])
        lost = table.nodes[-1]
        run.sink.apply_schema_version(1, version(3), [])
        run.send(1)

        lost.unlink()

        assert 3 in numbers(run)
        assert 2 not in numbers(run)

    def test_a_new_chain_after_a_loss_goes_on_with_the_versions_that_are_left(self, table: TableHarness) -> None:
        run = started(table)
        run.sink.apply_schema_version(1, version(2), [NOTE])
        table.nodes[-1].unlink()
        accepting = Run(table, epoch=2, follows=True)
        assert accepting.sink.claims().loss_evidence is not None
        accepting.fence()
        assert 2 not in numbers(accepting)

        accepting.sink.apply_schema_version(2, version(3), [TargetStep(StepKind.ADD, "more", "", "int")])

        assert 3 in numbers(accepting)
        assert table.columns() == ["id", "note", "more"]

    def test_a_chain_that_is_cut_at_a_batch_keeps_the_versions(self, table: TableHarness) -> None:
        run = started(table)
        run.sink.apply_schema_version(1, version(2), [NOTE])
        run.send(1)
        lost = table.nodes[-1]
        run.send(2)
        lost.unlink()
        accepting = Run(table, epoch=2, follows=True)
        with pytest.raises(ReceiptsUnreadableError):
            list(accepting.sink.receipts({}))

        accepting.fence().send(3)

        assert 2 in numbers(accepting)

    def test_a_table_that_was_set_back_before_the_change_is_reported(self, table: TableHarness) -> None:
        run = started(table)
        run.send(1)
        run.sink.apply_schema_version(1, version(2), [NOTE])
        table.restore(3 if table.location.startswith("iceberg") else 2)

        assert "was restored or rolled back" in str(run.sink.claims().loss_evidence)
        with pytest.raises(SinkChangedError, match="was restored or rolled back"):
            run.sink.apply_schema_version(1, version(3), [])


def test_a_table_that_does_not_exist_or_has_no_columns_gets_them_from_the_first_rows(table: TableHarness) -> None:
    run = Run(table, follows=True).fence()
    run.sink.apply_schema_version(1, version(1), [])
    run.sink.apply_schema_version(1, version(2), [NOTE])
    with pytest.raises(SinkError, match="schema version 2 has a receipt"):
        run.sink.apply_schema_version(1, version(2), [NOTE])

    run.commit(run.writer.deliver(task(0), content(0, note=pa.array(["n"] * 10))))
    run.sink.apply_schema_version(1, version(3), [TargetStep(StepKind.ADD, "more", "", "int")])

    assert table.columns() == ["id", "note", "more"]
    assert numbers(run) == [1, 2, 3]


def test_a_stale_epoch_leaves_no_receipt_where_there_is_no_table(table: TableHarness) -> None:
    stale = Run(table, follows=True).fence()
    Run(table, epoch=2, follows=True).fence()

    with pytest.raises(FencedError):
        stale.sink.apply_schema_version(1, version(1), [])

    assert numbers(stale) == []
