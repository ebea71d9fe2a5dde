"""List the table formats whose sinks are two-phase."""

from __future__ import annotations

from collections.abc import Mapping

from tests.integration.connectors.delta.delta_harness import DeltaHarness
from tests.integration.connectors.delta.stored_delta_harness import StoredDeltaHarness
from tests.integration.connectors.iceberg.iceberg_harness import IcebergHarness
from tests.integration.connectors.iceberg.stored_iceberg_harness import StoredIcebergHarness
from tests.integration.connectors.two_phase.harness import TableHarness

FORMATS: Mapping[str, type[TableHarness]] = {"delta": DeltaHarness, "iceberg": IcebergHarness}
"""Tables in a directory, for every test of the suite."""

PLACES: Mapping[str, type[TableHarness]] = {
    **FORMATS,
    "delta-in-s3": StoredDeltaHarness,
    "iceberg-in-s3": StoredIcebergHarness,
}
"""Tables wherever they can lie, for the tests of what a store may do differently."""
