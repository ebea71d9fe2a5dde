"""Tests of the delta sink's refusals: tables that it cannot write to, and a first batch without columns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.delta.sink import DeltaSink
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.errors import ConfigError
from tests.integration.connectors.batches import LEDGER, no_rows, task
from tests.integration.connectors.delta.delta_harness import DeltaHarness
from tests.integration.connectors.two_phase.harness import Run

LONG = Schema([Field("id", PrimitiveType("long"))])


def a_file(table: DeltaHarness) -> None:
    table.place.write_text("")


def a_directory_of_something_else(table: DeltaHarness) -> None:
    table.place.mkdir()
    (table.place / "notes.txt").write_text("")


def a_partitioned_table(table: DeltaHarness) -> None:
    DeltaTable.create(table.place, LONG, partition_by="id")


def a_constrained_table(table: DeltaHarness) -> None:
    table.create()
    table.opened.alter.add_constraint({"positive": "id >= 0"})


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
    table: DeltaHarness, make: Callable[[DeltaHarness], object], message: str
) -> None:
    table.place.parent.mkdir()
    make(table)

    with pytest.raises(ConfigError, match=message):
        Run(table).sink.check()


def test_a_void_batch_before_there_is_a_table_says_what_to_do(table: DeltaHarness) -> None:
    run = Run(table).fence()
    void = run.writer.deliver(task(0, instruction=Instruction.VOID), no_rows())

    (outcome,) = run.commit(void)

    assert outcome.outcome is AttemptOutcome.FAILED
    assert outcome.error is not None
    assert "no batch has rows from which to create it" in outcome.error.message


def test_columns_that_delta_cannot_tell_apart_are_refused(table: DeltaHarness) -> None:
    with pytest.raises(ConfigError, match="columns id and ID differ only in case, which Delta ignores"):
        Run(table).sink.check_columns([("id", "bigint"), ("name", "string"), ("ID", "int")])


def test_a_remote_location_is_refused(table: DeltaHarness) -> None:
    document = table.pipeline().document()
    document["sink"]["path"] = "hdfs://bucket/flights"

    with pytest.raises(ConfigError, match="hdfs:// locations are not supported"):
        DeltaSink(Pipeline.model_validate(document), None, SinkContext(LEDGER, "flights", 1))
