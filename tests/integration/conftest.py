"""Fixtures of the integration tests: one local Spark for the whole session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.services.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A warm local session of two cores, set up as a pipeline's driver is."""
    session = local_session()
    yield session
    session.stop()
