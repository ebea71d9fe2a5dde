"""The delta sink at work: rows, dead letters and receipts of committed waves."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.delta.writer import DeltaWriter
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, SinkContext
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType, IoError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, KnownReceipts, Verdict
from airflow_provider_ckpt.core.wave import Outcome
from tests.integration.connectors.delta.delta_support import (
    LEDGER,
    Run,
    before,
    content,
    data_files,
    dead_letters,
    expected,
    ids,
    letter_lines,
    logged_files,
    once,
    pipeline,
    task,
)
from tests.services.delta import read_delta

NESTED = pa.struct([("tags", pa.list_(pa.string())), ("times", pa.map_(pa.string(), pa.timestamp("us", tz="Etc/UTC")))])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "flights"


class TestDelivery:
    def test_the_first_wave_creates_the_table(self, table: Path) -> None:
        run = Run(table).fence()
        run.sink.check()
        run.sink.fits([("anything", "string")])

        outcomes = run.send(0, 1, 2)

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.DELIVERED] * 3
        assert not any(outcome.found for outcome in outcomes)
        assert ids(table) == expected(0, 1, 2)
        run.sink.fits([("id", "bigint")])
        with pytest.raises(ConfigError, match="has no column name; it has id"):
            run.sink.fits([("id", "bigint"), ("name", "string")])
        assert run.sink.target_rows() == 30
        assert data_files(table) == logged_files(table)

    def test_nothing_staged_is_visible_before_its_commit(self, table: Path) -> None:
        run = Run(table).fence()
        run.send(0)

        staged = run.stage(1)

        assert staged[0].outcome is AttemptOutcome.STAGED
        assert ids(table) == expected(0)
        assert run.receipted == [0]

    def test_a_receipt_says_what_the_batch_was(self, table: Path) -> None:
        run = Run(table, epoch=3).fence()
        before = datetime.now(UTC)
        staged = run.writer.deliver(task(4, attempt=2), content(4, bad=2, filtered=3))

        (outcome,) = run.committer.commit([Outcome.from_json(staged.to_json())])
        (receipt,) = run.sink.receipts({})

        assert outcome.receipt == receipt
        assert outcome.dead_letters == {"MessageDeserialization": 2}
        assert (receipt.key, receipt.range, receipt.bound) == (task(4).key, Range(40, 50), 1000)
        assert (receipt.verdict, receipt.epoch, receipt.attempt) == (Verdict.DELIVERED, 3, 2)
        assert receipt.counts == Counts(10, 5, 3, 2)
        assert before <= receipt.at <= datetime.now(UTC)

    def test_a_batch_without_rows_has_its_receipt_and_no_file(self, table: Path) -> None:
        run = Run(table).fence()

        run.committer.commit([run.writer.deliver(task(0), content(0, filtered=10))])

        assert run.receipted == [0]
        assert data_files(table) == set()
        assert run.sink.target_rows() == 0

    def test_a_rejected_and_a_void_batch_have_theirs(self, table: Path) -> None:
        run = Run(table).fence()
        run.send(0)
        nothing = pa.table({ROW_NUMBER: pa.array([], pa.int64())})
        reject = run.writer.deliver(
            task(1, instruction=Instruction.REJECT), BatchContent(nothing, dead_letters([10, 11]), 2, 0, lambda _: [])
        )
        void = run.writer.deliver(task(2, instruction=Instruction.VOID), BatchContent(nothing, [], 0, 0, lambda _: []))

        outcomes = run.committer.commit([reject, void])

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.REJECTED, AttemptOutcome.VOID]
        beyond = run.sink.receipts({"files": KnownReceipts(1, 10)})
        assert [receipt.verdict for receipt in beyond] == [Verdict.REJECTED, Verdict.VOID]
        assert ids(table) == expected(0)
        assert [line["position"] for line in letter_lines(table)] == [10, 11]

    def test_receipts_begin_beyond_the_checkpoint(self, table: Path) -> None:
        run = Run(table).fence()
        for seqs in ((0, 1), (2, 3), (4, 5)):
            run.send(*seqs)

        beyond = [receipt.key.seq for receipt in run.sink.receipts({"files": KnownReceipts(1, 35)})]

        assert beyond == [3, 4, 5]
        assert run.receipted == [0, 1, 2, 3, 4, 5]
        assert list(run.sink.receipts({"files": KnownReceipts(1, 60)})) == []

    def test_any_partition_id_will_do(self, table: Path) -> None:
        run = Run(table).fence()
        partitions = ["recovery:files", "../up", ".", "_x", "a/b", "ü" * 40]
        staged = [run.writer.deliver(task(0, partition=p), content(0, bad=1)) for p in partitions]

        run.committer.commit(staged)

        assert {receipt.key.partition for receipt in run.sink.receipts({})} == set(partitions)
        assert sorted({line["partition"] for line in letter_lines(table)}) == sorted(partitions)
        assert sorted(path.name for path in table.parent.iterdir()) == ["flights", "flights.dead_letters"]

    def test_another_pipeline_and_another_writer_share_the_table(self, table: Path) -> None:
        run, other = Run(table).fence(), Run(table, ledger="another").fence()
        run.send(0)

        other.send(1)
        DeltaTable(table).optimize.compact()
        run.send(2)

        assert run.receipted == [0, 2]
        assert other.receipted == [1]
        assert ids(table) == expected(0, 1, 2)
        assert run.sink.target_rows() == 30

    def test_every_type_that_spark_yields_arrives(self, table: Path) -> None:
        run = Run(table).fence()
        at = datetime(2013, 1, 1, 5, tzinfo=UTC)
        columns = {
            "local": pa.array([at] * 10, pa.timestamp("us", tz="America/New_York")),
            "naive": pa.array([at.replace(tzinfo=None)] * 10, pa.timestamp("us")),
            "amount": pa.array([Decimal("1.50")] * 10, pa.decimal128(10, 2)),
            "day": pa.array([at.date()] * 10, pa.date32()),
            "raw": pa.array([b"\xff"] * 10),
            "nested": pa.array([{"tags": ["a", None], "times": [("x", at)]}] * 10, NESTED),
        }

        run.committer.commit([run.writer.deliver(task(0), content(0, **columns))])

        row = read_delta(table).sort_by("id").to_pylist()[0]
        assert row == {
            "id": 0,
            "local": at,
            "naive": at.replace(tzinfo=None),
            "amount": Decimal("1.50"),
            "day": at.date(),
            "raw": b"\xff",
            "nested": {"tags": ["a", None], "times": [("x", at)]},
        }

    def test_a_type_that_delta_does_not_have_is_named(self, table: Path) -> None:
        outcome = Run(table).fence().writer.deliver(task(0), content(0, gone=pa.nulls(10)))

        assert outcome.error is not None
        assert outcome.error.type is ErrorType.CONFIG
        assert "cannot hold these columns: gone is null" in outcome.error.message

    def test_statistics_let_readers_skip_files(self, table: Path) -> None:
        run = Run(table).fence()
        at = pa.array([1_500_001, *[None] * 9], pa.timestamp("us", tz="UTC"))
        run.committer.commit([run.writer.deliver(task(0), content(0, at=at))])

        (action,) = pa.table(DeltaTable(table).get_add_actions(flatten=True)).to_pylist()

        assert (action["num_records"], action["min.id"], action["max.id"]) == (10, 0, 9)
        assert (action["null_count.id"], action["null_count.at"]) == (0, 9)
        assert action["min.at"].isoformat() == "1970-01-01T00:00:01.500000+00:00"
        assert action["max.at"].isoformat() == "1970-01-01T00:00:01.501000+00:00"


class TestSchemaEvolution:
    def test_a_table_gets_the_columns_that_it_has_not(self, table: Path) -> None:
        run = Run(table, grows=True).fence()
        run.committer.commit([run.writer.deliver(task(0), content(0, note=pa.array(["x"] * 10)))])
        run.sink.fits([("id", "bigint"), ("new", "string")])

        more = content(1, more=pa.array([1.5] * 10))
        (outcome,) = run.committer.commit([run.writer.deliver(task(1), more)])
        (last,) = run.send(2)

        assert [outcome.outcome, last.outcome] == [AttemptOutcome.DELIVERED] * 2
        rows = DeltaTable(table).to_pyarrow_dataset().to_table(use_threads=False).sort_by("id").to_pylist()
        assert rows[0] == {"id": 0, "note": "x", "more": None}
        assert rows[10] == {"id": 10, "note": None, "more": 1.5}
        assert rows[29] == {"id": 29, "note": None, "more": None}
        assert run.receipted == [0, 1, 2]

    def test_rows_that_do_not_fit_even_so_add_nothing(self, table: Path) -> None:
        run = Run(table, grows=True).fence()
        run.committer.commit([run.writer.deliver(task(0), content(0, note=pa.array(["x"] * 10)))])
        version = DeltaTable(table).version()

        columns = {"more": pa.array([1] * 10), "NOTE": pa.array(["x"] * 10)}
        outcome = run.writer.deliver(task(1), content(1, **columns))

        assert outcome.error is not None
        assert "NOTE differs from the table's note only in case" in outcome.error.message
        assert DeltaTable(table).version() == version

    def test_two_that_add_columns_at_once_both_deliver(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        one, two = Run(table, grows=True).fence(), Run(table, ledger="another", grows=True).fence()
        one.send(0)
        mine = one.writer.deliver(task(1), content(1, a=pa.array([1] * 10)))
        theirs = two.writer.deliver(task(2), content(2, b=pa.array([2] * 10)))
        with monkeypatch.context() as patch:
            rival = once(lambda: two.committer.commit([theirs]))
            patch.setattr(delta_table, "add_columns", before(delta_table.add_columns, rival))
            (outcome,) = one.committer.commit([mine])

        assert outcome.outcome is AttemptOutcome.DELIVERED
        rows = DeltaTable(table).to_pyarrow_dataset().to_table(use_threads=False).sort_by("id").to_pylist()
        assert (rows[10], rows[20]) == ({"id": 10, "b": None, "a": 1}, {"id": 20, "b": 2, "a": None})


class TestDeadLetters:
    def test_a_dead_letter_keeps_its_bytes_and_says_what_happened(self, table: Path) -> None:
        run = Run(table, epoch=2).fence()
        run.committer.commit([run.writer.deliver(task(0, attempt=3), content(0, bad=1))])

        (line,) = letter_lines(table)

        assert base64.b64decode(line["value_base64"]) == b"\xff0"
        assert (line["value"], line["key"]) == (None, None)
        assert (line["position"], line["error_type"], line["message"]) == (0, "MessageDeserialization", "not JSON")
        assert (line["seq"], line["attempt"], line["epoch"], line["partition"]) == (0, 3, 2, "files")
        assert line["headers"] == {"source-file": "x.jsonl"}
        beside = table.parent / "flights.dead_letters" / "flights" / f"ledger={LEDGER}"
        assert (beside / "generation=1" / "files" / "0-3-2.jsonl").is_file()

    def test_a_null_in_a_not_null_column_costs_that_record_alone(self, table: Path) -> None:
        DeltaTable.create(table, Schema([Field("id", PrimitiveType("long"), nullable=False)]))
        run = Run(table).fence()
        some = content(0, id=pa.array([0, None, 2, 3, 4, 5, 6, 7, 8, None], pa.int64()))

        (outcome,) = run.committer.commit([run.writer.deliver(task(0), some)])

        assert outcome.receipt is not None
        assert outcome.receipt.counts == Counts(10, 8, 0, 2)
        assert outcome.dead_letters == {"Sink": 2}
        assert [(line["position"], line["sqlstate"]) for line in letter_lines(table)] == [(1, "23502"), (9, "23502")]
        assert ids(table) == [0, 2, 3, 4, 5, 6, 7, 8]

    def test_a_twin_that_fails_leaves_the_letters_that_a_receipt_names(
        self, table: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(table).fence()
        staged = run.writer.deliver(task(0), content(0, bad=1))

        def fail(*_: object) -> None:
            raise IoError("the disk is full", whole=True)

        with monkeypatch.context() as broken:
            broken.setattr(DeltaWriter, "_write", fail)
            twin = DeltaWriter(pipeline(table), None, SinkContext(LEDGER, "flights", 1)).deliver(
                task(0), content(0, bad=1)
            )
        (outcome,) = run.committer.commit([staged])

        assert twin.outcome is AttemptOutcome.FAILED
        assert outcome.dead_letters == {"MessageDeserialization": 1}
        assert len(letter_lines(table)) == 1

    def test_letters_that_cannot_be_kept_fail_the_batch_and_leave_nothing(self, table: Path) -> None:
        run = Run(table).fence()
        run.send(0)
        files = data_files(table)
        table.with_name("flights.dead_letters").write_text("in the way")
        writer = DeltaWriter(
            pipeline(table, dead_letter_queue={"max_dlq_retries": 0}), None, SinkContext(LEDGER, "flights", 1)
        )

        outcome = writer.deliver(task(1), content(1, bad=1))

        assert outcome.outcome is AttemptOutcome.FAILED
        assert outcome.error is not None
        assert outcome.error.type is ErrorType.DEAD_LETTER_QUEUE
        assert data_files(table) == files
