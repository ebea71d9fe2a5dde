"""Tests of refusals of two-phase sinks and their messages: rows that do not fit, full disks, missing receipts."""

from __future__ import annotations

import errno
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType, SinkError
from airflow_provider_ckpt.core.wave_messages import Outcome
from tests.integration.connectors.batches import content, expected, task
from tests.integration.connectors.two_phase.harness import Run, TableHarness


def test_without_dead_letters_a_record_that_calls_for_one_halts_and_nothing_is_sent(table: TableHarness) -> None:
    table.create(required=True)
    run = Run(table, extra={"dead_letter_queue": {"enabled": False}}).fence()

    outcome = run.writer.deliver(task(0), content(0, id=pa.array([None, *range(9)])))

    assert outcome.error is not None
    assert (outcome.outcome, outcome.error.type) == (AttemptOutcome.FAILED, ErrorType.DEAD_LETTER_QUEUE)
    assert outcome.error.message.startswith("the record at position 0 cannot be delivered (Sink: column id is NULL")
    assert (table.dead_letter_lines(), table.files()) == ([], set())


def test_rows_that_do_not_fit_fail_their_batch_alone_and_name_the_columns(table: TableHarness) -> None:
    run = Run(table).fence()
    good, bad = run.stage(0)[0], run.writer.deliver(task(1), content(1, id=pa.array(["x"] * 10)))

    outcomes = run.commit(good, bad)
    late = run.writer.deliver(task(2), content(2, more=pa.array([1] * 10)))

    assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.DELIVERED, AttemptOutcome.FAILED]
    assert outcomes[1].error is not None
    assert outcomes[1].error.type is ErrorType.CONFIG
    assert "id is string, the table's is long" in outcomes[1].error.message
    assert late.error is not None
    assert "more is not in the table (long)" in late.error.message
    assert table.files() == table.known_files()


def test_in_a_pinned_pipeline_later_batches_wait_for_one_that_failed(table: TableHarness) -> None:
    run = Run(table, pinned=True).fence()
    first, last = run.stage(0, 2)
    bad = run.writer.deliver(task(1), content(1, id=pa.array(["x"] * 10)))

    outcomes = run.commit(last, bad, first)

    states = [outcome.outcome for outcome in outcomes]
    assert states == [AttemptOutcome.NOT_ATTEMPTED, AttemptOutcome.FAILED, AttemptOutcome.DELIVERED]
    assert table.ids() == expected(0)
    assert table.files() == table.known_files()


def test_a_failed_outcome_passes_through(table: TableHarness) -> None:
    run = Run(table).fence()
    failed = Outcome(task(0).key, 1, AttemptOutcome.FAILED, error=ErrorInfo(ErrorType.SOURCE, "gone"))

    outcomes = run.commit(failed, *run.stage(1))

    assert outcomes[0] == failed
    assert run.receipted == [1]


def test_a_full_disk_fails_the_sink_as_a_whole_and_leaves_nothing(
    table: TableHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(table).fence()
    run.send(0)
    files = table.files()

    def full(_: pa.Table, file: IO[bytes], **__: object) -> None:
        file.write(b"PAR1")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", full)
        outcome = run.writer.deliver(task(1), content(1, bad=1))

    assert outcome.error is not None
    assert (outcome.error.type, outcome.error.is_outage) == (ErrorType.IO, True)
    assert "No space left on device" in outcome.error.message
    assert table.files() == files
    assert table.dead_letter_lines() == []


def test_missing_receipts_are_an_error_and_never_read_as_none(table: TableHarness) -> None:
    run = Run(table).fence()
    run.send(0)
    (node,) = table.nodes
    node.unlink()

    with pytest.raises(SinkError, match=r"missing or damaged: .*Restore the file"):
        list(Run(table).sink.receipts({}))
    assert Run(table).stage(0)[0].outcome is AttemptOutcome.FAILED


def test_a_type_that_the_format_does_not_have_is_named(table: TableHarness) -> None:
    outcome = Run(table).fence().writer.deliver(task(0), content(0, gone=pa.nulls(10)))

    assert outcome.error is not None
    assert outcome.error.type is ErrorType.CONFIG
    assert "table cannot hold these columns: gone is null" in outcome.error.message
