"""One mutant of each kind is detected, and a rewriting that changes nothing is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.formal.expectations import PROPERTIES
from tests.formal.mutant import Mutant
from tests.formal.mutants import MUTANTS, run_all
from tests.formal.sandbox import ROOT, Sandbox, SandboxError

PACKAGE = ROOT / "airflow_provider_ckpt"
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}
ONE_OF_EACH = [
    "the order of acknowledgements is ignored",
    "the outcome of an older epoch's attempt is settled",
    "compaction reaches across a gap",
]


def test_one_of_each_kind_is_caught() -> None:
    lines: list[str] = []

    caught = run_all([BY_NAME[name] for name in ONE_OF_EACH], log=lines.append)

    assert caught == {name: BY_NAME[name].catcher for name in ONE_OF_EACH}
    assert [line.split(":")[0] for line in lines] == ["caught"] * 3


def test_what_is_no_defect_survives(tmp_path: Path) -> None:
    harmless = Mutant(
        "the same, said twice",
        "core/refuse_stale_epoch.py",
        "check_epoch",
        "lease.epoch == epoch and lease.owner == owner",
        "lease.epoch == epoch and lease.owner == owner and lease.owner == owner",
        "at most once",
        PROPERTIES[0],
    )
    sandbox = Sandbox(tmp_path)

    with sandbox.holding(harmless.file, harmless.applied(sandbox.package)):
        assert harmless.caught_in(sandbox) == (False, "broken: nothing")

    assert (sandbox.package / harmless.file).read_text() == (PACKAGE / harmless.file).read_text()


def test_one_that_cannot_be_applied_is_told_and_the_others_are_tried() -> None:
    known = BY_NAME[ONE_OF_EACH[0]]
    misplaced = replace(known, name="misplaced", old="no_such_name + 1")
    lines: list[str] = []

    caught = run_all([misplaced, known], log=lines.append)

    assert caught == {"misplaced": None, known.name: known.catcher}
    assert "could not be tried" in lines[0]
    assert "holds 0 times" in lines[0]


def test_a_test_that_cannot_be_run_is_no_catch(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="pytest ended with 4"):
        Sandbox(tmp_path).fails(["tests/unit/core/test_lease.py::test_that_is_not_there"])
