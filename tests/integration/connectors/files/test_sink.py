"""Tests of the files sink's output in each format, and of targets that it refuses."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors.files import staging as files_staged
from airflow_provider_ckpt.connectors.files.local_files import LocalFiles
from airflow_provider_ckpt.connectors.files.sink import FilesSink
from airflow_provider_ckpt.connectors.files.writer import FilesWriter
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, SinkContext
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType
from tests.integration.connectors.batches import LEDGER, content, dead_letter_lines, expected, task
from tests.integration.connectors.files.files_sink_support import Run, ids, own, pipeline, rows, visible

AT = datetime(2024, 2, 29, 12, 30, 45, 123456, UTC)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "out"


def some_rows() -> pa.Table:
    """Two rows of every common type, the second one null but for its id."""
    columns = {
        ROW_NUMBER: pa.array([0, 1], pa.int64()),
        "id": pa.array([0, 1], pa.int64()),
        "text": pa.array(['a,"b"\nä\u2028', None], pa.string()),
        "empty": pa.array(["", None], pa.string()),
        "share": pa.array([float("nan"), None], pa.float64()),
        "price": pa.array([Decimal("12345678901234567.10"), None], pa.decimal128(20, 2)),
        "at": pa.array([AT, None], pa.timestamp("us", tz="UTC")),
        "local": pa.array([AT.replace(tzinfo=None), None], pa.timestamp("us")),
        "day": pa.array([date(2024, 2, 29), None], pa.date32()),
        "yes": pa.array([True, None], pa.bool_()),
    }
    return pa.table(columns)


class TestFormats:
    def deliver(self, directory: Path, form: str, table: pa.Table) -> Any:
        run = Run(directory, form=form).fence()
        some = content(0)
        some.rows, some.read = table, table.num_rows
        return run.writer.deliver(task(0), some)

    def test_json_lines_keep_every_digit(self, directory: Path) -> None:
        self.deliver(directory, "jsonl", some_rows())
        (file,) = visible(directory)

        assert file.read_bytes().endswith(b"}\n")
        assert '"price":12345678901234567.10' in file.read_text()
        first, second = rows(directory)
        assert (first["text"], first["empty"], first["share"]) == ('a,"b"\nä\u2028', "", "NaN")
        assert (first["at"], first["local"]) == ("2024-02-29T12:30:45.123456Z", "2024-02-29T12:30:45.123456")
        assert (first["day"], first["yes"]) == ("2024-02-29", True)
        assert {name: value for name, value in second.items() if value is not None} == {"id": 1}

    def test_csv_tells_an_empty_text_from_a_null(self, directory: Path) -> None:
        self.deliver(directory, "csv", some_rows())
        (file,) = visible(directory)

        head, line, *_ = file.read_text().split("\n")
        assert head == '"id","text","empty","share","price","at","local","day","yes"'
        assert line == '0,"a,""b""'
        assert file.read_text().endswith(
            '","","NaN",12345678901234567.10,2024-02-29 12:30:45.123456Z,2024-02-29 12:30:45.123456,2024-02-29,true\n'
            "1,,,,,,,,\n"
        )

    @pytest.mark.parametrize(
        ("form", "lines"),
        [
            (
                "jsonl",
                ['{"at":"55840-11-08T22:13:20.000000Z","day":"5881580-07-11"}', '{"at":null,"day":"1970-01-01"}'],
            ),
            ("csv", ['"at","day"', '"55840-11-08 22:13:20.000000Z","5881580-07-11"', ',"1970-01-01"']),
        ],
    )
    def test_a_year_has_all_its_digits(self, directory: Path, form: str, lines: list[str]) -> None:
        at = pa.array([1_700_000_000_000_000_000, None], pa.timestamp("us", "UTC"))
        day = pa.array([2**31 - 1, 0], pa.int32()).cast(pa.date32())
        self.deliver(directory, form, pa.table({ROW_NUMBER: pa.array([0, 1], pa.int64()), "at": at, "day": day}))
        (file,) = visible(directory)

        assert file.read_text().splitlines() == lines

    def test_parquet_keeps_the_types(self, directory: Path) -> None:
        table = some_rows().append_column("tags", pa.array([["a", None], None], pa.list_(pa.string())))
        self.deliver(directory, "parquet", table)

        (first, _) = rows(directory)
        assert (first["price"], first["at"], first["tags"]) == (Decimal("12345678901234567.10"), AT, ["a", None])

    def test_what_a_format_has_no_place_for_fails_the_batch_and_names_the_reason(self, directory: Path) -> None:
        table = some_rows().append_column("tags", pa.array([["a"], None], pa.list_(pa.string())))

        outcome = self.deliver(directory, "csv", table)

        assert outcome.error.type is ErrorType.CONFIG
        assert "rows cannot be written as csv: Unsupported Type:list" in outcome.error.message
        assert (own(directory, "staged"), visible(directory)) == ([], [])

    def test_columns_that_do_not_fit_are_refused_before_anything_is_sent(self, directory: Path) -> None:
        with pytest.raises(ConfigError, match=r"a csv file cannot hold these columns: tags is array<string>; raw"):
            Run(directory, form="csv").sink.check_columns(
                [("id", "bigint"), ("tags", "array<string>"), ("raw", "binary")]
            )
        Run(directory, form="jsonl").sink.check_columns([("tags", "array<string>"), ("raw", "binary")])

    @pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
    def test_rows_are_counted_when_somebody_wants_to_know(self, directory: Path, form: str) -> None:
        self.deliver(directory, form, some_rows())
        run = Run(directory, form=form)
        run.send(1)

        assert (run.sink.target_rows(), run.sink.target_rows(exact=True)) == (None, 12)

    def test_batches_without_rows_leave_no_file(self, directory: Path) -> None:
        run = Run(directory).fence()
        void = task(1, instruction=Instruction.VOID)

        outcomes = [run.send(0, bad=10)[0], run.writer.deliver(void, content(1, bad=0, filtered=10))]

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.DELIVERED, AttemptOutcome.VOID]
        assert (visible(directory), run.receipted()) == ([], [0, 1])

    def test_the_sink_s_own_files_are_a_source_s_records(self, directory: Path) -> None:
        Run(directory).fence().send(0, 1)

        assert [Path(file.path) for file in LocalFiles(directory, follow_links=False).discover(()).new] == visible(
            directory
        )


class TestRefusals:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda path: path.write_text(""), "is a file, not a directory"),
            (lambda path: _put(path / "notes.txt"), r"holds other files, such as notes\.txt"),
            (lambda path: (path / "_delta_log").mkdir(parents=True), "holds other files, such as _delta_log"),
            (
                lambda path: Run(path, form="csv").fence().send(0),
                r"holds files of another format, such as ckpt-",
            ),
        ],
    )
    def test_a_directory_of_something_else_is_refused_at_the_check(
        self, directory: Path, make: Callable[[Path], object], message: str
    ) -> None:
        make(directory)

        with pytest.raises(ConfigError, match=message):
            Run(directory).sink.check()

    def test_what_readers_and_writers_leave_beside_is_no_foreign_file(self, directory: Path) -> None:
        for name in ("_SUCCESS", ".DS_Store", "_spark_metadata"):
            _put(directory / name)

        Run(directory).sink.check()

    def test_a_read_only_directory_is_refused_at_the_check(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        directory.mkdir()
        monkeypatch.setattr(os, "access", lambda place, _: Path(place) != directory)  # tests may run as root

        with pytest.raises(ConfigError, match=r"sink\.path: .*out is not writable for this user"):
            Run(directory).sink.check()

    def test_a_remote_location_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="s3:// locations are not supported"):
            FilesSink(pipeline("s3://bucket/out"), None, SinkContext(LEDGER, "flights", 1))

    def test_a_pipeline_must_name_the_format(self, directory: Path) -> None:
        document = pipeline(directory).document()
        document["sink"]["format"] = None

        with pytest.raises(ConfigError, match=r"sink\.format: an empty value is not supported; supported: jsonl"):
            build(document)


class TestTrouble:
    def test_a_full_disk_fails_the_sink_as_a_whole_and_leaves_nothing(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(directory).fence()

        def full(_: pa.Table, __: str, file: Any) -> None:
            file.write(b'{"id"')
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(files_staged, "write_rows", full)
            (outcome,) = run.send(0)

        assert outcome.error is not None
        assert (outcome.error.type, outcome.error.is_outage) == (ErrorType.IO, True)
        assert "No space left on device" in outcome.error.message
        assert (own(directory, "staged"), run.receipted(), ids(directory)) == ([], [], [])
        assert run.send(0)[0].outcome is AttemptOutcome.DELIVERED

    def test_a_claim_that_fails_after_its_marker_is_found_by_the_next_attempt(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(directory).fence()

        def broken(*_: object) -> None:
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", broken)
            (failed,) = run.send(0)
        (again,) = run.send(0, attempt=2)

        assert (failed.outcome, again.receipt_existed, ids(directory)) == (AttemptOutcome.FAILED, True, expected(0))

    def test_a_file_system_without_hard_links_is_named(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run = Run(directory).fence()

        def refused(*_: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refused)
        (outcome,) = run.send(0)

        assert outcome.error is not None
        assert outcome.error.type is ErrorType.CONFIG
        assert "does not support hard links" in outcome.error.message

    def test_damaged_receipts_are_an_error_and_never_read_as_none(self, directory: Path) -> None:
        Run(directory, epoch=1).fence().send(0)
        run = Run(directory, epoch=2).fence()
        (directory / "_ckpt" / LEDGER / "flights" / "bundles" / "2.json").write_text("{")

        with pytest.raises(Exception, match=r"receipts in .*2\.json are damaged.*Restore that file"):
            run.receipted()
        assert run.send(0)[0].outcome is AttemptOutcome.FAILED

    def test_letters_that_cannot_be_kept_fail_the_batch_and_leave_nothing(self, directory: Path) -> None:
        run = Run(directory).fence()
        directory.with_name("out.dead_letters").write_text("in the way")
        few = pipeline(directory, dead_letter_queue={"max_dlq_retries": 0})

        outcome = FilesWriter(few, None, SinkContext(LEDGER, "flights", 1)).deliver(task(0), content(0, bad=1))

        assert outcome.error is not None
        assert outcome.error.type is ErrorType.DEAD_LETTER_QUEUE
        assert (own(directory, "staged"), run.receipted()) == ([], [])

    def test_dead_letters_lie_beside_the_directory(self, directory: Path) -> None:
        Run(directory).fence().send(0, bad=2, attempt=3)

        (first, _) = dead_letter_lines(directory)
        assert (first["seq"], first["attempt"], first["epoch"]) == (0, 3, 1)
        assert (directory.with_name("out.dead_letters") / "flights").is_dir()


def _put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
