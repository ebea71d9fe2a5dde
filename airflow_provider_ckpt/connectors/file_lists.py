"""Lists of discovered source files, kept in the sink: they tell a ledger that was lost or restored what positions mean.

A position of a files source counts the bytes (or rows) of all files in the order of their discovery, and another
discovery may find another order. So whoever discovers files keeps their list in the sink before the ledger records it
and before anything of them is sent.

Each list says where it begins and under which epoch it was kept. Of several that begin at the same file the one of the
highest epoch is the one that the ledger recorded: a run keeps a list that it found under its own epoch again before it
records it, and the ledger refuses whoever has been fenced.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from airflow_provider_ckpt.connectors.protocols import SourceFile

_LARGEST = 256 << 10
"""Bytes of one list as JSON, about: less than any sink takes as one value."""


@dataclass(frozen=True, slots=True)
class FileList:
    """Files that were discovered together, or a part of them.

    :param epoch: of the run that keeps it
    :param files: at least one, in the order of their ordinals
    :param start: the position at which the partition begins, if it was begun on these files
    """

    epoch: int
    files: tuple[SourceFile, ...]
    start: int | None = None

    @property
    def first(self) -> int:
        """The ordinal of the first file."""
        return self.files[0].ordinal

    @property
    def name(self) -> str:
        """No two lists of one pipeline have the same."""
        return f"files:{self.first}:{self.epoch}"

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dict; :meth:`from_json` is its inverse."""
        rows = [[file.path, file.base, file.size, file.etag] for file in self.files]
        return {"first": self.first, "epoch": self.epoch, "start": self.start, "files": rows}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The list that :meth:`to_json` wrote."""
        files = (SourceFile(number, *row) for number, row in enumerate(data["files"], start=data["first"]))
        return cls(data["epoch"], tuple(files), data["start"])


def parted(files: Sequence[SourceFile], epoch: int, start: int | None = None) -> Iterator[FileList]:
    """The lists in which newly discovered files are kept, none larger than a sink takes.

    :param files: newly discovered, in order
    :param epoch: of the run that keeps them
    :param start: the position at which the partition begins, if it begins on these files
    """
    part: list[SourceFile] = []
    size = 0
    for file in files:
        width = len(json.dumps(file.path)) + len(file.etag) + 64
        if part and size + width > _LARGEST:
            yield FileList(epoch, tuple(part), start)
            part, size = [], 0
        part.append(file)
        size += width
    if part:
        yield FileList(epoch, tuple(part), start)


def following(known: Sequence[SourceFile], kept: Iterable[FileList]) -> list[FileList]:
    """The lists that continue what is known, one after the other.

    One that names a file which is known already, or does not begin where the one before ends, was kept by a run that
    had been fenced, and counts for nothing.

    :param known: the files before, in order; of all
    :param kept: every list that begins at or behind their end
    """
    paths = {file.path for file in known}
    ordinal, base = (known[-1].ordinal + 1, known[-1].base + known[-1].size) if known else (0, 0)
    by_first: dict[int, list[FileList]] = {}
    for some in sorted(kept, key=lambda some: -some.epoch):
        by_first.setdefault(some.first, []).append(some)
    found: list[FileList] = []
    while True:
        fitting = (
            some
            for some in by_first.get(ordinal, ())
            if some.files[0].base == base and paths.isdisjoint(file.path for file in some.files)
        )
        chosen = next(fitting, None)
        if chosen is None:
            return found
        found.append(chosen)
        paths.update(file.path for file in chosen.files)
        ordinal, base = chosen.files[-1].ordinal + 1, chosen.files[-1].base + chosen.files[-1].size
