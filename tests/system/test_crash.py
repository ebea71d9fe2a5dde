"""SIGKILL at some moments of a replication, each followed by a plain re-run; ``make crash`` does it at twenty."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.crash import run

MOMENTS = 5


def test_no_crash_loses_or_doubles_a_row(tmp_path: Path) -> None:
    summary = run(MOMENTS, folder=tmp_path)

    assert summary["faults"] == {}
    assert (summary["moments"], summary["lost"], summary["doubled"]) == (MOMENTS, 0, 0)
    assert all(hits > 0 for hits in summary["kills"].values())
