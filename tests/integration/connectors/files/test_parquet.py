"""The Parquet source: columns and types, files with different schemas, and ranges of rows in any order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.files import parquet_file, parquet_source
from airflow_provider_ckpt.connectors.files.parquet_reader import ParquetReader
from airflow_provider_ckpt.connectors.files.parquet_source import ParquetSource
from airflow_provider_ckpt.connectors.source_plan import PlanRequest, RangeToPlan, SourceFile
from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask
from airflow_provider_ckpt.spark.dead_letters.originals import row_json
from tests.integration.connectors.files.files_support import parquet_pipeline, put, put_rows

NULL = {"missing_field_behavior": "null"}
AT = datetime(2024, 2, 29, 12, 0, 0, 123456)


def plan(pipeline: Pipeline, number: int | None = None, files: Sequence[SourceFile] = ()) -> tuple[Any, ParquetSource]:
    """Return the source's plan, and the source."""
    source = ParquetSource(pipeline)
    found = source.plan(PlanRequest([RangeToPlan("files", 0)], number, 10**9, files))
    for error in found.refused:
        raise error
    return found, source


def rows(pipeline: Pipeline, number: int | None = None) -> list[dict[str, Any]]:
    """Every record, planned, located and read."""
    found, source = plan(pipeline, number)
    return read(pipeline, source, [batch.range for batch in found.batches], found.files)


def read(pipeline: Pipeline, source: ParquetSource, ranges: Sequence[Range], files: Any) -> list[dict[str, Any]]:
    reader = ParquetReader(pipeline, None, source.shape())
    tasks = [BatchTask(BatchKey(1, "files", seq), span, 1) for seq, span in enumerate(ranges)]
    found = [row for task in source.locate(tasks, files) for batch in reader.read(task) for row in batch.to_pylist()]
    reader.close()
    return found


def ids(count: int, first: int = 0, kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), kind or pa.int64())})


