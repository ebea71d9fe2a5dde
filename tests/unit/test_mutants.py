"""Every mutant can be applied to the code, and the test or property that must detect it exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.formal.configurations import SMALL
from tests.formal.expectations import PROPERTIES
from tests.formal.mutant import Mutant
from tests.formal.mutants import MUTANTS
from tests.formal.sandbox import ROOT

PACKAGE = ROOT / "airflow_provider_ckpt"
CONFORMANCE = sorted(PACKAGE.glob("testing/sink_*.py"))
"""Tests that each sink inherits."""


@cache
def read(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text("utf-8")


def test_there_are_enough_and_no_two_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_applies_compiles_and_changes_the_place_that_it_names(mutant: Mutant) -> None:
    """A rewriting refuses a result that does not compile or means the same; see ``tests/formal/test_rewrite.py``."""
    assert mutant.applied(PACKAGE) != (PACKAGE / mutant.file).read_text("utf-8")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_is_to_catch_it_exists(mutant: Mutant) -> None:
    if mutant.test:
        file, name = mutant.test.split("::")[0], re.sub(r"\[.*", "", mutant.test.split("::")[-1])
        assert any(f"def {name}(" in text for text in (read(ROOT / file), *map(read, CONFORMANCE)))
    else:
        assert mutant.breaks in PROPERTIES
        assert mutant.configuration in SMALL
