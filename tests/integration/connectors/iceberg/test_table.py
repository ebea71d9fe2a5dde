"""Tests of the sink's state in an Iceberg table, and of tables that have no columns yet."""

from __future__ import annotations

import pyarrow as pa

from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.receipt import KnownReceipts, Verdict
from tests.integration.connectors.batches import SIZE, content, expected, no_rows, task
from tests.integration.connectors.iceberg.iceberg_harness import IcebergHarness
from tests.integration.connectors.two_phase.harness import Run


def test_a_wave_is_one_snapshot_that_says_whose_it_is(table: IcebergHarness) -> None:
    Run(table, epoch=3).fence().send(0, 1, 2)

    snapshots = table.opened.snapshots()
    assert len(snapshots) == 2  # the fence's, and the wave's
    assert snapshots[-1].summary is not None
    assert snapshots[-1].summary["ckpt"] == '{"pipeline": "flights", "epoch": 3, "batches": 3}'


def test_a_rejected_and_a_void_batch_have_their_receipts_before_there_is_a_column(table: IcebergHarness) -> None:
    run = Run(table).fence()
    reject = run.writer.deliver(task(1, instruction=Instruction.REJECT), no_rows(10, 11))
    void = run.writer.deliver(task(2, instruction=Instruction.VOID), no_rows())

    outcomes = run.commit(reject, void)
    run.send(0)

    assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.REJECTED, AttemptOutcome.VOID]
    beyond = run.sink.receipts({"files": KnownReceipts(1, SIZE)})
    assert [receipt.verdict for receipt in beyond] == [Verdict.REJECTED, Verdict.VOID]
    assert table.ids() == expected(0)
    assert [line["position"] for line in table.dead_letter_lines()] == [10, 11]


def test_its_properties_do_not_grow_with_the_batches(table: IcebergHarness) -> None:
    run = Run(table).fence()
    run.send(0)
    first = table.opened.properties

    for seq in range(1, 5):
        run.send(seq)

    properties = table.opened.properties
    assert properties.keys() == first.keys()
    assert len(str(properties)) <= len(str(first)) + 2  # a longer number
    assert run.receipted == list(range(5))


def test_few_manifests_and_metadata_files_are_kept(table: IcebergHarness) -> None:
    Run(table).fence()

    settings = table.opened.properties
    assert settings["commit.manifest-merge.enabled"] == "true"
    assert settings["write.metadata.delete-after-commit.enabled"] == "true"


def test_statistics_let_readers_skip_files_whatever_the_other_columns_hold(table: IcebergHarness) -> None:
    run = Run(table).fence()
    odd = {
        "at": pa.array([2**62, -(2**62)] + [1] * 8, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        "day": pa.array([2**30] + [1] * 9, pa.int32()).cast(pa.date32()),
        "odd": pa.array([float("nan"), float("inf")] + [0.0] * 8),
        "text": pa.array(["\U0010ffff" * 40] + ["\x00"] * 9),
    }
    run.commit(*(run.writer.deliver(task(seq), content(seq, **odd)) for seq in (0, 1)))

    assert len(list(table.opened.scan("id == 3").plan_files())) == 1
    assert len(list(table.opened.scan("id == 99").plan_files())) == 0
