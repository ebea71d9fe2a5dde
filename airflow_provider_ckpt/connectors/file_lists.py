"""Lists of discovered source files, stored in the sink so that a lost or restored ledger can recover its positions.

A position of a files source counts the bytes (or rows) of all files in the order of their discovery, and a second
discovery may find another order. Therefore each discovery stores the list of files that it found in the sink, before
the ledger records the list and before any record of these files is sent.

Each list contains the ordinal of its first file and the epoch of the run that stored the list. If several lists begin
at the same file, the ledger recorded the one with the highest epoch: before a run records a list that it finds in the
sink, it stores the list again under its own epoch, and the ledger refuses a run of an older epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from airflow_provider_ckpt.connectors.source_plan import SourceFile

_MAX_LIST_BYTES = 256 << 10
"""Approximate maximum size of one list as JSON, in bytes; every sink accepts values of this size."""


@dataclass(frozen=True, slots=True)
class FileList:
    """Files that one discovery found, or a part of them, as stored in the sink.

    :param epoch: epoch of the run that stores the list
    :param files: at least one file, in the order of their ordinals
    :param start: position from which the source partition is first read, if the discovery was its first; else None
    """

    epoch: int
    files: tuple[SourceFile, ...]
    start: int | None = None

    @property
    def first(self) -> int:
        """Ordinal of the list's first file, counted from 0 over all discovered files."""
        return self.files[0].ordinal

    @property
    def name(self) -> str:
        """Name of the list, such as ``files:120:7`` (first ordinal and epoch), unique in a pipeline."""
        return f"files:{self.first}:{self.epoch}"

    def to_json(self) -> dict[str, Any]:
        """Return this object as a JSON-ready dict; :meth:`from_json` is its inverse."""
        rows = [[file.path, file.base, file.size, file.etag] for file in self.files]
        return {"first": self.first, "epoch": self.epoch, "start": self.start, "files": rows}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Restore a list from the output of :meth:`to_json`."""
        files = (SourceFile(number, *row) for number, row in enumerate(data["files"], start=data["first"]))
        return cls(data["epoch"], tuple(files), data["start"])


def split_into_lists(files: Sequence[SourceFile], epoch: int, start: int | None = None) -> Iterator[FileList]:
    """Split newly discovered files into lists that every sink can store, of about 256 KiB each as JSON.

    :param files: newly discovered files, in order
    :param epoch: epoch of the run that stores the lists
    :param start: position from which the source partition is first read, if no files were discovered before; else None
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
    """Return those of the lists stored in a sink that continue the ledger's list of files without a gap, in order.

    If several lists begin at the same file, the one with the highest epoch is taken. A list that names a known file, or
    does not begin where the list before it ends, was stored by a run of an older epoch than the fence, and is ignored.

    :param known: the files recorded in the ledger, in order
    :param stored: every stored list that begins at or after the end of the known files
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
