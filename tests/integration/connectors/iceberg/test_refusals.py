"""What the iceberg sink refuses, and how it says so: misfits, full disks, lost receipts, silent catalogs."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StructType

from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.iceberg.sink import IcebergSink
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType, SinkError
from tests.integration.connectors.delta.delta_support import LEDGER, content, expected, task
from tests.integration.connectors.iceberg.iceberg_support import (
    TABLE,
    Run,
    data_files,
    ids,
    known_files,
    letter_lines,
    pipeline,
    place,
)
from tests.services.iceberg import IcebergService


@pytest.fixture
def lake(tmp_path: Path) -> IcebergService:
    return IcebergService(tmp_path)


def sink(**extra: Any) -> IcebergSink:
    """A sink whose connection has this extra."""
    connection = Connection("lake", "generic", login="me", password="s3cret/", extra=extra)
    return IcebergSink(pipeline(), connection, SinkContext(LEDGER, "flights", 1))


class TestRefusals:
    def test_rows_that_do_not_fit_fail_their_batch_alone_and_name_the_columns(self, lake: IcebergService) -> None:
        run = Run(lake).fence()
        good, bad = run.stage(0)[0], run.writer.deliver(task(1), content(1, id=pa.array(["x"] * 10)))

        outcomes = run.committer.commit([good, bad])
        late = run.writer.deliver(task(2), content(2, more=pa.array([1] * 10)))

        assert [outcome.outcome for outcome in outcomes] == [AttemptOutcome.DELIVERED, AttemptOutcome.FAILED]
        assert outcomes[1].error is not None
        assert outcomes[1].error.type is ErrorType.CONFIG
        assert "id is string, the table's is long" in outcomes[1].error.message
        assert late.error is not None
        assert "more is not in the table (long)" in late.error.message
        assert data_files(lake) == known_files(lake)

    def test_in_a_pinned_pipeline_later_batches_wait_for_one_that_failed(self, lake: IcebergService) -> None:
        run = Run(lake, pinned=True).fence()
        first, last = run.stage(0, 2)
        bad = run.writer.deliver(task(1), content(1, id=pa.array(["x"] * 10)))

        outcomes = run.committer.commit([last, bad, first])

        states = [outcome.outcome for outcome in outcomes]
        assert states == [AttemptOutcome.NOT_ATTEMPTED, AttemptOutcome.FAILED, AttemptOutcome.DELIVERED]
        assert ids(lake) == expected(0)
        assert data_files(lake) == known_files(lake)

    def test_a_full_disk_fails_the_sink_as_a_whole_and_leaves_nothing(
        self, lake: IcebergService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = Run(lake).fence()
        run.send(0)
        files = data_files(lake)

        def full(_: pa.Table, path: Path, **__: object) -> None:
            path.write_bytes(b"PAR1")
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(pq, "write_table", full)
            outcome = run.writer.deliver(task(1), content(1, bad=1))

        assert outcome.error is not None
        assert (outcome.error.type, outcome.error.whole) == (ErrorType.IO, True)
        assert data_files(lake) == files
        assert letter_lines(lake) == []

    def test_missing_receipts_are_an_error_and_never_read_as_none(self, lake: IcebergService) -> None:
        run = Run(lake).fence()
        run.send(0)
        (node,) = (place(lake) / "_ckpt" / LEDGER / "flights" / "receipts").iterdir()
        node.unlink()

        with pytest.raises(SinkError, match=r"missing or damaged: .*Restore that file"):
            list(Run(lake).sink.receipts({}))
        assert Run(lake).stage(0)[0].outcome is AttemptOutcome.FAILED

    def test_a_table_that_was_dropped_takes_the_fence_with_it(self, lake: IcebergService) -> None:
        run = Run(lake).fence()
        run.send(0)
        staged = run.stage(1)
        with lake.catalog() as catalog:
            catalog.drop_table(TABLE)

        (outcome,) = run.committer.commit(staged)

        assert outcome.error is not None
        assert "which does not exist, is at no epoch" in outcome.error.message
        assert run.stage(2)[0].outcome is AttemptOutcome.FAILED

    def test_a_table_partitioned_by_a_nested_column_is_refused_at_the_check(self, lake: IcebergService) -> None:
        schema = Schema(NestedField(1, "at", StructType(NestedField(2, "day", LongType(), required=False))))
        spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
        with lake.catalog() as catalog:
            catalog.create_namespace("air")
            catalog.create_table(TABLE, schema, partition_spec=spec)

        with pytest.raises(ConfigError, match="partitioned by day, which is not derived from a top-level column"):
            Run(lake).sink.check()


class TestCatalogs:
    def test_a_remote_warehouse_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="s3:// locations are not supported"):
            sink(type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse="s3://bucket/lake").check()

    def test_a_connection_that_names_no_catalog_says_what_to_do(self) -> None:
        with pytest.raises(ConfigError, match="names no Iceberg catalog"):
            sink(warehouse="/lake")

    def test_a_catalog_that_does_not_answer_fails_the_sink_as_a_whole_without_telling_secrets(self) -> None:
        with pytest.raises(SinkError, match="cannot open the Iceberg catalog") as raised:
            sink(
                uri="http://127.0.0.1:9/me:s3cret/", token="t0ken", **{"oauth2-server-uri": "http://127.0.0.1:9/"}
            ).check()

        assert raised.value.whole
        assert "s3cret" not in str(raised.value)
        assert "t0ken" not in str(raised.value)

    def test_a_uri_that_cannot_be_read_is_an_error_of_the_configuration(self) -> None:
        with pytest.raises(ConfigError, match=r"cannot be opened.*Correct the connection's extra"):
            sink(type="sql", uri="no-such-database://x/y").check()
