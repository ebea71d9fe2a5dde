"""Files source, planning half: discovers the files of a directory or pattern once and cuts them into byte ranges.

A position is a byte of the virtual concatenation of all discovered files in the order of discovery, so ranges tile
without gaps whatever the number of files. Empty files are recorded and occupy nothing. A batch never spans files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.files.cut import Piece, by_count, by_size
from airflow_provider_ckpt.connectors.files.discovery import check_place, discover, unreadable, verify
from airflow_provider_ckpt.connectors.files.header import check_header, delimiter, has_header
from airflow_provider_ckpt.connectors.files.local import local_path
from airflow_provider_ckpt.connectors.files.reader import FilesReader
from airflow_provider_ckpt.connectors.files.records import scan
from airflow_provider_ckpt.connectors.protocols import (
    Connection,
    Plan,
    PlannedBatch,
    PlanRequest,
    Shape,
    SourceFile,
    SourcePartition,
    Start,
    Todo,
)
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave import BatchTask

__all__ = ["FilesReader", "FilesSource"]

PARTITION = "files"


class FilesSource:
    """Plans the files of one directory or glob pattern; see the module. What is said of bytes here is for text files;
    a :class:`~.parquet_source.ParquetSource` counts rows instead.

    :param pipeline: ``source.path`` says where, ``transform.decode`` how records end
    :param connection: where a relative path starts, if it says so
    """

    unit = "bytes"
    """What positions count."""

    def __init__(self, pipeline: Pipeline, connection: Connection | None = None) -> None:
        self._pipeline = pipeline
        self._path = local_path(pipeline.source.path or "", "source.path", connection)
        self._delimiter = delimiter(pipeline)
        self._header = has_header(pipeline)

    def check(self) -> None:
        """Fail clearly if the directory, or the pattern's static parent, is missing or unreadable."""
        if self._pipeline.transform.decode not in ("json", "csv"):
            raise ConfigError("a files source needs transform.decode: json or csv.", pipeline=self._pipeline.name)
        check_place(self._path)

    def partitions(self) -> Sequence[SourcePartition]:
        """The one partition; its identity is the resolved directory or pattern."""
        return [SourcePartition(PARTITION, str(self._path))]

    def start(self, partition: str, start_from: str | int) -> Start:
        """``earliest``: 0; ``latest``: behind all files that are there now; or a byte position, where a record begins.

        The files that are there now come with it, so that each that turns up later lies behind them, however old.
        """
        if partition != PARTITION:
            raise ConfigError(f"a files source has no partition {partition}.", pipeline=self._pipeline.name)
        found = self._discover(())
        if start_from in ("earliest", "latest"):
            return Start(0 if start_from == "earliest" else _total(found), found)
        if int(start_from) < 0:
            raise ConfigError(
                f"source.start_from: {start_from} is before the first byte, which is 0.", pipeline=self._pipeline.name
            )
        return Start(int(start_from), found)

    def shape(self) -> Shape:
        """Raw records, one ``value`` each."""
        return Shape(raw=True, columns=(("value", "binary"),))

    def plan(self, request: PlanRequest) -> Plan:
        """Discover what is new, then cut the asked stretches at record boundaries; needed files are checked first."""
        new = self._discover(request.files)
        files = [*request.files, *new]
        bounds = {PARTITION: _total(files)}
        batches: list[PlannedBatch] = []
        planned = 0
        for todo in request.todo:
            for file, piece in self._pieces(files, todo, request.records_per_batch):
                if batches and planned + piece.records > request.max_records:
                    return Plan(batches, new, bounds, more=True)
                span = Range(file.base + piece.start, file.base + piece.end)
                batches.append(PlannedBatch(PARTITION, span, piece.records))
                planned += piece.records
        return Plan(batches, new, bounds)

    def late(self) -> bool:
        """A file that changes is refused, and a new one comes last."""
        return False

    def count(self, partition: str, ranges: Sequence[Range]) -> Sequence[int] | None:  # noqa: ARG002
        """None: a recorded file that changes is refused, so nothing can turn up in it."""
        return None

    def locate(self, tasks: Sequence[BatchTask], files: Sequence[SourceFile]) -> Sequence[BatchTask]:
        """Give each task the files and byte spans that its range lies in.

        A file that changed or is gone is an error of the first batch that needs it; a list of files that does not hold
        a range is one of the whole source.

        A task that only lets its range go (``void``) reads nothing and so needs no file.
        """
        checked: set[str] = set()
        located = []
        for task in tasks:
            if task.instruction is Instruction.VOID:
                located.append(replace(task, detail={"segments": []}))
                continue
            spans = list(_overlapping(files, task.range.start, task.range.end))
            covered = sum(end - start for _, start, end in spans)
            if covered != task.range.end - task.range.start:
                raise SourceError(
                    f"{task.range} of {task.key} lies beyond the {_total(files)} {self.unit} of all recorded files.",
                    pipeline=self._pipeline.name,
                    position=task.range.start,
                    hint="The ledger's list of files does not belong to its batches; restore the ledger.",
                )
            for file, _, _ in spans:
                if file.path not in checked:
                    self._verify(file, task)
                    checked.add(file.path)
            segments = [
                {"path": f.path, "base": f.base, "etag": f.etag, "start": start, "end": end} for f, start, end in spans
            ]
            located.append(replace(task, detail={"segments": segments}))
        return located

    def close(self) -> None:
        """Nothing is held open."""

    def _discover(self, known: Sequence[SourceFile]) -> list[SourceFile]:
        """The files that are not known yet, with their place in the virtual concatenation."""
        return discover(self._path, known)

    @staticmethod
    def _verify(file: SourceFile, task: BatchTask) -> None:
        try:
            verify(file.path, file.etag)
        except CkptError as error:
            error.batch = str(task.key)
            raise

    def _pieces(
        self, files: Sequence[SourceFile], todo: Todo, number: int | None
    ) -> Iterator[tuple[SourceFile, Piece]]:
        """What the stretch is cut into, file by file; each file that is needed is checked first."""
        end = _total(files) if todo.end is None else min(todo.end, _total(files))
        for file, first, last in _overlapping(files, todo.start, end):
            verify(file.path, file.etag)
            for piece in self._cut(file, first, last, number):
                yield file, piece

    def _cut(self, file: SourceFile, first: int, last: int, number: int | None) -> Iterator[Piece]:
        try:
            with Path(file.path).open("rb") as handle:
                self._check_boundary(handle, file, first)
                if self._header:
                    data, ends = next(scan(handle, 0, file.size, delimiter=self._delimiter, block=1 << 20))
                    check_header(self._pipeline, file.path, data[: int(ends[0])] if len(ends) else data)
                if number is None:
                    yield from by_size(handle, first, last, delimiter=self._delimiter, header=self._header)
                else:
                    yield from by_count(handle, first, last, number, delimiter=self._delimiter, header=self._header)
        except OSError as error:
            raise unreadable(file.path, file.etag, error) from error

    def _check_boundary(self, handle: BinaryIO, file: SourceFile, start: int) -> None:
        handle.seek(max(start - 1, 0))
        if start and handle.read(1) != b"\n":
            raise SourceError(
                f"position {file.base + start} is byte {start} of {file.path}, where no record begins.",
                pipeline=self._pipeline.name,
                position=file.base + start,
                hint="Start from earliest or latest, or from the first byte of a record.",
            )


def _total(files: Sequence[SourceFile]) -> int:
    return files[-1].base + files[-1].size if files else 0


def _overlapping(files: Sequence[SourceFile], start: int, end: int) -> Iterator[tuple[SourceFile, int, int]]:
    """Files that hold some of positions ``[start, end)``, each with the byte span inside it."""
    first = max(bisect_right(files, start, key=lambda file: file.base) - 1, 0)
    for file in files[first:]:
        if file.base >= end:
            return
        low, high = max(start - file.base, 0), min(end - file.base, file.size)
        if low < high:
            yield file, low, high
