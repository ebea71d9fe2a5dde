"""Fixtures of the delta sink's own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.connectors.delta.delta_harness import DeltaHarness


@pytest.fixture
def table(tmp_path: Path) -> DeltaHarness:
    """A table that does not exist yet."""
    return DeltaHarness(tmp_path)
