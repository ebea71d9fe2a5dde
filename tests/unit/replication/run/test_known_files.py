"""A run reads each source file from the ledger once."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from airflow_provider_ckpt.connectors.source_plan import SourceFile
from airflow_provider_ckpt.replication.run.known_files import KnownFiles


class _Ledger:
    """A ledger that has files, and notes what it is asked for."""

    def __init__(self) -> None:
        self.recorded = [SourceFile(number, f"/in/{number}", number, 1, "e") for number in range(3)]
        self.asked: list[int] = []

    def files(self, pipeline: str, ranges: Sequence[Any] | None = None, *, first: int = 0) -> list[SourceFile]:
        assert (pipeline, ranges) == ("inbox", None)
        self.asked.append(first)
        return self.recorded[first:]


def _pipeline(*, discovers_files: bool) -> Any:
    return SimpleNamespace(name="inbox", source=SimpleNamespace(discovers_files=discovers_files))


def test_the_ledger_is_not_asked_for_files_of_a_source_that_discovers_none() -> None:
    ledger = _Ledger()

    assert list(KnownFiles(cast("Any", ledger), _pipeline(discovers_files=False)).read()) == []
    assert ledger.asked == []


def test_files_recorded_since_are_appended_to_those_that_were_read() -> None:
    ledger = _Ledger()
    known = KnownFiles(cast("Any", ledger), _pipeline(discovers_files=True))
    before = known.read()
    ledger.recorded.append(SourceFile(3, "/in/3", 3, 1, "e"))

    assert known.read() == ledger.recorded
    assert known.read() == ledger.recorded
    assert len(before) == 3
    assert ledger.asked == [0, 3, 4]
