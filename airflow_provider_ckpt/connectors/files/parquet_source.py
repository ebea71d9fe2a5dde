"""Planning side of the Parquet source: discover files, and split them into ranges of rows.

A position is the number of a row in the virtual concatenation of all discovered files, so the recorded size of a file
is its number of rows. A batch never spans files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import BinaryIO

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.files.discovery import Discovery
from airflow_provider_ckpt.connectors.files.parquet_columns import declared_columns, file_columns
from airflow_provider_ckpt.connectors.files.parquet_file import Footer, read_footer
from airflow_provider_ckpt.connectors.files.source import PARTITION, FilesSource
from airflow_provider_ckpt.connectors.files.split import CHUNK_BYTES, Chunk
from airflow_provider_ckpt.connectors.source_plan import Plan, PlanRequest, SourceFile, SourcePartition
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.core.errors import SourceError

_MAX_BATCH_ROWS = 100_000
"""Approximate maximum number of rows in a batch if the pipeline does not set a batch size."""


class ParquetSource(FilesSource):
    """Planning side of a Parquet source; see :class:`~.source_protocol.Source`. Positions count rows.

    :param pipeline: ``source.path`` names the files, ``transform.schema`` may declare the columns
    :param connection: the Airflow connection, whose path is prefixed to a relative ``source.path``
    """

    unit = "rows"

    def __init__(self, pipeline: Pipeline, connection: Connection | None = None) -> None:
        super().__init__(pipeline, connection)
        self._footers: dict[str, Footer] = {}
        self._columns = declared_columns(pipeline)

    def check(self) -> None:
        """Raise an error if the directory, or a pattern's deepest parent without wildcards, is absent or unreadable."""
        self._storage.check()

    def partitions(self) -> Sequence[SourcePartition]:
        """Return one partition, which consists of all files.

        Its identity differs from that of a text source of the same files, whose positions count bytes.
        """
        return [SourcePartition(PARTITION, f"{self._storage.root} (rows of Parquet files)")]

    def shape(self) -> RecordShape:
        """Return the columns that ``transform.schema`` declares, else those of the oldest readable file.

        :raises SourceError: if no columns are declared and there is no file
        """
        if self._columns is None:
            self._discover(())
        if self._columns is None:
            raise SourceError(
                f"there is no Parquet file at {self._storage.root} any more to take the columns from.",
                pipeline=self._pipeline.name,
                hint="Declare the columns in transform.schema.",
            )
        return RecordShape(raw=False, columns=tuple(self._columns.types.items()))

    def plan(self, request: PlanRequest) -> Plan:
        """Plan row ranges of the files; refuse a new file whose columns do not fit, before it is recorded.

        The columns of a new file must fit the declared columns, or else those of the oldest readable file. See
        :meth:`FilesSource.plan`.
        """
        for file in request.files:
            if self._columns is not None:
                break
            if self._storage.is_unchanged(file.path, file.etag):
                self._columns = file_columns(self._pipeline, file.path, self._footer(file).schema)
        return super().plan(request)

    def _discover(
        self,
        known: Sequence[SourceFile],
        *,
        delivered: int = 0,
        inspect: bool = True,  # noqa: ARG002
        look_again: bool = True,
    ) -> Discovery:
        """Discover files and inspect each new file, also if ``inspect`` is False.

        Positions need a file's number of rows, which only its footer contains. See :meth:`.FilesSource._discover`.

        :param known: all files discovered before, in order
        :param delivered: end of the delivered positions: all positions before it have a verdict
        :param inspect: not used
        :param look_again: whether to check the known files again
        """
        return super()._discover(known, delivered=delivered, look_again=look_again)

    def _inspect(self, file: SourceFile) -> int:
        footer = self._footer(file)
        if self._columns is None:
            self._columns = file_columns(self._pipeline, file.path, footer.schema)
        self._columns.refuse_misfit(file.path, footer.schema)
        return footer.rows

    def _split(self, handle: BinaryIO, file: SourceFile, first: int, last: int, number: int | None) -> Iterator[Chunk]:  # noqa: ARG002
        footer = self._footer(file)
        if self._columns is None:
            self._columns = file_columns(self._pipeline, file.path, footer.schema)
        self._columns.refuse_misfit(file.path, footer.schema)
        bounds = _batch_edges(footer.groups) if number is None else list(range(first, last, number))
        bounds = [first, *(bound for bound in bounds if first < bound < last), last]
        for start, end in pairwise(bounds):
            yield Chunk(start, end, end - start)

    def _footer(self, file: SourceFile) -> Footer:
        key = f"{file.path} {file.etag}"
        if key not in self._footers:
            self._footers[key] = read_footer(self._storage, file.path, file.etag)
        return self._footers[key]


def _batch_edges(groups: Sequence[tuple[int, int]]) -> list[int]:
    """Return the row numbers at which batches end: after several small row groups, or after parts of a large row group.

    A row group is large if it has more than :data:`_MAX_BATCH_ROWS` rows, or more than twice :data:`CHUNK_BYTES` bytes.

    :param groups: number of rows and size in bytes of each row group
    """
    bounds, at, size, rows = [], 0, 0, 0
    for count, width in groups:
        parts = max(min(max(-(-width // (2 * CHUNK_BYTES)), -(-count // _MAX_BATCH_ROWS)), count), 1)
        if parts > 1 or size + width > CHUNK_BYTES or rows + count > _MAX_BATCH_ROWS:
            bounds.append(at)
            size = rows = 0
        bounds += [at + count * part // parts for part in range(1, parts)]
        at, size, rows = at + count, size + width // parts, rows + count // parts
    return bounds
