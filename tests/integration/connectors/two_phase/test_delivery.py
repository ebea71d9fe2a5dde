"""Two-phase sinks commit waves with the right rows, dead letters and receipts."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType, IoError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, KnownReceipts, Verdict
from airflow_provider_ckpt.core.wave_messages import Outcome
from tests.integration.connectors.batches import LEDGER, SIZE, content, expected, no_rows, task
from tests.integration.connectors.two_phase.harness import Run, TableHarness

NESTED = pa.struct([("tags", pa.list_(pa.string())), ("times", pa.map_(pa.string(), pa.timestamp("us", tz="Etc/UTC")))])
AT = datetime(2013, 1, 1, 5, tzinfo=UTC)


class TestDelivery:
    def test_the_first_wave_gives_the_table_its_columns(self, table: TableHarness) -> None:
        run = Run(table)
        run.sink.check()
        run.fence()
        run.sink.check()
        run.sink.check_columns([("anything", "string")])

        outcomes = run.send(0, 1, 2)

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.DELIVERED] * 3
        assert not any(outcome.receipt_existed for outcome in outcomes)
        assert table.ids() == expected(0, 1, 2)
        run.sink.check_columns([("id", "bigint")])
        with pytest.raises(ConfigError, match="has no column name; it has id"):
            run.sink.check_columns([("id", "bigint"), ("name", "string")])
        assert run.sink.target_rows() == 30
        assert table.files() == table.known_files()

    def test_a_wave_is_one_version(self, table: TableHarness) -> None:
        run = Run(table).fence()
        run.send(0)
        version = table.version

        outcomes = run.send(1, 2, 3)

        assert table.version == version + 1
        assert [outcome.receipt for outcome in outcomes] == list(run.sink.receipts({}))[1:]

    def test_nothing_staged_is_visible_before_its_commit(self, table: TableHarness) -> None:
        run = Run(table).fence()
        run.send(0)

        staged = run.stage(1)

        assert staged[0].outcome is AttemptOutcome.STAGED
        assert table.ids() == expected(0)
        assert run.receipted == [0]

    def test_a_receipt_says_what_the_batch_was(self, table: TableHarness) -> None:
        run = Run(table, epoch=3).fence()
        before = datetime.now(UTC)
        staged = run.writer.deliver(task(4, attempt=2), content(4, bad=2, filtered=3))

        (outcome,) = run.commit(Outcome.from_json(staged.to_json()))
        (receipt,) = run.sink.receipts({})

        assert outcome.receipt == receipt
        assert outcome.dead_letters == {"MessageDeserialization": 2}
        assert (receipt.key, receipt.range, receipt.bound) == (task(4).key, Range(40, 50), 1000)
        assert (receipt.verdict, receipt.epoch, receipt.attempt) == (Verdict.DELIVERED, 3, 2)
        assert receipt.counts == Counts(10, 5, 3, 2)
        assert before <= receipt.at <= datetime.now(UTC)

    def test_a_batch_without_rows_has_its_receipt_and_no_file(self, table: TableHarness) -> None:
        run = Run(table).fence()

        run.commit(run.writer.deliver(task(0), content(0, filtered=10)))

        assert run.receipted == [0]
        assert table.files() == set()
        assert run.sink.target_rows() == 0

    def test_a_rejected_and_a_void_batch_have_theirs(self, table: TableHarness) -> None:
        run = Run(table).fence()
        run.send(0)
        reject = run.writer.deliver(task(1, instruction=Instruction.REJECT), no_rows(10, 11))
        void = run.writer.deliver(task(2, instruction=Instruction.VOID), no_rows())

        outcomes = run.commit(reject, void)

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.REJECTED, AttemptOutcome.VOID]
        beyond = run.sink.receipts({"files": KnownReceipts(1, SIZE)})
        assert [receipt.verdict for receipt in beyond] == [Verdict.REJECTED, Verdict.VOID]
        assert table.ids() == expected(0)
        assert [line["position"] for line in table.dead_letter_lines()] == [10, 11]

    def test_receipts_begin_beyond_the_checkpoint(self, table: TableHarness) -> None:
        run = Run(table).fence()
        for seqs in ((0, 1), (2, 3), (4, 5)):
            run.send(*seqs)

        beyond = [receipt.key.seq for receipt in run.sink.receipts({"files": KnownReceipts(1, 35)})]

        assert beyond == [3, 4, 5]
        assert run.receipted == [0, 1, 2, 3, 4, 5]
        assert list(run.sink.receipts({"files": KnownReceipts(1, 60)})) == []

    def test_any_partition_id_will_do(self, table: TableHarness) -> None:
        run = Run(table).fence()
        partitions = ["recovery:files", "../up", ".", "_x", "a/b", "ü" * 40]
        staged = [run.writer.deliver(task(0, partition=p), content(0, bad=1)) for p in partitions]

        run.commit(*staged)

        assert {receipt.key.partition for receipt in run.sink.receipts({})} == set(partitions)
        assert sorted({line["partition"] for line in table.dead_letter_lines()}) == sorted(partitions)
        assert sorted(path.name for path in table.place.parent.iterdir()) == ["flights", "flights.dead_letters"]

    def test_another_pipeline_and_another_writer_share_the_table(self, table: TableHarness) -> None:
        run, other = Run(table).fence(), Run(table, ledger="another").fence()
        run.send(0)

        other.send(1)
        table.compact()
        run.send(2)

        assert run.receipted == [0, 2]
        assert other.receipted == [1]
        assert table.ids() == expected(0, 1, 2)
        assert run.sink.target_rows() == 30

    def test_every_type_that_spark_yields_arrives(self, table: TableHarness) -> None:
        run = Run(table).fence()
        nested = {"tags": ["a", None], "times": [("x", AT)]}
        columns = {
            "local": pa.array([AT] * 10, pa.timestamp("us", tz="America/New_York")),
            "naive": pa.array([AT.replace(tzinfo=None)] * 10, pa.timestamp("us")),
            "small": pa.array([7] * 10, pa.int8()),
            "amount": pa.array([Decimal("1.50")] * 10, pa.decimal128(10, 2)),
            "day": pa.array([AT.date()] * 10, pa.date32()),
            "raw": pa.array([b"\xff"] * 10),
            "a b.c": pa.array([1.5] * 10, pa.float32()),
            "nested": pa.array([nested] * 10, NESTED),
        }

        for seq in (0, 1):  # into a table without columns, and into the one that this makes
            (outcome,) = run.commit(run.writer.deliver(task(seq), content(seq, **columns)))
            assert outcome.outcome is AttemptOutcome.DELIVERED

        rows = table.rows()
        assert rows[-1] == {
            "id": 19,
            "local": AT,
            "naive": AT.replace(tzinfo=None),
            "small": 7,
            "amount": Decimal("1.50"),
            "day": AT.date(),
            "raw": b"\xff",
            "a b.c": 1.5,
            "nested": nested,
        }
        assert len(rows) == 20
        assert table.read()["local"].type == pa.timestamp("us", tz="UTC")

    def test_times_beyond_python_s_calendar_and_odd_numbers_arrive(self, table: TableHarness) -> None:
        run = Run(table).fence()
        far = pa.array([2**62, -(2**62)] + [1] * 8, pa.int64())
        columns = {
            "at": far.cast(pa.timestamp("us", tz="UTC")),
            "day": pa.array([2**30] + [1] * 9, pa.int32()).cast(pa.date32()),
            "odd": pa.array([float("nan"), float("inf")] + [0.0] * 8),
            "text": pa.array(["\U0010ffff" * 40] + ["\x00"] * 9),
        }

        (outcome,) = run.commit(run.writer.deliver(task(0), content(0, **columns)))

        assert outcome.outcome is AttemptOutcome.DELIVERED
        rows = table.read()
        assert rows["at"].cast(pa.int64()).to_pylist() == far.to_pylist()
        assert rows["day"].cast(pa.int32()).to_pylist() == columns["day"].cast(pa.int32()).to_pylist()
        assert rows["text"].to_pylist() == columns["text"].to_pylist()


class TestSchemaEvolution:
    def test_a_table_gets_the_columns_that_it_has_not(self, table: TableHarness) -> None:
        run = Run(table, grows=True).fence()
        run.commit(run.writer.deliver(task(0), content(0, note=pa.array(["x"] * 10))))
        run.sink.check_columns([("id", "bigint"), ("new", "string")])

        nested = {"tags": ["a"], "times": [("x", None)]}
        (outcome,) = run.commit(run.writer.deliver(task(1), content(1, more=pa.array([nested] * 10, NESTED))))
        (last,) = run.send(2)

        assert [outcome.outcome, last.outcome] == [AttemptOutcome.DELIVERED] * 2
        rows = table.rows()
        assert rows[0] == {"id": 0, "note": "x", "more": None}
        assert rows[10] == {"id": 10, "note": None, "more": nested}
        assert rows[29] == {"id": 29, "note": None, "more": None}
        assert run.receipted == [0, 1, 2]

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
        self, table: TableHarness, columns: dict[str, pa.Array], message: str
    ) -> None:
        run = Run(table, grows=True).fence()
        run.commit(run.writer.deliver(task(0), content(0, note=pa.array(["x"] * 10))))
        state = table.state

        (outcome,) = run.commit(run.writer.deliver(task(1), content(1, **columns)))

        assert outcome.error is not None
        assert message in outcome.error.message
        assert table.columns() == ["id", "note"]
        assert table.state == state

    def test_a_required_column_is_never_left_out(self, table: TableHarness) -> None:
        table.create(required=True)
        run = Run(table, grows=True).fence()
        lacking = content(0, key=pa.array(range(10)))
        lacking.rows = lacking.rows.drop_columns(["id"])

        outcome = run.writer.deliver(task(0), lacking)

        assert outcome.error is not None
        assert "id is missing (long)" in outcome.error.message


class TestDeadLetters:
    def test_a_dead_letter_keeps_its_bytes_and_says_what_happened(self, table: TableHarness) -> None:
        run = Run(table, epoch=2).fence()
        run.commit(run.writer.deliver(task(0, attempt=3), content(0, bad=1)))

        (line,) = table.dead_letter_lines()

        assert base64.b64decode(line["value_base64"]) == b"\xff0"
        assert (line["value"], line["key"]) == (None, None)
        assert (line["position"], line["error_type"], line["message"]) == (0, "MessageDeserialization", "not JSON")
        assert (line["seq"], line["attempt"], line["epoch"], line["partition"]) == (0, 3, 2, "files")
        assert line["headers"] == {"source-file": "x.jsonl"}
        beside = table.place.with_name("flights.dead_letters") / "flights" / f"ledger={LEDGER}"
        assert (beside / "generation=1" / "files" / "0-3-2.jsonl").is_file()

    def test_a_null_in_a_not_null_column_costs_that_record_alone(self, table: TableHarness) -> None:
        table.create(required=True)
        run = Run(table).fence()
        some = content(0, id=pa.array([0, None, 2, 3, 4, 5, 6, 7, 8, None], pa.int64()))

        (outcome,) = run.commit(run.writer.deliver(task(0), some))

        assert outcome.receipt is not None
        assert outcome.receipt.counts == Counts(10, 8, 0, 2)
        assert outcome.dead_letters == {"Sink": 2}
        found = [(line["position"], line["sqlstate"]) for line in table.dead_letter_lines()]
        assert found == [(1, "23502"), (9, "23502")]
        assert table.ids() == [0, 2, 3, 4, 5, 6, 7, 8]

    def test_a_twin_that_fails_leaves_the_letters_that_a_receipt_names(
        self, table: TableHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(table).fence()
        staged = run.writer.deliver(task(0), content(0, bad=1))

        def fail(*_: object) -> None:
            raise IoError("the disk is full", is_outage=True)

        with monkeypatch.context() as broken:
            broken.setattr(*table.steps["write rows"], fail)
            twin = run.writer.deliver(task(0), content(0, bad=1))
        (outcome,) = run.commit(staged)

        assert twin.outcome is AttemptOutcome.FAILED
        assert outcome.dead_letters == {"MessageDeserialization": 1}
        assert len(table.dead_letter_lines()) == 1

    def test_letters_that_cannot_be_kept_fail_the_batch_and_leave_nothing(self, table: TableHarness) -> None:
        run = Run(table, extra={"dead_letter_queue": {"max_dlq_retries": 0}}).fence()
        run.send(0)
        files = table.files()
        table.place.with_name("flights.dead_letters").write_text("in the way")

        outcome = run.writer.deliver(task(1), content(1, bad=1))

        assert outcome.outcome is AttemptOutcome.FAILED
        assert outcome.error is not None
        assert outcome.error.type is ErrorType.DEAD_LETTER_QUEUE
        assert table.files() == files
