"""Lists of discovered source files, stored in the sink so that a lost or restored ledger can recover its positions.

A position of a files source counts the bytes (or rows) of all files in the order of their discovery, and a second
discovery may find another order. So a discovery stores its list in the sink before the ledger records it and before
anything of these files is sent.

Each list states the file at which it begins and the epoch that stored it. If several begin at the same file, the one
with the highest epoch is the one that the ledger recorded: a run stores a list that it found again under its own epoch
before recording it, and the ledger refuses a fenced run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from airflow_provider_ckpt.connectors.source_protocol import SourceFile

_MAX_LIST_BYTES = 256 << 10
"""Approximate maximum size of one list as JSON, in bytes; every sink accepts values of this size."""


@dataclass(frozen=True, slots=True)
class FileList:
    """Files that were discovered together, or a part of them.

    :param epoch: epoch of the run that stores the list
    :param files: at least one file, in the order of their ordinals
    :param start: base position of the partition, if it started with these files
    """

    epoch: int
    files: tuple[SourceFile, ...]
    start: int | None = None

    @property
    def first(self) -> int:
        """Ordinal of the first file."""
        return self.files[0].ordinal

    @property
    def name(self) -> str:
        """Name that is unique among the lists of one pipeline."""
        return f"files:{self.first}:{self.epoch}"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict; :meth:`from_json` is its inverse."""
        rows = [[file.path, file.base, file.size, file.etag] for file in self.files]
        return {"first": self.first, "epoch": self.epoch, "start": self.start, "files": rows}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the list that :meth:`to_json` wrote."""
        files = (SourceFile(number, *row) for number, row in enumerate(data["files"], start=data["first"]))
        return cls(data["epoch"], tuple(files), data["start"])


def split_into_lists(files: Sequence[SourceFile], epoch: int, start: int | None = None) -> Iterator[FileList]:
    """Split newly discovered files into lists that every sink can store.

    :param files: newly discovered files, in order
    :param epoch: epoch of the run that stores them
    :param start: base position of the partition, if it starts with these files
    """
    part: list[SourceFile] = []
    size = 0
    for file in files:
        width = len(json.dumps(file.path)) + len(file.etag) + 64
        if part and size + width > _MAX_LIST_BYTES:
            yield FileList(epoch, tuple(part), start)
            part, size = [], 0
        part.append(file)
        size += width
    if part:
        yield FileList(epoch, tuple(part), start)


def continuing_lists(known: Sequence[SourceFile], stored: Iterable[FileList]) -> list[FileList]:
    """Return the lists that continue the known files, in order.

    A list that names a known file, or does not begin where the one before it ends, was stored by a run that had been
    fenced, and is ignored.

    :param known: the files recorded so far, in order
    :param stored: every stored list that begins at or after their end
    """
    paths = {file.path for file in known}
    ordinal, base = (known[-1].ordinal + 1, known[-1].base + known[-1].size) if known else (0, 0)
    by_first: dict[int, list[FileList]] = {}
    for item in sorted(stored, key=lambda item: -item.epoch):
        by_first.setdefault(item.first, []).append(item)
    found: list[FileList] = []
    while True:
        fitting = (
            item
            for item in by_first.get(ordinal, ())
            if item.files[0].base == base and paths.isdisjoint(file.path for file in item.files)
        )
        chosen = next(fitting, None)
        if chosen is None:
            return found
        found.append(chosen)
        paths.update(file.path for file in chosen.files)
        ordinal, base = chosen.files[-1].ordinal + 1, chosen.files[-1].base + chosen.files[-1].size
