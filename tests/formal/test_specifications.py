"""In the tables of the specifications, each property has a mutant that violates it, and no mutant is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.formal.specification import Specification
from tests.formal.specifications import SPECIFICATIONS

_MUTANT = re.compile(r'MUTANT (?:=|#) "(\w+)"')
_SEVERAL = re.compile(r"MUTANT \\(?:not)?in \{([^}]*)\}")


@pytest.fixture(params=SPECIFICATIONS, ids=[one.name for one in SPECIFICATIONS])
def specification(request: pytest.FixtureRequest) -> Specification:
    """Each specification."""
    found: Specification = request.param
    return found


def test_every_property_is_broken_by_a_mutant(specification: Specification) -> None:
    broken = {name for _, name in specification.mutants.values()}

    assert broken == {*specification.invariants, *specification.steps, *specification.live}


def test_every_rule_that_can_be_switched_off_is_a_mutant(specification: Specification) -> None:
    text = Path(__file__).with_name(specification.module).read_text("utf-8")
    several = [name for names in _SEVERAL.findall(text) for name in re.findall(r"\w+", names)]

    assert {*_MUTANT.findall(text), *several} == set(specification.mutants)