class TestColumns:
    def test_every_type_has_its_name_in_spark_and_comes_as_that(self, tmp_path: Path) -> None:
        given: dict[str, tuple[pa.Array, str, Any]] = {
            "tiny": (pa.array([1], pa.int8()), "tinyint", 1),
            "byte": (pa.array([255], pa.uint8()), "smallint", 255),
            "huge": (pa.array([2**64 - 1], pa.uint64()), "decimal(20,0)", Decimal(2**64 - 1)),
            "price": (pa.array([Decimal("1.50")], pa.decimal128(9, 2)), "decimal(9,2)", Decimal("1.50")),
            "text": (pa.array(["é"]).dictionary_encode(), "string", "é"),
            "code": (pa.array([b"\x00\xff"], pa.binary(2)), "binary", b"\x00\xff"),
            "day": (pa.array([date(2024, 2, 29)]), "date", date(2024, 2, 29)),
            "at": (pa.array([AT], pa.timestamp("us", "Asia/Tokyo")), "timestamp", AT.replace(tzinfo=UTC)),
            "local": (pa.array([AT], pa.timestamp("ns")), "timestamp_ntz", AT),
            "tags": (pa.array([["a", None]]), "array<string>", ["a", None]),
            "sizes": (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())), "map<string,int>", [("k", 1)]),
            "inner": (pa.array([{"a b": 1}]), "struct<`a b`:bigint>", {"a b": 1}),
        }
        table = pa.table({name: array for name, (array, _, _) in given.items()})
        put_rows(tmp_path / "a.parquet", table)
        pipeline = parquet_pipeline(tmp_path)

        (found,) = rows(pipeline)

        assert dict(plan(pipeline)[1].shape().columns) == {name: kind for name, (_, kind, _) in given.items()}
        assert found == {POSITION: 0, **{name: value for name, (_, _, value) in given.items()}}

    def test_the_old_timestamps_of_96_bits_are_instants(self, tmp_path: Path) -> None:
        table = pa.table({"at": pa.array([AT], pa.timestamp("ns"))})
        put_rows(tmp_path / "a.parquet", table, use_deprecated_int96_timestamps=True)

        assert rows(parquet_pipeline(tmp_path)) == [{POSITION: 0, "at": AT.replace(tzinfo=UTC)}]

    def test_a_type_that_spark_has_not_is_named_with_its_file_and_column(self, tmp_path: Path) -> None:
        file = put_rows(tmp_path / "a.parquet", ids(1).append_column("noon", pa.array([1], pa.time64("us"))))

        with pytest.raises(SourceError, match=rf"{file}: column noon: Spark SQL has no type for time64") as caught:
            rows(parquet_pipeline(tmp_path))
        assert "Declare in transform.schema the columns that are wanted" in (caught.value.hint or "")
        assert rows(parquet_pipeline(tmp_path, "id bigint")) == [{POSITION: 0, "id": 0}]

    def test_a_value_that_spark_cannot_hold_is_named_with_its_file_and_column(self, tmp_path: Path) -> None:
        file = put_rows(tmp_path / "a.parquet", pa.table({"at": pa.array([1_500], pa.timestamp("ns"))}))

        with pytest.raises(SourceError, match=f"{file}: column at: .* would lose data"):
            rows(parquet_pipeline(tmp_path))

    def test_declared_columns_are_taken_in_their_order_and_types(self, tmp_path: Path) -> None:
        table = ids(2, kind=pa.int16()).append_column("more", pa.array(["x", "y"]))
        put_rows(tmp_path / "a.parquet", table.append_column("price", pa.array([Decimal("1.5")] * 2)))

        found = rows(parquet_pipeline(tmp_path, "price decimal(9, 3), id BIGINT NOT NULL"))

        assert found[1] == {POSITION: 1, "price": Decimal("1.500"), "id": 1}
        assert list(found[1]) == [POSITION, "price", "id"]

    def test_a_declared_type_that_is_none_is_a_configuration_error(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"transform\.schema: column id: bigit is not a Spark SQL type"):
            ParquetSource(parquet_pipeline(tmp_path, "id bigit"))

    @pytest.mark.parametrize(
        ("parts", "message"),
        [
            ({"transform": {"decode": "json", "schema": "id int"}}, "Parquet files have columns already"),
            ({"error_handling": {"missing_field_behavior": "skip"}}, "skip is not supported for Parquet files"),
            (
                {
                    "source": {"type": "files", "path": "x", "format": "csv"},
                    "transform": {"decode": "json", "schema": "i int"},
                },
                "source.format: csv and transform.decode: json contradict each other",
            ),
        ],
    )
    def test_keys_that_contradict_each_other_are_refused(
        self, tmp_path: Path, parts: dict[str, Any], message: str
    ) -> None:
        document = parquet_pipeline(tmp_path).document() | parts

        with pytest.raises(ConfigError, match=message):
            build(document)


