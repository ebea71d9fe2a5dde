"""Read one Parquet file: its footer, and ranges of its rows."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO

from airflow_provider_ckpt.connectors.files.source_storage import SourceStorage
from airflow_provider_ckpt.core.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

MAX_ROWS = 20_000
"""Maximum number of rows in one Arrow batch."""


@dataclass(frozen=True, slots=True)
class Footer:
    """Footer of a Parquet file: the part of the metadata that planning needs.

    :param groups: number of rows, and size in bytes before compression, of each row group
    :param schema: columns of the file
    """

    groups: Sequence[tuple[int, int]]
    schema: pa.Schema

    @property
    def rows(self) -> int:
        """Number of rows in the file."""
        return sum(rows for rows, _ in self.groups)


def read_footer(storage: SourceStorage, path: str, etag: str) -> Footer:
    """Read the footer of a recorded file.

    :param storage: storage of the file
    :param path: the file
    :param etag: recorded identity of the file
    :raises SourceError: if the file has changed, is missing, or is not a Parquet file
    """
    with _converted_errors(storage, path, etag), storage.open(path, etag, checked=True) as handle:
        file = _open(handle, storage)
        metadata = file.metadata
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        footer = Footer([(group.num_rows, group.total_byte_size) for group in groups], _schema(file))
        storage.verify(path, etag, handle)
    return footer


class RowReader:
    """Reader of the rows of one open file; a range that begins where the last one ended is read without a new seek.

    :param storage: storage of the file
    :param path: the file
    :param etag: recorded identity of the file
    :param columns: names of the columns to read
    :raises SourceError: if the file has changed, is missing, or is not a Parquet file
    """

    def __init__(self, storage: SourceStorage, path: str, etag: str, columns: Sequence[str]) -> None:
        self._storage = storage
        self.path = path
        self.etag = etag
        self._columns = list(columns)
        with _converted_errors(storage, path, etag):
            self._handle = storage.open(path, etag, checked=True)  # until close()
            self._file = _open(self._handle, storage)
            self.schema = _schema(self._file)
            metadata = self._file.metadata
            sizes = (metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
            self._starts: list[int] = list(accumulate(sizes, initial=0))
        self._row = self._group_number = -1
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None

    def read(self, start: int, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows ``[start, end)`` in order, in Arrow batches, each with the number of its first row.

        :param start: number of the first row, from 0
        :param end: number after the last row
        :raises SourceError: if the rows cannot be read, or the file has changed
        """
        self._storage.verify(self.path, self.etag)
        with _converted_errors(self._storage, self.path, self.etag, self._where):
            while start < end:
                if self._row > start or self._group_number != self._group(start):
                    self._seek(start)
                batch = self._next()
                first, self._row = self._row, self._row + batch.num_rows
                if self._row > end:
                    self._rest = batch.slice(end - first)
                    self._row = end
                low, high = max(start, first), min(end, first + batch.num_rows)
                if low < high:
                    yield low, batch.slice(low - first, high - low)
                    start = high
        self._storage.verify(self.path, self.etag)

    def close(self) -> None:
        """Close the file."""
        self._handle.close()

    def _seek(self, row: int) -> None:
        """Begin to read at the row group that contains a row, so that damage of other row groups has no effect.

        :param row: number of the row
        """
        self._group_number = self._group(row)
        groups = [self._group_number]
        self._batches = self._file.iter_batches(MAX_ROWS, row_groups=groups, columns=self._columns, use_threads=False)
        self._rest = None
        self._row = self._starts[self._group_number]

    def _where(self) -> str:
        """Return the row group that is being read, for error messages: ``row group 3``; empty before the first read."""
        return "" if self._group_number < 0 else f"row group {self._group_number}"

    def _group(self, row: int) -> int:
        return bisect_right(self._starts, row) - 1

    def _next(self) -> pa.RecordBatch:
        if self._rest is not None:
            rest, self._rest = self._rest, None
            return rest
        batch = next(self._batches, None)
        if batch is None:
            raise SourceError(f"{self.path} ends at row {self._row}, not where it ended when it was recorded.")
        return batch


def _open(handle: BinaryIO, storage: SourceStorage) -> ParquetFile:
    """Return an open Parquet file; in an object store, the columns of a row group are fetched together.

    :param handle: the file
    :param storage: storage of the file
    """
    from pyarrow.parquet import ParquetFile

    return ParquetFile(
        handle, coerce_int96_timestamp_unit="us", page_checksum_verification=True, pre_buffer=storage.remote
    )


def _schema(file: ParquetFile) -> pa.Schema:
    """Return the columns of a Parquet file; a 96-bit timestamp becomes a UTC timestamp, as in Spark."""
    import pyarrow as pa

    schema = file.schema_arrow
    for number in range(len(file.schema)):
        column = file.schema.column(number)
        at = schema.get_field_index(column.path)
        if column.physical_type == "INT96" and at >= 0:
            schema = schema.set(at, pa.field(column.path, pa.timestamp("us", tz="UTC")))
    return schema


@contextmanager
def _converted_errors(storage: SourceStorage, path: str, etag: str, where: Callable[[], str] = str) -> Iterator[None]:
    """Convert errors of the file system and of the Parquet library in a ``with`` block to errors of this package.

    :param storage: storage of the file
    :param path: the file
    :param etag: recorded identity of the file
    :param where: function that returns the part of the file that is being read, such as ``row group 3``; empty if it is
        not known
    :raises SourceError: if the file is missing, changed, or cannot be read as Parquet
    :raises IoError: if the storage fails
    """
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise storage.read_error(path, etag, error) from error
        part = where()
        raise SourceError(
            f"{path}{', ' if part else ''}{part} cannot be read as Parquet: {str(error).splitlines()[0].rstrip('.')}.",
            hint="A file must appear under its final name complete. Replace it with a complete one, or remove it.",
        ) from error
