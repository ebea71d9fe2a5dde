"""One Parquet file: what its footer says, and its rows in order, a stretch at a time."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO

from airflow_provider_ckpt.connectors.files.recorded_file import open_recorded, unreadable, verify
from airflow_provider_ckpt.core.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

ROWS = 20_000
"""Rows in one Arrow batch at most."""


@dataclass(frozen=True, slots=True)
class Footer:
    """What a file says of itself.

    :param groups: rows and bytes (encoded, not compressed) of each row group
    :param schema: its columns
    """

    groups: Sequence[tuple[int, int]]
    schema: pa.Schema

    @property
    def rows(self) -> int:
        """All of them."""
        return sum(rows for rows, _ in self.groups)


def read_footer(path: str, etag: str, *, follow_links: bool = False) -> Footer:
    """The footer of a file that has not changed.

    :param follow_links: whether the path itself may be a symbolic link
    :raises SourceError: if it changed, is gone, or is no Parquet file
    """
    with _errors(path, etag), open_recorded(path, etag, follow_links=follow_links) as handle:
        file = _open(handle)
        metadata = file.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        footer = Footer([(group.num_rows, group.total_byte_size) for group in groups], _schema(file))
        verify(path, etag, os.fstat(handle.fileno()))
    return footer


class Rows:
    """The rows of one file, held open and read forward: what comes next costs no second look at what came before.

    :param columns: the names of those that are read
    :param follow_links: whether the path itself may be a symbolic link
    """

    def __init__(self, path: str, etag: str, columns: Sequence[str], *, follow_links: bool = False) -> None:
        self.path = path
        self.etag = etag
        self._columns = list(columns)
        with _errors(path, etag):
            self._handle = open_recorded(path, etag, follow_links=follow_links)  # until close()
            self._file = _open(self._handle)
            self.schema = _schema(self._file)
            metadata = self._file.metadata
            sizes = (metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
            self._starts: list[int] = list(accumulate(sizes, initial=0))
        self._at = self._number = -1
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Rows ``[start, end)`` in order, each batch with the number of its first row.

        :raises SourceError: if they cannot be read, or the file has changed
        """
        verify(self.path, self.etag)
        with _errors(self.path, self.etag, self._where):
            while start < end:
                if self._at > start or self._number != self._group(start):
                    self._seek(start)
                batch = self._next()
                first, self._at = self._at, self._at + batch.num_rows
                if self._at > end:
                    self._rest = batch.slice(end - first)
                    self._at = end
                low, high = max(start, first), min(end, first + batch.num_rows)
                if low < high:
                    yield low, batch.slice(low - first, high - low)
                    start = high
        verify(self.path, self.etag)

    def close(self) -> None:
        """Let go of the file."""
        self._handle.close()

    def _seek(self, row: int) -> None:
        """Begin at the start of the row group that holds a row; a damaged one costs nobody who needs another."""
        self._number = self._group(row)
        groups = [self._number]
        self._batches = self._file.iter_batches(ROWS, row_groups=groups, columns=self._columns, use_threads=False)
        self._rest = None
        self._at = self._starts[self._number]

    def _where(self) -> str:
        """The row group that is being read, for an error."""
        return "" if self._number < 0 else f"row group {self._number}"

    def _group(self, row: int) -> int:
        return bisect_right(self._starts, row) - 1

    def _next(self) -> pa.RecordBatch:
        if self._rest is not None:
            rest, self._rest = self._rest, None
            return rest
        batch = next(self._batches, None)
        if batch is None:
            raise SourceError(f"{self.path} ends at row {self._at} and not where it was recorded to end.")
        return batch


def _open(handle: BinaryIO) -> ParquetFile:
    from pyarrow.parquet import ParquetFile

    return ParquetFile(handle, coerce_int96_timestamp_unit="us", page_checksum_verification=True)


def _schema(file: ParquetFile) -> pa.Schema:
    """The file's columns; the old 96-bit timestamps are instants, as Spark has it."""
    import pyarrow as pa

    schema = file.schema_arrow
    for number in range(len(file.schema)):
        column = file.schema.column(number)
        at = schema.get_field_index(column.path)
        if column.physical_type == "INT96" and at >= 0:
            schema = schema.set(at, pa.field(column.path, pa.timestamp("us", tz="UTC")))
    return schema


@contextmanager
def _errors(path: str, etag: str, where: Callable[[], str] = str) -> Iterator[None]:
    """Errors of the file system and of the Parquet library as ours.

    :param where: says what part of the file is being read
    """
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable(path, etag, error) from error
        part = where()
        raise SourceError(
            f"{path}{', ' if part else ''}{part} cannot be read as Parquet: {str(error).splitlines()[0].rstrip('.')}.",
            hint="A file must appear under its final name complete. Replace it by a whole one, or take it away.",
        ) from error
