"""Fixtures that run the tests of two-phase sinks once for each table format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.connectors.two_phase.formats import FORMATS, PLACES
from tests.integration.connectors.two_phase.harness import TableHarness


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> TableHarness:
    """A table of a format, which does not exist yet."""
    return PLACES[request.param](tmp_path)
