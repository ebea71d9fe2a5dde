"""Fixtures of the iceberg sink's own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.connectors.iceberg.iceberg_harness import IcebergHarness


@pytest.fixture
def table(tmp_path: Path) -> IcebergHarness:
    """A table that does not exist yet."""
    return IcebergHarness(tmp_path)
