"""Cuts a file into pieces that begin and end at record boundaries, reading no more of it than that takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from airflow_provider_ckpt.connectors.files.record_ends import scan

TARGET = 8 << 20
"""Bytes a piece should have when the pipeline leaves the size to the source."""

_SAMPLE = 64 << 10
_PROBE = 256 << 10


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes ``[start, end)`` of a file, and how many records they hold or are thought to hold."""

    start: int
    end: int
    records: int


def by_count(
    file: BinaryIO, start: int, end: int, number: int, *, delimiter: bytes | None, header: bool
) -> Iterator[Piece]:
    """Pieces of exactly ``number`` records; the last one has what is left.

    :param delimiter: of CSV's fields, or None for JSON lines
    :param header: whether the first record of the file is a header, which belongs to the first piece and is no record
    """
    at = start
    wanted = number + (header and start == 0)
    missing, terminated = wanted, start
    for data, ends in scan(file, start, end, delimiter=delimiter):
        block, taken = file.tell() - len(data), 0
        while len(ends) - taken >= missing:
            taken += missing
            cut = block + int(ends[taken - 1])
            yield Piece(at, cut, number)
            at, wanted, missing = cut, number, number
        missing -= len(ends) - taken
        terminated = block + int(ends[-1]) if len(ends) else terminated
    if at < end:
        records = wanted - missing + (terminated < end)
        yield Piece(at, end, max(records - (header and at == 0), 0))


def by_size(
    file: BinaryIO, start: int, end: int, *, delimiter: bytes | None, header: bool, target: int = TARGET
) -> Iterator[Piece]:
    """Pieces of about the same size near ``target``; the number of records is exact for CSV, else estimated.

    :param delimiter: of CSV's fields, or None for JSON lines
    :param target: bytes
    """
    pieces = max(1, round((end - start) / target))
    width = _width(file, start, end) if delimiter is None else 1.0
    at = start
    for left in range(pieces, 0, -1):
        if at >= end:
            return
        goal = at + max((end - at) // left, 1)
        if delimiter is not None:
            cut, counted = _count_to(file, at, goal, end, delimiter)
            records = max(counted - (header and at == 0), 0)
        else:
            cut = _skip_to(file, goal, end)
            records = max(round((cut - at) / width), 1)
        yield Piece(at, cut, records)
        at = cut


def _skip_to(file: BinaryIO, goal: int, end: int) -> int:
    """The first boundary at or after ``goal``, without looking at what comes before it."""
    if goal < end:
        for data, ends in scan(file, goal - 1, end, delimiter=None, block=_PROBE):
            if len(ends):
                return file.tell() - len(data) + int(ends[0])
    return end


def _count_to(file: BinaryIO, start: int, goal: int, end: int, delimiter: bytes) -> tuple[int, int]:
    """The first boundary at or after ``goal`` that is not inside quotes, and the records up to it."""
    records, terminated = 0, start
    for data, ends in scan(file, start, end, delimiter=delimiter):
        block = file.tell() - len(data)
        reached = int((ends + block < goal).sum())
        if goal < end and reached < len(ends):
            return block + int(ends[reached]), records + reached + 1
        records += len(ends)
        terminated = block + int(ends[-1]) if len(ends) else terminated
    return end, records + (terminated < end)


def _width(file: BinaryIO, start: int, end: int) -> float:
    file.seek(start)
    sample = file.read(min(_SAMPLE, end - start))
    return len(sample) / max(sample.count(b"\n"), 1)
