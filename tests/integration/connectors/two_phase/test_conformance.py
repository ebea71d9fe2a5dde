"""Two-phase sinks pass the conformance suite, on a table that the first batch creates and on an existing table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField

from airflow_provider_ckpt.testing.sink_conformance import RefusingSinkConformance, SinkConformance
from airflow_provider_ckpt.testing.sink_harness import SinkHarness
from tests.integration.connectors.delta.delta_harness import DeltaHarness
from tests.integration.connectors.iceberg.iceberg_harness import IcebergHarness
from tests.integration.connectors.two_phase.formats import PLACES
from tests.integration.connectors.two_phase.harness import TableHarness, TableSinkHarness
from tests.services.iceberg import IcebergService


def delta(folder: Path, _: pytest.FixtureRequest) -> TableHarness:
    table = DeltaHarness(folder)
    table.create(required=True)
    return table


def partitioned_iceberg_in_postgres(folder: Path, request: pytest.FixtureRequest) -> TableHarness:
    table = IcebergHarness(folder, IcebergService(folder, request.getfixturevalue("postgres_database")))
    by = PartitionSpec(PartitionField(1, 1000, BucketTransform(2), "id_bucket"))
    table.create_with(NestedField(1, "id", LongType(), required=True), by=by)
    return table


@pytest.mark.parametrize("table", PLACES, indirect=True)
class TestNewTable(SinkConformance):
    @pytest.fixture
    def harness(self, table: TableHarness) -> SinkHarness:
        return TableSinkHarness(table)


class TestExistingTable(RefusingSinkConformance):
    @pytest.fixture(params=[delta, partitioned_iceberg_in_postgres])
    def harness(self, tmp_path: Path, request: pytest.FixtureRequest) -> SinkHarness:
        make: Callable[[Path, pytest.FixtureRequest], TableHarness] = request.param
        harness = TableSinkHarness(make(tmp_path, request))
        harness.refused = [None]
        return harness
