"""Split a text file into batches at record boundaries, by number of records or by size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from airflow_provider_ckpt.connectors.files.record_ends import scan_records

CHUNK_BYTES = 8 << 20
"""Intended size in bytes of a chunk if the pipeline does not set a batch size."""

_SAMPLE_BYTES = 64 << 10
_PROBE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Chunk:
    """Range ``[start, end)`` of a file, which becomes a batch.

    :param start: first byte, or first row of a Parquet file
    :param end: byte or row after the last
    :param records: number of records in the range, exact or estimated
    """

    start: int
    end: int
    records: int


def split_by_count(
    file: BinaryIO, start: int, end: int, number: int, *, delimiter: bytes | None, header: bool
) -> Iterator[Chunk]:
    """Yield chunks of ``number`` records each; the last one may have fewer.

    :param file: the open file
    :param start: first byte
    :param end: byte after the last
    :param number: number of records in a chunk
    :param delimiter: CSV's field separator; None for JSON lines
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
    file: BinaryIO,
    start: int,
    end: int,
    *,
    delimiter: bytes | None,
    header: bool,
    width: float | None = None,
    target: int = CHUNK_BYTES,
) -> Iterator[Chunk]:
    """Yield chunks of about equal size near ``target``.

    CSV is read as a whole, so its numbers of records are exact. JSON lines are read only near the boundaries, and their
    numbers of records are estimated.

    :param file: the open file
    :param start: first byte
    :param end: byte after the last
    :param delimiter: CSV's field separator; None for JSON lines
    :param header: whether the first record of the file is a header, which belongs to the first chunk and is not counted
    :param width: mean size of a record of JSON lines in bytes; None to compute it from a sample of the file
    :param target: intended size of a chunk in bytes
    """
    count = max(1, round((end - start) / target))
    if width is None:
        width = mean_record_bytes(file, start, end) if delimiter is None else 1.0
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
    """Return the first record boundary of JSON lines at or after an offset, without reading the bytes before it.

    :param file: the open file
    :param minimum: the offset
    :param end: end of the range to split, which is returned if there is no boundary before it
    """
    if minimum < end:
        for data, ends in scan_records(file, minimum - 1, end, delimiter=None, block=_PROBE_BYTES):
            if len(ends):
                return file.tell() - len(data) + int(ends[0])
    return end


def _next_boundary_counted(file: BinaryIO, start: int, minimum: int, end: int, delimiter: bytes) -> tuple[int, int]:
    """Return the first record boundary of CSV at or after an offset, and the number of records up to it.

    :param file: the open file
    :param start: first byte to read, at which a record begins
    :param minimum: the offset
    :param end: end of the range to split, which is returned if there is no boundary before it
    :param delimiter: CSV's field separator
    """
    records, terminated = 0, start
    for data, ends in scan_records(file, start, end, delimiter=delimiter):
        block = file.tell() - len(data)
        reached = int((ends + block < minimum).sum())
        if minimum < end and reached < len(ends):
            return block + int(ends[reached]), records + reached + 1
        records += len(ends)
        terminated = block + int(ends[-1]) if len(ends) else terminated
    return end, records + (terminated < end)


def mean_record_bytes(file: BinaryIO, start: int, end: int) -> float:
    """Return the average size in bytes of the records in a sample of JSON lines.

    :param file: the open file
    :param start: first byte
    :param end: byte after the last
    """
    file.seek(start)
    sample = file.read(min(_SAMPLE_BYTES, end - start))
    return len(sample) / max(sample.count(b"\n"), 1)
