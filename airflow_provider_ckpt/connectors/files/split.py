"""Split a file into chunks that begin and end at record boundaries, reading as little of it as possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from airflow_provider_ckpt.connectors.files.record_ends import scan_records

CHUNK_BYTES = 8 << 20
"""Bytes of a chunk when the source chooses the size."""

_SAMPLE_BYTES = 64 << 10
_PROBE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes ``[start, end)`` of a file.

    :param start: first byte
    :param end: byte after the last
    :param records: number of records in it, exact or estimated
    """

    start: int
    end: int
    records: int


def split_by_count(
    file: BinaryIO, start: int, end: int, number: int, *, delimiter: bytes | None, header: bool
) -> Iterator[Chunk]:
    """Yield chunks of exactly ``number`` records; the last one has the rest.

    :param file: the open file
    :param start: first byte
    :param end: byte after the last
    :param number: records of a chunk
    :param delimiter: CSV's field separator, or None for JSON lines
    :param header: whether the first record of the file is a header, which belongs to the first chunk and is not counted
    """
    at = start
    wanted = number + (header and start == 0)
    missing, terminated = wanted, start
    for data, ends in scan_records(file, start, end, delimiter=delimiter):
        block, taken = file.tell() - len(data), 0
        while len(ends) - taken >= missing:
            taken += missing
            cut = block + int(ends[taken - 1])
            yield Chunk(at, cut, number)
            at, wanted, missing = cut, number, number
        missing -= len(ends) - taken
        terminated = block + int(ends[-1]) if len(ends) else terminated
    if at < end:
        records = wanted - missing + (terminated < end)
        yield Chunk(at, end, max(records - (header and at == 0), 0))


def split_by_size(
    file: BinaryIO, start: int, end: int, *, delimiter: bytes | None, header: bool, target: int = CHUNK_BYTES
) -> Iterator[Chunk]:
    """Yield chunks of about equal size near ``target``; the number of records is exact for CSV, else estimated.

    :param file: the open file
    :param start: first byte
    :param end: byte after the last
    :param delimiter: CSV's field separator, or None for JSON lines
    :param header: whether the first record of the file is a header, which belongs to the first chunk and is not counted
    :param target: bytes of a chunk
    """
    count = max(1, round((end - start) / target))
    width = _mean_record_bytes(file, start, end) if delimiter is None else 1.0
    at = start
    for left in range(count, 0, -1):
        if at >= end:
            return
        target_offset = at + max((end - at) // left, 1)
        if delimiter is not None:
            cut, counted = _next_boundary_counted(file, at, target_offset, end, delimiter)
            records = max(counted - (header and at == 0), 0)
        else:
            cut = _next_boundary(file, target_offset, end)
            records = max(round((cut - at) / width), 1)
        yield Chunk(at, cut, records)
        at = cut


def _next_boundary(file: BinaryIO, minimum: int, end: int) -> int:
    """Return the first record boundary at or after ``minimum``, without reading what comes before it."""
    if minimum < end:
        for data, ends in scan_records(file, minimum - 1, end, delimiter=None, block=_PROBE_BYTES):
            if len(ends):
                return file.tell() - len(data) + int(ends[0])
    return end


def _next_boundary_counted(file: BinaryIO, start: int, minimum: int, end: int, delimiter: bytes) -> tuple[int, int]:
    """Return the first record boundary at or after ``minimum``, and the number of records up to it."""
    records, terminated = 0, start
    for data, ends in scan_records(file, start, end, delimiter=delimiter):
        block = file.tell() - len(data)
        reached = int((ends + block < minimum).sum())
        if minimum < end and reached < len(ends):
            return block + int(ends[reached]), records + reached + 1
        records += len(ends)
        terminated = block + int(ends[-1]) if len(ends) else terminated
    return end, records + (terminated < end)


def _mean_record_bytes(file: BinaryIO, start: int, end: int) -> float:
    file.seek(start)
    sample = file.read(min(_SAMPLE_BYTES, end - start))
    return len(sample) / max(sample.count(b"\n"), 1)
