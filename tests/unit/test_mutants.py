"""Every mutant can be applied to the code, and the test or property that must detect it exists."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.formal.configurations import SMALL
from tests.formal.expectations import PROPERTIES
from tests.formal.mutant import Mutant
from tests.formal.mutants import MUTANTS
from tests.formal.sandbox import ROOT

PACKAGE = ROOT / "airflow_provider_ckpt"


def test_there_are_enough_and_no_two_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_applies_compiles_and_changes_the_place_that_it_names(mutant: Mutant) -> None:
    """A rewriting refuses a result that does not compile or means the same; see ``tests/formal/test_rewrite.py``."""
    assert mutant.applied(PACKAGE) != (PACKAGE / mutant.file).read_text("utf-8")


def test_pytest_finds_each_test_that_is_to_catch_a_mutant() -> None:
    tests = sorted({mutant.test for mutant in MUTANTS if mutant.test})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *tests]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-4000:]


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if not mutant.test], ids=lambda mutant: mutant.name)
def test_the_property_that_is_to_catch_it_exists(mutant: Mutant) -> None:
    assert mutant.breaks in PROPERTIES
    assert mutant.configuration in SMALL
