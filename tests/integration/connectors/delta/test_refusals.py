"""Tests of the delta sink's refusals: tables that it cannot write to, and a first batch without columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.delta.sink import DeltaSink
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.errors import ConfigError
from tests.integration.connectors.batches import LEDGER, content, no_rows, task
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


FEATURES = (
    "appendOnly", "allowColumnDefaults", "changeDataFeed", "checkConstraints", "checkpointProtection", "clustering",
    "collations-preview", "columnMapping", "coordinatedCommits-preview", "deletionVectors", "domainMetadata",
    "generatedColumns", "icebergCompatV1", "icebergCompatV2", "icebergWriterCompatV1", "identityColumns",
    "inCommitTimestamp", "invariants", "materializePartitionColumns", "rowTracking", "timestampNtz", "typeWidening",
    "typeWidening-preview", "v2Checkpoint", "vacuumProtocolCheck", "variantType", "variantType-preview",
)  # fmt: skip
"""Every table feature that writers of Delta tables know."""

READER_FEATURES = {
    "columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "v2Checkpoint",
    "vacuumProtocolCheck", "variantType", "variantType-preview",
}  # fmt: skip


def set_protocol(table: DeltaHarness, protocol: Mapping[str, Any]) -> None:
    """Commit another protocol of a table, as Spark does when a user sets a property that needs a feature."""
    log = table.place / "_delta_log" / f"{table.version + 1:020d}.json"
    log.write_text(f"{json.dumps({'protocol': protocol})}\n{json.dumps({'commitInfo': {'timestamp': 0}})}")


def protocol_of(feature: str) -> Mapping[str, Any]:
    """The protocol of a table that has one feature."""
    if feature not in READER_FEATURES:
        return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}
    return {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": [feature], "readerFeatures": [feature]}


PROTOCOLS = {
    **{feature: protocol_of(feature) for feature in FEATURES},
    **{f"writer version {number}": {"minReaderVersion": 2, "minWriterVersion": number} for number in (5, 6)},
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_check_refuses_exactly_the_features_with_which_the_library_refuses_a_commit(
    table: DeltaHarness, name: str
) -> None:
    table.create()
    set_protocol(table, PROTOCOLS[name])
    opened, sink = table.opened, Run(table).sink
    refused: ConfigError | None = None
    try:
        sink.check()
    except ConfigError as error:
        refused = error

    if refused is None:
        opened.create_write_transaction([], "append", opened.schema())
    else:
        with pytest.raises(CommitFailedError, match="Unsupported table features required"):
            opened.create_write_transaction([], "append", opened.schema())
        assert "the Delta library does not write tables with the feature" in refused.message


def partition_by_part(table: DeltaHarness) -> None:
    rows = table.opened.to_pyarrow_dataset().to_table()
    write_deltalake(table.place, rows, mode="overwrite", schema_mode="overwrite", partition_by=["part"])


def constrain(table: DeltaHarness) -> None:
    table.opened.alter.add_constraint({"small": "id < 10"})


@pytest.mark.parametrize(
    ("change", "message"),
    [(partition_by_part, "it is partitioned by part"), (constrain, "it has the check constraint small")],
)
def test_rows_staged_before_a_change_that_plain_files_would_violate_are_not_committed(
    table: DeltaHarness, change: Callable[[DeltaHarness], None], message: str
) -> None:
    run = Run(table).fence()
    parts = pa.array(["a"] * 10)
    run.commit(run.writer.deliver(task(0), content(0, part=parts)))
    staged = run.writer.deliver(task(1), content(1, part=parts))
    change(table)
    state = table.state

    (outcome,) = run.commit(staged)

    assert outcome.outcome is AttemptOutcome.FAILED
    assert outcome.error is not None
    assert message in outcome.error.message
    assert (table.state, run.receipted) == (state, [0])


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
