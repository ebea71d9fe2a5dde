"""Fixtures of the unit tests: an Airflow in which only the test's own settings are configured."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def bare_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection and no ``[ckpt]`` option from outside."""
    for name in list(os.environ):
        if name.startswith(("AIRFLOW_CONN_", "AIRFLOW__CKPT__")):
            monkeypatch.delenv(name)
