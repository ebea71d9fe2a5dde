"""SIGKILL at twenty moments of a replication, each followed by a plain re-run; see ``tests/chaos/crash.py``."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.crash import run


def test_no_crash_at_any_of_twenty_moments_loses_or_doubles_a_row(tmp_path: Path) -> None:
    summary = run(20, folder=tmp_path)

    assert summary["faults"] == {}
    assert (summary["moments"], summary["lost"], summary["doubled"]) == (20, 0, 0)
    assert all(hits >= 4 for hits in summary["kills"].values())
