"""What the delta sink refuses, and how it says so: misfits, full disks, missing receipts, tables it cannot write to."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.delta.sink import DeltaSink
from airflow_provider_ckpt.connectors.delta.writer import DeltaWriter
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, SinkContext
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.errors import ConfigError, ErrorInfo, ErrorType, SinkError
from airflow_provider_ckpt.core.wave import Outcome
from tests.integration.connectors.delta.delta_support import (
    LEDGER,
    LONG,
    Run,
    content,
    data_files,
    expected,
    ids,
    letter_lines,
    logged_files,
    pipeline,
    task,
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "flights"


def a_file(path: Path) -> None:
    path.write_text("")


def a_directory_of_something_else(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("")


def a_partitioned_table(path: Path) -> None:
    DeltaTable.create(path, LONG, partition_by="id")


def a_constrained_table(path: Path) -> None:
    DeltaTable.create(path, LONG)
    DeltaTable(path).alter.add_constraint({"positive": "id >= 0"})


class TestRefusals:
    def test_without_dead_letters_a_record_that_calls_for_one_halts_and_nothing_is_sent(self, table: Path) -> None:
        DeltaTable.create(table, Schema([Field("id", PrimitiveType("long"), nullable=False)]))
        declared = pipeline(table, dead_letter_queue={"enabled": False})
        context = SinkContext(LEDGER, declared.name, 1)
        Run(table).fence()

        outcome = DeltaWriter(declared, None, context).deliver(task(0), content(0, id=pa.array([None, *range(9)])))

        assert outcome.error is not None
        assert (outcome.outcome, outcome.error.type) == (AttemptOutcome.FAILED, ErrorType.DEAD_LETTER_QUEUE)
        assert outcome.error.message.startswith("position 0 calls for a dead letter (Sink: column id is NULL")
        assert (letter_lines(table), data_files(table)) == ([], set())

    def test_rows_that_do_not_fit_fail_their_batch_alone_and_name_the_columns(self, table: Path) -> None:
        run = Run(table).fence()
        good, bad = run.stage(0)[0], run.writer.deliver(task(1), content(1, id=pa.array(["x"] * 10)))

        outcomes = run.committer.commit([good, bad])
        late = run.writer.deliver(task(2), content(2, more=pa.array([1] * 10)))

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.DELIVERED, AttemptOutcome.FAILED]
        assert outcomes[1].error is not None
        assert outcomes[1].error.type is ErrorType.CONFIG
        assert "id is string, the table's is long" in outcomes[1].error.message
        assert late.error is not None
        assert "more is not in the table (long)" in late.error.message
        assert data_files(table) == logged_files(table)

    def test_in_a_pinned_pipeline_later_batches_wait_for_one_that_failed(self, table: Path) -> None:
        run = Run(table, pinned=True).fence()
        first, last = run.stage(0, 2)
        bad = run.writer.deliver(task(1), content(1, id=pa.array(["x"] * 10)))

        outcomes = run.committer.commit([last, bad, first])

        states = [outcome.outcome for outcome in outcomes]
        assert states == [AttemptOutcome.NOT_ATTEMPTED, AttemptOutcome.FAILED, AttemptOutcome.DELIVERED]
        assert ids(table) == expected(0)
        assert data_files(table) == logged_files(table)

    def test_a_failed_outcome_passes_through(self, table: Path) -> None:
        run = Run(table).fence()
        failed = Outcome(task(0).key, 1, AttemptOutcome.FAILED, error=ErrorInfo(ErrorType.SOURCE, "gone"))

        outcomes = run.committer.commit([failed, *run.stage(1)])

        assert outcomes[0] == failed
        assert run.receipted == [1]

    def test_a_full_disk_fails_the_sink_as_a_whole_and_leaves_nothing(
        self, table: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(table).fence()
        run.send(0)
        files = data_files(table)

        def full(_: pa.Table, path: Path, **__: object) -> None:
            path.write_bytes(b"PAR1")
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(pq, "write_table", full)
            outcome = run.writer.deliver(task(1), content(1, bad=1))

        assert outcome.error is not None
        assert (outcome.error.type, outcome.error.whole) == (ErrorType.IO, True)
        assert "No space left on device" in outcome.error.message
        assert data_files(table) == files
        assert letter_lines(table) == []

    def test_a_void_batch_before_there_is_a_table_says_what_to_do(self, table: Path) -> None:
        run = Run(table).fence()
        nothing = pa.table({ROW_NUMBER: pa.array([], pa.int64())})
        void = run.writer.deliver(task(0, instruction=Instruction.VOID), BatchContent(nothing, [], 0, 0, lambda _: []))

        (outcome,) = run.committer.commit([void])

        assert outcome.outcome is AttemptOutcome.FAILED
        assert outcome.error is not None
        assert "no batch has columns to create it from" in outcome.error.message

    def test_missing_receipts_are_an_error_and_never_read_as_none(self, table: Path) -> None:
        run = Run(table).fence()
        run.send(0)
        (node,) = (table / "_ckpt" / LEDGER / "flights" / "receipts").iterdir()
        node.unlink()

        with pytest.raises(SinkError, match=r"missing or damaged: .*Restore that file"):
            list(Run(table).sink.receipts({}))
        assert Run(table).stage(0)[0].outcome is AttemptOutcome.FAILED

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (a_file, "is a file, not a directory"),
            (a_directory_of_something_else, r"holds other files, such as notes\.txt"),
            (a_partitioned_table, "it is partitioned by id"),
            (a_constrained_table, "it has the check constraint positive"),
        ],
    )
    def test_what_cannot_be_written_to_is_refused_at_the_check(
        self, table: Path, make: Callable[[Path], object], message: str
    ) -> None:
        table.parent.mkdir()
        make(table)

        with pytest.raises(ConfigError, match=message):
            Run(table).sink.check()

    def test_columns_that_delta_cannot_tell_apart_are_refused(self, table: Path) -> None:
        with pytest.raises(ConfigError, match="columns id and ID are the same to Delta"):
            Run(table).sink.fits([("id", "bigint"), ("name", "string"), ("ID", "int")])

    def test_a_remote_location_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="s3:// locations are not supported"):
            DeltaSink(pipeline("s3://bucket/flights"), None, SinkContext(LEDGER, "flights", 1))