class TestFilesThatDiffer:
    def test_a_missing_column_is_an_error_that_names_both_files(self, tmp_path: Path) -> None:
        first = put_rows(tmp_path / "a.parquet", ids(1).append_column("name", pa.array(["x"])), at=1)
        second = put_rows(tmp_path / "b.parquet", ids(1), at=2)

        with pytest.raises(SourceError, match=rf"{second} has no column name \(string\), which {first} has"):
            rows(parquet_pipeline(tmp_path))

    def test_a_missing_column_is_null_where_the_pipeline_says_so(self, tmp_path: Path) -> None:
        put_rows(tmp_path / "a.parquet", ids(1).append_column("name", pa.array(["x"])), at=1)
        put_rows(tmp_path / "b.parquet", pa.table({"name": ["y"]}), at=2)

        found = rows(parquet_pipeline(tmp_path, error_handling=NULL))

        assert [(row["id"], row["name"]) for row in found] == [(0, "x"), (None, "y")]

    def test_of_a_file_without_any_of_the_columns_every_row_is_null(self, tmp_path: Path) -> None:
        put_rows(tmp_path / "a.parquet", ids(3))

        found = rows(parquet_pipeline(tmp_path, "other string", error_handling=NULL), 2)

        assert found == [{POSITION: position, "other": None} for position in range(3)]

    def test_another_type_is_an_error_that_names_both_files(self, tmp_path: Path) -> None:
        first = put_rows(tmp_path / "a.parquet", ids(1), at=1)
        second = put_rows(tmp_path / "b.parquet", pa.table({"id": ["1"]}), at=2)

        with pytest.raises(SourceError, match=f"{second}: column id is string, but bigint in {first}"):
            rows(parquet_pipeline(tmp_path))

    def test_a_type_that_only_has_to_grow_does(self, tmp_path: Path) -> None:
        put_rows(tmp_path / "a.parquet", ids(1), at=1)
        put_rows(tmp_path / "b.parquet", ids(1, 1, pa.int16()), at=2)
        put_rows(tmp_path / "c.parquet", ids(1, 2, pa.uint32()), at=3)

        assert [row["id"] for row in rows(parquet_pipeline(tmp_path))] == [0, 1, 2]

    def test_a_column_more_is_an_error_until_the_pipeline_says_which_it_wants(self, tmp_path: Path) -> None:
        first = put_rows(tmp_path / "a.parquet", ids(1), at=1)
        second = put_rows(tmp_path / "b.parquet", ids(1).append_column("new", pa.array(["x"])), at=2)

        with pytest.raises(SourceError, match=f"{second} has a column new, which {first} does not have"):
            rows(parquet_pipeline(tmp_path))
        found = rows(parquet_pipeline(tmp_path, "id bigint, new string", error_handling=NULL))
        assert [row["new"] for row in found] == [None, "x"]

    def test_a_file_that_was_delivered_may_go(self, tmp_path: Path) -> None:
        first = put_rows(tmp_path / "a.parquet", ids(2), at=1)
        pipeline = parquet_pipeline(tmp_path)
        found, _ = plan(pipeline)
        first.unlink()
        put_rows(tmp_path / "b.parquet", ids(2, 2), at=2)

        source = ParquetSource(pipeline)
        later = source.plan(PlanRequest([RangeToPlan("files", 2)], None, 100, found.files))

        assert [batch.range for batch in later.batches] == [Range(2, 4)]
        files = [*found.files, *later.files]
        assert [row["id"] for row in read(pipeline, ParquetSource(pipeline), [Range(2, 4)], files)] == [2, 3]

    def test_without_any_file_left_the_columns_must_be_declared(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match=r"no Parquet file at .* any more to take the columns from"):
            ParquetSource(parquet_pipeline(tmp_path)).shape()
        assert ParquetSource(parquet_pipeline(tmp_path, "id int")).shape().columns == (("id", "int"),)


