"""The assurance page shows the results that the targets wrote, and their age."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from tests import assurance


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of records of the test's own."""
    monkeypatch.setattr(assurance, "FOLDER", tmp_path)
    return tmp_path


def test_a_record_names_its_commit_and_is_shown_with_its_figures(folder: Path) -> None:
    assurance.record("chaos", {"crash_points": 1000, "lost": 0, "ratios": {"vs_psql": 1.5}, "failures": []})

    document = json.loads((folder / "chaos.json").read_text())
    shown = assurance.table(folder)

    assert document["commit"] == assurance._git("rev-parse", "--short=12", "HEAD")
    assert "crash points: 1,000, lost: 0, ratios vs psql: 1.5, failures: none" in shown
    assert document["commit"] in shown


def test_a_target_that_never_ran_whole_says_so(folder: Path) -> None:
    assert assurance.table(folder).count("never run whole") == len(assurance.TARGETS)


def test_the_comparison_shows_what_was_measured_and_leaves_out_what_was_not(folder: Path) -> None:
    assert "never run whole" in assurance.comparison(folder)
    seconds = {name: {"task": 0.512, "sling": 1.0} for name in assurance.COMPARED}
    numbers = dict.fromkeys(("rows", "new_rows", "tables", "rows_of_a_small_table", "lines", "rounds"), 1000)
    assurance.record("bench-peers", {"seconds": seconds, **numbers})

    shown = assurance.comparison(folder)

    assert "   * - first load, 1,000 rows\n     - 0.51\n     - \n     - \n     - 1.00\n" in shown


def test_a_record_of_no_target_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="bench-nothing is none of"):
        assurance.record("bench-nothing", {})


def test_a_run_is_whole_with_the_defaults_alone_whatever_its_seed() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)

    assert assurance.is_whole(parser, parser.parse_args(["--seed", "8"]))
    assert not assurance.is_whole(parser, parser.parse_args(["--points", "10"]))


def test_every_recorded_target_is_a_make_target_and_is_described_on_the_page() -> None:
    makefile = (assurance.ROOT / "Makefile").read_text()
    page = (assurance.ROOT / "docs/assurance.rst").read_text()

    for target in assurance.TARGETS:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        assert f"``make {target}``" in page
