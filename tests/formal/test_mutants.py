"""The mutants in small: all of them still fit the code, and one of each kind is caught."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.formal.configurations import SMALL
from tests.formal.expectations import PROPERTIES
from tests.formal.mutant import Mutant
from tests.formal.mutants import MUTANTS, run_all
from tests.formal.sandbox import ROOT, Sandbox, SandboxError

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
ONE_OF_EACH = [
    "the order of acknowledgements is ignored",
    "the outcome of an older epoch's attempt is settled",
    "compaction reaches across a gap",
]


def test_there_are_enough_and_no_two_have_one_name() -> None:
    assert len(BY_NAME) == len(MUTANTS) >= 25


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_text_stands_exactly_once_in_its_file(mutant: Mutant) -> None:
    assert (ROOT / "airflow_provider_ckpt" / mutant.file).read_text().count(mutant.old) == 1
    assert mutant.new != mutant.old


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_is_to_catch_it_exists(mutant: Mutant) -> None:
    if mutant.test:
        file, name = mutant.test.split("::")[0], re.sub(r"\[.*", "", mutant.test.split("::")[-1])
        places = [ROOT / file, ROOT / "tests/integration/connectors/conformance_sink.py"]
        assert any(f"def {name}(" in place.read_text() for place in places)
    else:
        assert mutant.breaks in PROPERTIES
        assert mutant.configuration in SMALL


def test_one_of_each_kind_is_caught() -> None:
    told: list[str] = []

    caught = run_all([BY_NAME[name] for name in ONE_OF_EACH], tell=told.append)

    assert caught == {name: BY_NAME[name].catcher for name in ONE_OF_EACH}
    assert [line.split(":")[0] for line in told] == ["caught"] * 3


def test_what_is_no_defect_survives(tmp_path: Path) -> None:
    quote = '"""The lease of one pipeline.'
    harmless = Mutant("a comment", "core/lease.py", quote, quote + " ", "at most once", PROPERTIES[0])
    sandbox = Sandbox(tmp_path)

    with sandbox.replaced(harmless.file, harmless.old, harmless.new):
        assert harmless.caught_in(sandbox) == (False, "broken: nothing")


def test_a_text_that_is_not_there_fails_loudly_and_the_copy_is_as_before(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    file = tmp_path / "airflow_provider_ckpt/core/lease.py"
    before = file.read_text()

    with pytest.raises(SandboxError, match="0 times"), sandbox.replaced("core/lease.py", "no such text", ""):
        pass
    with pytest.raises(SandboxError, match=r"[0-9]+ times"), sandbox.replaced("core/lease.py", "epoch", ""):
        pass
    with sandbox.replaced("core/lease.py", "class Why(StrEnum):", "class Why(StrEnum):  # changed"):
        assert file.read_text() != before

    assert file.read_text() == before == (ROOT / "airflow_provider_ckpt/core/lease.py").read_text()


def test_a_test_that_cannot_be_run_is_no_catch(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="pytest ended with 4"):
        Sandbox(tmp_path).fails(["tests/unit/core/test_lease.py::test_that_is_not_there"])
