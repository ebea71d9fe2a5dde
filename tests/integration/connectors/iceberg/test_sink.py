"""The iceberg sink at work: rows, dead letters and receipts of committed waves, in tables plain and partitioned."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
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
from pyiceberg.types import DateType, DecimalType, LongType, NestedField, StringType, TimestamptzType

from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.receipt import Counts, KnownReceipts, Verdict
from airflow_provider_ckpt.core.wave import Outcome
from tests.integration.connectors.delta.delta_support import (
    LEDGER,
    SIZE,
    before,
    content,
    dead_letters,
    expected,
    once,
    task,
)
from tests.integration.connectors.iceberg.iceberg_support import (
    TABLE,
    Run,
    data_files,
    ids,
    known_files,
    letter_lines,
    place,
)
from tests.services.iceberg import IcebergService

NESTED = pa.struct([("tags", pa.list_(pa.string())), ("times", pa.map_(pa.string(), pa.timestamp("us", tz="Etc/UTC")))])
NESTED_VALUE = {"tags": ["a"], "times": [("x", None)]}
AT = datetime(2013, 1, 1, 5, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> IcebergService:
    return IcebergService(tmp_path)


def make_table(lake: IcebergService, *columns: NestedField, by: PartitionSpec | None = None) -> None:
    """An existing table that somebody else made."""
    with lake.catalog() as catalog:
        catalog.create_namespace("air")
        catalog.create_table(TABLE, Schema(*columns), partition_spec=by or PartitionSpec())


class TestDelivery:
    def test_the_first_wave_gives_the_table_its_columns(self, lake: IcebergService) -> None:
        run = Run(lake)
        run.sink.check()
        run.fence()
        run.sink.check()
        run.sink.fits([("anything", "string")])

        outcomes = run.send(0, 1, 2)

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.DELIVERED] * 3
        assert not any(outcome.found for outcome in outcomes)
        assert ids(lake) == expected(0, 1, 2)
        run.sink.fits([("id", "bigint")])
        with pytest.raises(ConfigError, match="has no column name; it has id"):
            run.sink.fits([("id", "bigint"), ("name", "string")])
        assert run.sink.target_rows() == 30
        assert data_files(lake) == known_files(lake)

    def test_nothing_staged_is_visible_before_its_commit(self, lake: IcebergService) -> None:
        run = Run(lake).fence()
        run.send(0)

        staged = run.stage(1)

        assert staged[0].outcome is AttemptOutcome.STAGED
        assert ids(lake) == expected(0)
        assert run.receipted == [0]

    def test_a_wave_is_one_snapshot_that_says_whose_it_is(self, lake: IcebergService) -> None:
        run = Run(lake, epoch=3).fence()
        staged = run.stage(0, 1, 2)

        outcomes = run.committer.commit([Outcome.from_json(outcome.to_json()) for outcome in staged])

        table = lake.table(TABLE)
        assert table is not None
        assert len(table.snapshots()) == 2  # the fence's, and the wave's
        newest = table.current_snapshot()
        assert newest is not None
        assert newest.summary is not None
        assert newest.summary["ckpt"] == '{"pipeline": "flights", "epoch": 3, "batches": 3}'
        assert [outcome.receipt for outcome in outcomes] == list(run.sink.receipts({}))

    def test_a_rejected_and_a_void_batch_have_their_receipts_before_there_is_a_column(
        self, lake: IcebergService
    ) -> None:
        run = Run(lake).fence()
        nothing = pa.table({ROW_NUMBER: pa.array([], pa.int64())})
        reject = run.writer.deliver(
            task(1, instruction=Instruction.REJECT), BatchContent(nothing, dead_letters([10, 11]), 2, 0, lambda _: [])
        )
        void = run.writer.deliver(task(2, instruction=Instruction.VOID), BatchContent(nothing, [], 0, 0, lambda _: []))

        outcomes = run.committer.commit([reject, void])
        run.send(0)

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.REJECTED, AttemptOutcome.VOID]
        beyond = run.sink.receipts({"files": KnownReceipts(1, SIZE)})
        assert [receipt.verdict for receipt in beyond] == [Verdict.REJECTED, Verdict.VOID]
        assert ids(lake) == expected(0)
        assert [line["position"] for line in letter_lines(lake)] == [10, 11]

    def test_any_partition_id_will_do(self, lake: IcebergService) -> None:
        run = Run(lake).fence()
        partitions = ["recovery:files", "../up", ".", "_x", "a/b", "ü" * 40]
        staged = [run.writer.deliver(task(0, partition=p), content(0, bad=1)) for p in partitions]

        run.committer.commit(staged)

        assert {receipt.key.partition for receipt in run.sink.receipts({})} == set(partitions)
        assert sorted({line["partition"] for line in letter_lines(lake)}) == sorted(partitions)
        assert sorted(path.name for path in place(lake).parent.iterdir()) == ["flights", "flights.dead_letters"]

    def test_every_type_that_spark_yields_arrives(self, lake: IcebergService) -> None:
        run = Run(lake).fence()
        columns = {
            "local": pa.array([AT] * 10, pa.timestamp("us", tz="America/New_York")),
            "naive": pa.array([AT.replace(tzinfo=None)] * 10, pa.timestamp("us")),
            "small": pa.array([7] * 10, pa.int8()),
            "amount": pa.array([Decimal("1.50")] * 10, pa.decimal128(10, 2)),
            "day": pa.array([AT.date()] * 10, pa.date32()),
            "raw": pa.array([b"\xff"] * 10),
            "a b.c": pa.array([1.5] * 10, pa.float32()),
            "nested": pa.array([{"tags": ["a", None], "times": [("x", AT)]}] * 10, NESTED),
        }

        for seq in (0, 1):  # into a table without columns, and into the one that this makes
            (outcome,) = run.committer.commit([run.writer.deliver(task(seq), content(seq, **columns))])
            assert outcome.outcome is AttemptOutcome.DELIVERED

        table = lake.table(TABLE)
        assert table is not None
        rows = table.scan().to_arrow().sort_by("id").to_pylist()
        assert rows[-1] == {
            "id": 19,
            "local": AT,
            "naive": AT.replace(tzinfo=None),
            "small": 7,
            "amount": Decimal("1.50"),
            "day": AT.date(),
            "raw": b"\xff",
            "a b.c": 1.5,
            "nested": {"tags": ["a", None], "times": [("x", AT)]},
        }
        assert len(rows) == 20
        assert schema_to_pyarrow(table.schema()).field("local").type == pa.timestamp("us", tz="UTC")

    def test_a_type_that_iceberg_does_not_have_is_named(self, lake: IcebergService) -> None:
        outcome = Run(lake).fence().writer.deliver(task(0), content(0, gone=pa.nulls(10)))

        assert outcome.error is not None
        assert "an Iceberg table cannot hold these columns: gone is null" in outcome.error.message

    def test_times_beyond_python_s_calendar_and_odd_numbers_arrive(self, lake: IcebergService) -> None:
        run = Run(lake).fence()
        far = pa.array([2**62, -(2**62)] + [1] * 8, pa.int64())
        columns = {
            "at": far.cast(pa.timestamp("us", tz="UTC")),
            "day": pa.array([2**30] + [1] * 9, pa.int32()).cast(pa.date32()),
            "odd": pa.array([float("nan"), float("inf")] + [0.0] * 8),
            "text": pa.array(["\U0010ffff" * 40] + ["\x00"] * 9),
        }

        (outcome,) = run.committer.commit([run.writer.deliver(task(0), content(0, **columns))])

        assert outcome.outcome is AttemptOutcome.DELIVERED
        rows = lake.rows(TABLE)
        assert rows["at"].cast(pa.int64()).to_pylist() == far.to_pylist()
        assert rows["text"].to_pylist() == columns["text"].to_pylist()
        table = lake.table(TABLE)
        assert table is not None
        assert len(list(table.scan("id == 99").plan_files())) == 0

    def test_statistics_let_readers_skip_files(self, lake: IcebergService) -> None:
        run = Run(lake).fence()
        run.send(0, 1)

        table = lake.table(TABLE)
        assert table is not None
        assert len(list(table.scan("id == 3").plan_files())) == 1
        assert len(list(table.scan("id == 99").plan_files())) == 0


class TestPartitionedTable:
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
        self, lake: IcebergService, transform: Transform[Any, Any], parts: int
    ) -> None:
        columns = (
            NestedField(1, "at", TimestamptzType(), required=False),
            NestedField(2, "id", LongType(), required=False),
        )
        make_table(lake, *columns, by=PartitionSpec(PartitionField(1, 1000, transform, "at_part")))
        run = Run(lake).fence()
        run.sink.check()
        days = [timedelta(0), timedelta(1), timedelta(40), timedelta(400)]
        at = pa.array([AT + days[i % 4] for i in range(9)] + [None], pa.timestamp("us", tz="UTC"))

        (outcome,) = run.committer.commit([run.writer.deliver(task(0), content(0, at=at))])

        assert outcome.outcome is AttemptOutcome.DELIVERED
        table = lake.table(TABLE)
        assert table is not None
        found = {file["partition"]["at_part"] for file in table.inspect.files().to_pylist()}
        assert (len(found), None in found) == (parts + 1, True)
        assert ids(lake) == expected(0)
        assert table.scan("at >= '2013-02-01T00:00:00+00:00'").to_arrow().num_rows == 4
        assert table.scan("at is null").to_arrow()["id"].to_pylist() == [9]

    def test_several_columns_make_a_partition(self, lake: IcebergService) -> None:
        make_table(
            lake,
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
        run = Run(lake).fence()
        columns = {
            "day": pa.array([date(2013, 1, 1 + i % 2) for i in range(10)]),
            "city": pa.array(["Ulm", "Ulan"] * 5),
            "price": pa.array([Decimal("1.50")] * 10, pa.decimal128(10, 2)),
        }

        run.committer.commit([run.writer.deliver(task(seq), content(seq, **columns)) for seq in (0, 1)])

        table = lake.table(TABLE)
        assert table is not None
        found = [tuple(file["partition"].values()) for file in table.inspect.files().to_pylist()]
        one, two = (date(2013, 1, 1), "Ul", Decimal("1.50")), (date(2013, 1, 2), "Ul", Decimal("1.50"))
        assert sorted(found) == [one, one, two, two]
        assert table.scan("day = '2013-01-02'").to_arrow().sort_by("id")["id"].to_pylist() == list(range(1, 20, 2))

    def test_a_time_that_has_no_partition_costs_that_record_alone(self, lake: IcebergService) -> None:
        columns = (
            NestedField(1, "at", TimestamptzType(), required=False),
            NestedField(2, "id", LongType(), required=False),
        )
        make_table(lake, *columns, by=PartitionSpec(PartitionField(1, 1000, YearTransform(), "year")))
        run = Run(lake).fence()
        at = pa.array([1] * 8 + [2**62, -(2**62)], pa.int64()).cast(pa.timestamp("us", tz="UTC"))

        (outcome,) = run.committer.commit([run.writer.deliver(task(0), content(0, at=at))])

        assert outcome.receipt is not None
        assert outcome.receipt.counts == Counts(10, 8, 0, 2)
        assert [(line["position"], line["sqlstate"]) for line in letter_lines(lake)] == [(8, "22008"), (9, "22008")]
        assert ids(lake) == list(range(8))

    def test_partitioning_that_changes_meanwhile_has_the_batch_sent_again(self, lake: IcebergService) -> None:
        run = Run(lake).fence()
        run.send(0)
        staged = run.stage(1)
        table = lake.table(TABLE)
        assert table is not None
        with table.update_spec() as update:
            update.add_identity("id")

        (outcome,) = run.committer.commit(staged)
        (again,) = run.send(1)

        assert outcome.error is not None
        assert outcome.error.recoverable
        assert again.outcome is AttemptOutcome.DELIVERED
        assert ids(lake) == expected(0, 1)
        assert data_files(lake) == known_files(lake)


class TestSchemaEvolution:
    def test_a_table_gets_the_columns_that_it_has_not(self, lake: IcebergService) -> None:
        run = Run(lake, grows=True).fence()
        note = pa.array(["x"] * 10)
        run.committer.commit([run.writer.deliver(task(0), content(0, note=note))])
        run.sink.fits([("id", "bigint"), ("new", "string")])

        more = content(1, more=pa.array([NESTED_VALUE] * 10, NESTED))
        (outcome,) = run.committer.commit([run.writer.deliver(task(1), more)])
        (last,) = run.send(2)

        assert [outcome.outcome, last.outcome] == [AttemptOutcome.DELIVERED] * 2
        table = lake.table(TABLE)
        assert table is not None
        rows = table.scan().to_arrow().sort_by("id").to_pylist()
        assert rows[0] == {"id": 0, "note": "x", "more": None}
        assert rows[10] == {"id": 10, "note": None, "more": NESTED_VALUE}
        assert rows[29] == {"id": 29, "note": None, "more": None}

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"note": pa.array([1] * 10)}, "note is long, the table's is string"),
            (
                {"more": pa.array([1] * 10), "NOTE": pa.array(["x"] * 10)},
                "NOTE differs from the table's note only in case",
            ),
        ],
    )
    def test_rows_that_do_not_fit_even_so_add_nothing(
        self, lake: IcebergService, columns: dict[str, pa.Array], message: str
    ) -> None:
        run = Run(lake, grows=True).fence()
        run.committer.commit([run.writer.deliver(task(0), content(0, note=pa.array(["x"] * 10)))])

        (outcome,) = run.committer.commit([run.writer.deliver(task(1), content(1, **columns))])

        table = lake.table(TABLE)
        assert table is not None
        assert outcome.error is not None
        assert message in outcome.error.message
        assert [field.name for field in table.schema().fields] == ["id", "note"]

    def test_a_required_column_is_never_left_out(self, lake: IcebergService) -> None:
        make_table(lake, NestedField(1, "key", LongType(), required=True))

        outcome = Run(lake, grows=True).fence().writer.deliver(task(0), content(0))

        assert outcome.error is not None
        assert "key is missing (long)" in outcome.error.message

    def test_rows_without_the_column_of_a_partition_go_to_that_of_nulls(self, lake: IcebergService) -> None:
        columns = (
            NestedField(1, "at", TimestamptzType(), required=False),
            NestedField(2, "id", LongType(), required=False),
        )
        make_table(lake, *columns, by=PartitionSpec(PartitionField(1, 1000, YearTransform(), "year")))

        (outcome,) = Run(lake, grows=True).fence().send(0)

        assert outcome.outcome is AttemptOutcome.DELIVERED
        table = lake.table(TABLE)
        assert table is not None
        assert table.scan("at is null").to_arrow().num_rows == 10

    def test_two_that_add_columns_at_once_both_deliver(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        one, two = Run(lake, grows=True).fence(), Run(lake, ledger="another", grows=True).fence()
        one.send(0)
        mine = one.writer.deliver(task(1), content(1, a=pa.array([1] * 10)))
        theirs = two.writer.deliver(task(2), content(2, b=pa.array([2] * 10)))
        with monkeypatch.context() as patch:
            rival = once(lambda: two.committer.commit([theirs]))
            patch.setattr(SqlCatalog, "commit_table", before(SqlCatalog.commit_table, rival))
            (first,) = one.committer.commit([mine])
        (second,) = one.committer.commit([one.writer.deliver(task(1), content(1, a=pa.array([1] * 10)))])

        assert first.error is not None
        assert first.error.recoverable
        assert second.outcome is AttemptOutcome.DELIVERED
        table = lake.table(TABLE)
        assert table is not None
        rows = table.scan().to_arrow().sort_by("id").to_pylist()
        assert (rows[10], rows[20]) == ({"id": 10, "b": None, "a": 1}, {"id": 20, "b": 2, "a": None})
        assert first.error.whole  # a table that others alter is nothing that the batch is guilty of


class TestDeadLetters:
    def test_a_dead_letter_lies_beside_the_table(self, lake: IcebergService) -> None:
        run = Run(lake, epoch=2).fence()
        run.committer.commit([run.writer.deliver(task(0, attempt=3), content(0, bad=1))])

        beside = place(lake).with_name("flights.dead_letters") / "flights" / f"ledger={LEDGER}"
        assert (beside / "generation=1" / "files" / "0-3-2.jsonl").is_file()

    def test_a_null_in_a_required_column_costs_that_record_alone(self, lake: IcebergService) -> None:
        make_table(lake, NestedField(1, "id", LongType(), required=True))
        run = Run(lake).fence()
        some = content(0, id=pa.array([0, None, 2, 3, 4, 5, 6, 7, 8, None], pa.int64()))

        (outcome,) = run.committer.commit([run.writer.deliver(task(0), some)])

        assert outcome.receipt is not None
        assert outcome.receipt.counts == Counts(10, 8, 0, 2)
        assert outcome.dead_letters == {"Sink": 2}
        assert [(line["position"], line["sqlstate"]) for line in letter_lines(lake)] == [(1, "23502"), (9, "23502")]
        assert ids(lake) == [0, 2, 3, 4, 5, 6, 7, 8]
