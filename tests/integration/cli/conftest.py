"""Fixtures of these tests: commands in this process and in others, their ledger, and a standing Spark driver.

A command in another process runs in a fork of a process that has imported Airflow, since importing Airflow takes longer
than most commands.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.integration.airflow.fixtures import ckpt, ledger, orders, people  # noqa: F401
from tests.services.warm_airflow import WarmAirflow, airflow_in
from tests.services.warm_spark import WarmSpark


@pytest.fixture(scope="package")
def imported_airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmAirflow]:
    """A process that has imported Airflow, for all of these tests."""
    here = tmp_path_factory.mktemp("airflow")
    found = WarmAirflow(here / "home", here / "airflow")
    with airflow_in(here, {**os.environ, "AIRFLOW_HOME": str(found.home)}):
        yield found


@pytest.fixture
def warm_airflow(imported_airflow: WarmAirflow) -> WarmAirflow:
    """The same, with an empty AIRFLOW_HOME."""
    shutil.rmtree(imported_airflow.home, ignore_errors=True)
    imported_airflow.home.mkdir()
    return imported_airflow


@pytest.fixture(scope="package")
def standing_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmSpark]:
    """Standing drivers that the runs of these tests share."""
    with WarmSpark(tmp_path_factory.mktemp("runtime")) as warm:
        yield warm
