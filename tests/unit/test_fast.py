"""``make test-fast`` runs tests of every connector, and each entry of its list names existing tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_ckpt.config.installed_connectors import types_with
from tests import fast

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def marked() -> list[str]:
    """The node ids of the tests outside of tests/unit that the marker selects."""
    files = sorted({entry.partition("::")[0] for entry in fast.ENTRIES})
    command = [sys.executable, "-m", "pytest", "-m", "fast", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.parametrize("source", types_with("source"))
def test_each_source_copies_transforms_and_meets_a_bad_row(source: str) -> None:
    assert set(fast.SOURCES[source]) == {"copy", "transform", "bad row"}


@pytest.mark.parametrize("sink", types_with("sink"))
def test_each_sink_copies_meets_a_bad_row_crashes_and_is_fenced(sink: str) -> None:
    assert set(fast.SINKS[sink]) == {"copy", "bad row", "crash", "fence"}


def test_no_entry_is_of_a_connector_that_is_gone() -> None:
    assert (set(fast.SOURCES), set(fast.SINKS)) == (set(types_with("source")), set(types_with("sink")))


def test_a_run_starts_at_the_command_line_in_a_dag_and_over_another() -> None:
    assert set(fast.RUNS) == {"command line", "DAG", "takeover"}


@pytest.mark.parametrize("entry", sorted(fast.ENTRIES))
def test_each_entry_names_tests_that_carry_the_marker(entry: str, marked: list[str]) -> None:
    assert [nodeid for nodeid in marked if fast.covers(entry, nodeid)] != []


def test_nothing_else_carries_the_marker(marked: list[str]) -> None:
    assert [nodeid for nodeid in marked if not any(fast.covers(entry, nodeid) for entry in fast.ENTRIES)] == []