class TestTrouble:
    @pytest.mark.parametrize("damage", [lambda data: b"id\n1\n", lambda data: data[:-5], lambda data: b""])
    def test_what_is_no_whole_parquet_file_is_named(self, tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
        file = put_rows(tmp_path / "a.parquet", ids(10))
        put(file, damage(file.read_bytes()))

        with pytest.raises(SourceError, match=f"{file} cannot be read as Parquet: ") as caught:
            rows(parquet_pipeline(tmp_path))
        assert "must appear under its final name complete" in (caught.value.hint or "")

    def test_a_damaged_page_is_an_error_of_the_source(self, tmp_path: Path) -> None:
        file = put_rows(tmp_path / "a.parquet", ids(1000), compression="zstd")
        data = bytearray(file.read_bytes())
        data[20:400] = bytes(380)
        put(file, bytes(data))

        with pytest.raises(SourceError, match="cannot be read as Parquet"):
            rows(parquet_pipeline(tmp_path))

    def test_a_file_that_changes_after_its_discovery_is_refused(self, tmp_path: Path) -> None:
        file = put_rows(tmp_path / "a.parquet", ids(4), at=1)
        pipeline = parquet_pipeline(tmp_path)
        found, source = plan(pipeline, 2)
        tasks = [BatchTask(BatchKey(1, "files", seq), batch.range, 1) for seq, batch in enumerate(found.batches)]
        located = source.locate(tasks, found.files)
        reader = ParquetReader(pipeline, None, source.shape())
        list(reader.read(located[0]))
        put_rows(file, ids(4, 7), at=2)

        with pytest.raises(SourceError, match="changed after it was discovered"):
            list(reader.read(located[1]))
        with pytest.raises(SourceError, match="changed after it was discovered"):
            source.locate(tasks, found.files)


class TestRows:
    def test_positions_count_the_rows_of_all_files(self, tmp_path: Path) -> None:
        put_rows(tmp_path / "a.parquet", ids(5), at=1)
        put_rows(tmp_path / "b.parquet", ids(0), at=2)
        second = put_rows(tmp_path / "c.parquet", ids(3, 5), at=3)
        pipeline = parquet_pipeline(tmp_path)
        found, source = plan(pipeline)
        (task,) = source.locate([BatchTask(BatchKey(1, "files", 1), Range(4, 7), 1)], found.files)
        reader = ParquetReader(pipeline, None, source.shape())

        assert [(file.base, file.size) for file in found.files] == [(0, 5), (5, 0), (5, 3)]
        assert [(row[POSITION], row["id"]) for batch in reader.read(task) for row in batch.to_pylist()] == [
            (4, 4),
            (5, 5),
            (6, 6),
        ]
        assert reader.origin(task, 6) == {
            "source-file": str(second),
            "source-partition": "files",
            "source-position": "1",
        }

    def test_many_batches_of_one_row_group_decode_it_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put_rows(tmp_path / "a.parquet", ids(1000), group=500)
        pipeline = parquet_pipeline(tmp_path)
        found, source = plan(pipeline, 10)
        seeks: list[int] = []
        seek = parquet_file.RowReader._seek

        def counted(rows: parquet_file.RowReader, row: int) -> None:
            seeks.append(row)
            seek(rows, row)

        monkeypatch.setattr(parquet_file.RowReader, "_seek", counted)

        every_other = read(pipeline, source, [batch.range for batch in found.batches][::2], found.files)

        assert [row["id"] for row in every_other] == [n for n in range(1000) if n // 10 % 2 == 0]
        assert seeks == [0, 500]

    def test_a_big_row_group_is_cut_and_small_ones_are_taken_together(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(parquet_source, "_MAX_BATCH_ROWS", 1000)
        put_rows(tmp_path / "a.parquet", ids(2500), at=1)
        put_rows(tmp_path / "b.parquet", ids(2500), at=2, group=300)

        found, _ = plan(parquet_pipeline(tmp_path))

        assert [batch.records for batch in found.batches] == [833, 833, 834, 900, 900, 700]

    def test_a_gap_is_planned_again_just_as_far_as_asked(self, tmp_path: Path) -> None:
        put_rows(tmp_path / "a.parquet", ids(9), at=1)
        put_rows(tmp_path / "b.parquet", ids(9), at=2)
        pipeline = parquet_pipeline(tmp_path)
        found, source = plan(pipeline)

        again = source.plan(PlanRequest([RangeToPlan("files", 7, 11)], 100, 100, found.files))

        assert [batch.range for batch in again.batches] == [Range(7, 9), Range(9, 11)]

    def test_a_rejected_row_is_written_as_json_without_loss(self, tmp_path: Path) -> None:
        table = pa.table(
            {"at": pa.array([AT], pa.timestamp("us", "UTC")), "n": pa.array([Decimal("1.10")]), "b": [b"\xff"]}
        )
        put_rows(tmp_path / "a.parquet", table)
        (row,) = rows(parquet_pipeline(tmp_path))

        assert json.loads(row_json(row)) | {POSITION: 0} == {
            POSITION: 0,
            "at": "2024-02-29T12:00:00.123456+00:00",
            "n": "1.10",
            "b": "\\xff",
        }


@settings(max_examples=60, deadline=None)
@given(
    groups=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    ranges=st.lists(st.tuples(st.integers(0, 199), st.integers(1, 60)), min_size=1, max_size=8),
    size=st.sampled_from([3, 7, 1000]),
)
def test_any_stretches_in_any_order_are_the_rows_they_name(
    groups: list[int], ranges: list[tuple[int, int]], size: int
) -> None:
    total = sum(groups)
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_file, "MAX_ROWS", size)
        path = Path(directory, "a.parquet")
        with pq.ParquetWriter(path, ids(0).schema) as writer:
            for number, count in enumerate(groups):
                writer.write_table(ids(count, sum(groups[:number])))
        found, source = plan(parquet_pipeline(directory))
        wanted = [Range(start % total, min(start % total + count, total)) for start, count in ranges]

        records = read(parquet_pipeline(directory), source, wanted, found.files)

    expected = [position for span in wanted for position in range(span.start, span.end)]
    assert [(row[POSITION], row["id"]) for row in records] == [(position, position) for position in expected]
