"""Fixtures of these tests: a SQLite ledger that the configuration names, and commands on it."""

from __future__ import annotations

from tests.integration.airflow.fixtures import ckpt, ledger, orders, people  # noqa: F401
