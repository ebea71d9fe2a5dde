"""Every mutant still fits the code, and what is to catch it exists."""

from __future__ import annotations

import ast
import re

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
    source = (PACKAGE / mutant.file).read_text("utf-8")

    assert ast.dump(ast.parse(mutant.applied(PACKAGE))) != ast.dump(ast.parse(source))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_is_to_catch_it_exists(mutant: Mutant) -> None:
    if mutant.test:
        file, name = mutant.test.split("::")[0], re.sub(r"\[.*", "", mutant.test.split("::")[-1])
        places = [ROOT / file, *PACKAGE.glob("testing/sink_*.py")]
        assert any(f"def {name}(" in place.read_text() for place in places)
    else:
        assert mutant.breaks in PROPERTIES
        assert mutant.configuration in SMALL
