"""The examples that the documentation includes do what they claim: their assertions hold."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(example: Path) -> None:
    assert "assert" in example.read_text()
    runpy.run_path(str(example))
