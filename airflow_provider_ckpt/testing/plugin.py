"""Plugin for pytest that makes failed assertions of the conformance suites show their values.

``pytest_plugins = ["airflow_provider_ckpt.testing.plugin"]`` in ``conftest.py`` loads it.
"""

from __future__ import annotations

import pytest

_SUITES = (
    "declaration_conformance",
    "shared_position",
    "sink_conformance",
    "sink_dead_letters",
    "sink_delivery",
    "sink_fence",
    "sink_harness",
    "source_conformance",
    "source_harness",
)

pytest.register_assert_rewrite(*(f"airflow_provider_ckpt.testing.{name}" for name in _SUITES))
