"""The table formats whose sinks have two phases."""

from __future__ import annotations

from collections.abc import Mapping

from tests.integration.connectors.delta.delta_harness import DeltaHarness
from tests.integration.connectors.delta.stored_delta_harness import StoredDeltaHarness
from tests.integration.connectors.iceberg.iceberg_harness import IcebergHarness
from tests.integration.connectors.two_phase.harness import TableHarness

FORMATS: Mapping[str, type[TableHarness]] = {
    "delta": DeltaHarness,
    "delta-in-s3": StoredDeltaHarness,
    "iceberg": IcebergHarness,
}
ON_DISK = [name for name, harness in FORMATS.items() if harness.on_disk]
