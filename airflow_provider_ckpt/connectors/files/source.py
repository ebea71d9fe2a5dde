"""Plan the batches of the files source: discover the files of a directory or pattern, and split them into ranges.

A position is the offset of a byte in the virtual concatenation of all discovered files, in the order of discovery. So
one sequence of positions covers any number of files. An empty file is recorded and has no positions. A batch never
spans files.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import BinaryIO

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.files.csv_header import check_header, delimiter, has_header
from airflow_provider_ckpt.connectors.files.discovery import Discovery
from airflow_provider_ckpt.connectors.files.open_storage import open_storage
from airflow_provider_ckpt.connectors.files.reader import FilesReader
from airflow_provider_ckpt.connectors.files.record_ends import scan_records
from airflow_provider_ckpt.connectors.files.split import Chunk, mean_record_bytes, split_by_count, split_by_size
from airflow_provider_ckpt.connectors.outputs import Output, WrittenFiles
from airflow_provider_ckpt.connectors.record_positions import PositionDigest
from airflow_provider_ckpt.connectors.source_plan import (
    Plan,
    PlannedBatch,
    PlanRequest,
    SourceFile,
    SourcePartition,
    Start,
)
from airflow_provider_ckpt.connectors.source_protocol import RecordShape
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, SourceError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask

__all__ = ["FilesReader", "FilesSource"]

PARTITION = "files"
"""Id of the only partition of a files source."""

_COMPRESSED = (".gz", ".gzip", ".bz2", ".xz", ".zst", ".zip", ".lz4", ".snappy", ".br", ".7z")
"""Suffixes of the names of compressed files, whose content is no text."""

_REQUESTS = 8
"""Greatest number of concurrent requests to an object store."""


class FilesSource:
    """Planning side of a source of text files; see :class:`~.source_protocol.Source`.

    Positions count bytes; those of a :class:`~.parquet_source.ParquetSource` count rows.

    :param pipeline: ``source.path`` names a directory, glob pattern or file; ``transform.decode`` determines where
        records end
    :param connection: the Airflow connection, whose path is prefixed to a relative ``source.path``
    """

    unit = "bytes"
    """Unit that positions count, for messages."""

    def __init__(self, pipeline: Pipeline, connection: Connection | None = None) -> None:
        self._pipeline = pipeline
        self._storage = open_storage(pipeline, connection)
        self._delimiter = delimiter(pipeline)
        self._header = has_header(pipeline)
        self._first: Discovery | None = None
        self._listed: set[str] = set()  # files that listings of this run have found as they are recorded
        self._width: float | None = None

    def check(self) -> None:
        """Raise an error if the directory, or a pattern's deepest parent without wildcards, is missing or unreadable.

        :raises ConfigError: if ``transform.decode`` is neither ``json`` nor ``csv``
        :raises SourceError: naming the path and the problem
        """
        if self._pipeline.transform.decode not in ("json", "csv"):
            raise ConfigError("a files source needs transform.decode: json or csv.", pipeline=self._pipeline.name)
        self._storage.check()

    def reads(self, output: Output) -> bool:
        """Return whether the source would read files that the sink writes; see :class:`ReadsOutputs`.

        :param output: the files, table or topic that the sink writes
        """
        return isinstance(output, WrittenFiles) and self._storage.contains(output)

    def partitions(self) -> Sequence[SourcePartition]:
        """Return the only partition of the source; its identity is the resolved directory or pattern."""
        return [SourcePartition(PARTITION, self._storage.root)]

    def start(self, partition: str, start_from: str | int) -> Start:
        """Return the first position to read, and the files that exist now.

        The position is 0 for ``earliest``, and the end of the existing files for ``latest``. The files are recorded
        together with the position, so that files that appear later get higher positions, however old they are.

        :param partition: id of the partition
        :param start_from: ``earliest``, ``latest``, or a position at which a record begins
        :raises ConfigError: if the partition is another than ``files``, or the position is negative or beyond the
            existing files
        """
        if partition != PARTITION:
            raise ConfigError(f"a files source has no partition {partition}.", pipeline=self._pipeline.name)
        found = self._discover((), inspect=start_from == "earliest").new
        if start_from in ("earliest", "latest"):
            return Start(0 if start_from == "earliest" else _total_size(found), found)
        if int(start_from) < 0:
            raise ConfigError(
                f"source.start_from: {start_from} is before the first byte, which is 0.", pipeline=self._pipeline.name
            )
        if int(start_from) > _total_size(found):
            raise ConfigError(
                f"source.start_from: {start_from} is beyond the {_total_size(found)} {self.unit} of all present files.",
                pipeline=self._pipeline.name,
                hint="latest begins after them.",
            )
        return Start(int(start_from), found)

    def shape(self) -> RecordShape:
        """Return the only column of text files: ``value``, with the bytes of each record."""
        return RecordShape(raw=True, columns=(("value", "binary"),))

    def plan(self, request: PlanRequest) -> Plan:
        """Check the known and new files, then split the requested ranges at record boundaries; see :meth:`Source.plan`.

        A run plans before each of its waves. Only its first planning checks whether the known files are still there and
        unchanged; later ones reuse that result, since the files that a wave reads are checked anyway when they are
        opened.

        A file that cannot be read does not affect other files: a new file is not recorded until it is repaired, and the
        ranges of a recorded file that is missing or was replaced are planned as expired batches, which a user has to
        skip.

        :param request: the ranges to plan, the recorded files, and limits
        """
        delivered = request.committed.get(PARTITION, 0)
        discovery = self._discover(request.files, delivered=delivered, look_again=self._first is None)
        first = self._first = self._first or discovery
        self._listed.update(discovery.unchanged, (file.path for file in discovery.new))
        files = [*request.files, *discovery.new]
        batches: list[PlannedBatch] = []
        planned, more = 0, False
        for batch in self._batches(files, request):
            if batches and planned + (batch.records or 0) > request.max_records:
                more = True
                break
            batches.append(batch)
            planned += batch.records or 0
        bounds = {PARTITION: _total_size(files)}
        reported = request.states.get(PARTITION, {}).get("gone", 0)
        states = {} if reported == len(first.gone) else {PARTITION: {"gone": len(first.gone)}}
        refused = {error.message: error for error in (*first.refused, *discovery.refused)}
        notices = [*dict.fromkeys([*first.notices, *discovery.notices]), *self._notice_of_missing(first.gone, reported)]
        return Plan(batches, discovery.new, bounds, states, more, list(refused.values()), notices)

    def may_have_late_records(self) -> bool:
        """Return False: a file that changes is refused, and a new file gets higher positions than all others."""
        return False

    def digests(self, partition: str, ranges: Sequence[Range]) -> Sequence[PositionDigest] | None:  # noqa: ARG002
        """Return None: a recorded file that changes is refused, so no records can appear in it."""
        return None

    def positions(self, partition: str, span: Range) -> Sequence[int]:  # noqa: ARG002
        """Return no positions, since :meth:`digests` returns no digests to compare them with."""
        return ()

    def locate(self, tasks: Sequence[BatchTask], files: Sequence[SourceFile]) -> Sequence[BatchTask]:
        """Return the tasks, each with the files that it reads, and the ranges in these files, in its ``detail``.

        A task with the instruction ``void`` reads nothing and needs no file.

        :param tasks: the batches
        :param files: all recorded files
        :raises SourceError: if a file has changed or is missing, naming the first batch that needs it; or if the files
            do not cover a range, which is an error of the whole source
        """
        needed: dict[str, tuple[SourceFile, BatchTask]] = {}
        located = []
        for task in tasks:
            if task.instruction is Instruction.VOID:
                located.append(replace(task, detail={"segments": []}))
                continue
            ranges = list(_files_in_range(files, task.range.start, task.range.end))
            covered = sum(end - start for _, start, end in ranges)
            if covered != task.range.end - task.range.start:
                raise SourceError(
                    f"{task.range} of {task.key} is beyond the {_total_size(files)} {self.unit} of all recorded files.",
                    pipeline=self._pipeline.name,
                    position=task.range.start,
                    hint="The ledger's list of files does not belong to its batches; restore the ledger.",
                )
            for file, _, _ in ranges:
                needed.setdefault(file.path, (file, task))
            segments = [
                {"path": f.path, "base": f.base, "etag": f.etag, "start": start, "end": end} for f, start, end in ranges
            ]
            located.append(replace(task, detail={"segments": segments}))
        self._verify_all(list(needed.values()))
        return located

    def close(self) -> None:
        """Do nothing: no file is held open."""

    def _discover(
        self, known: Sequence[SourceFile], *, delivered: int = 0, inspect: bool = True, look_again: bool = True
    ) -> Discovery:
        """Return the new, missing and refused files, with positions assigned to the new ones.

        :param known: all files discovered before, in order
        :param delivered: end of the delivered positions: all positions before it have a verdict; a file before it may
            be gone without an error
        :param inspect: whether to read new files, and to refuse those that cannot be read; a refused file gets no
            positions
        :param look_again: whether to check the known files again; if not, the result does not mention them
        """
        found = self._storage.discover(known, delivered=delivered, look_again=look_again)
        if not inspect:
            return found
        new: list[SourceFile] = []
        refused = list(found.refused)
        ordinal, base = len(known), _total_size(known)
        for file in found.new:
            try:
                size = self._inspect(file)
            except CkptError as error:
                if error.is_outage:
                    raise
                if self._storage.is_unchanged(
                    file.path, file.etag
                ):  # else removed or still being written; a later discovery sees it
                    refused.append(error)
                continue
            new.append(replace(file, ordinal=ordinal, base=base, size=size))
            ordinal, base = ordinal + 1, base + size
        return replace(found, new=new, refused=refused)

    def _inspect(self, file: SourceFile) -> int:
        """Return the number of positions that a new file takes, which is its size in bytes.

        Raise an error if the file's name shows that it is not plain text, or if its header is wrong.

        :param file: the file
        :raises CkptError: if the file cannot be read
        """
        self._refuse_other_content(file.path)
        with self._open(file, checked=True) as handle:
            self._check_header(handle, file)
        return file.size

    @staticmethod
    def _refuse_other_content(path: str) -> None:
        """Raise an error if a file is compressed or Parquet by its name: all of its records would be bad.

        :param path: the file
        """
        name = path.lower()
        if name.endswith(_COMPRESSED):
            raise SourceError(
                f"{path} is compressed, by its name, and only text that is not compressed can be read.",
                hint="Decompress it, under a name without that suffix, or have source.path not match it.",
            )
        if name.endswith(".parquet"):
            raise SourceError(
                f"{path} is a Parquet file, by its name, and transform.decode is for text.",
                hint="Set source.format: parquet and leave transform.decode out, or have source.path not match it.",
            )

    @staticmethod
    def _notice_of_missing(gone: Sequence[SourceFile], reported: int) -> list[str]:
        """Return one notice if more delivered files are missing than before, which is no error; else an empty list.

        :param gone: all delivered files that no longer exist
        :param reported: number of missing files that earlier notices reported
        """
        if len(gone) <= reported:
            return []
        more = len(gone) - reported
        return [f"{more} delivered file{'s are' if more > 1 else ' is'} not there any more, such as {gone[-1].path}"]

    def _open(self, file: SourceFile, *, checked: bool = False) -> BinaryIO:
        return self._storage.open(file.path, file.etag, checked=checked)

    @staticmethod
    def _is_link(error: CkptError) -> bool:
        """Return whether a file was refused because its path is a symbolic link.

        Such a file is not lost: a user may allow links, or remove the link.

        :param error: the error with which opening the file failed
        """
        return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.ELOOP

    def _verify_all(self, needed: Sequence[tuple[SourceFile, BatchTask]]) -> None:
        """Verify that files are as they were recorded; in an object store, several files are verified at the same time.

        :param needed: the files, each with the first batch that needs it
        :raises SourceError: for the first of these files that has changed or is missing
        """
        alone = 1 if self._storage.remote else len(needed)  # the first opens the storage, before there are threads
        for file, task in needed[:alone]:
            self._verify(file, task)
        if needed[alone:]:
            with ThreadPoolExecutor(_REQUESTS) as pool:
                list(pool.map(self._verify, *zip(*needed[alone:], strict=True)))

    def _verify(self, file: SourceFile, task: BatchTask) -> None:
        try:
            self._open(file).close()
        except CkptError as error:
            error.pipeline, error.batch, error.position = self._pipeline.name, str(task.key), task.range.start
            if self._is_link(error):
                raise
            error.hint = (
                f"{error.hint or ''} Or skip its batch: airflow ckpt skip {self._pipeline.name} '{task.key}' --reason …"
            ).strip()
            raise

    def _batches(self, files: Sequence[SourceFile], request: PlanRequest) -> Iterator[PlannedBatch]:
        for todo in request.ranges:
            end = _total_size(files) if todo.end is None else min(todo.end, _total_size(files))
            for file, first, last in _files_in_range(files, todo.start, end):
                try:
                    handle = self._open(file, checked=file.path in self._listed)
                except SourceError as error:
                    lost = not (isinstance(error.__cause__, PermissionError) or self._is_link(error))
                    yield PlannedBatch(PARTITION, Range(file.base + first, file.base + last), 0, expired=lost)
                    continue
                with handle:
                    for chunk in self._chunks(handle, file, first, last, request.records_per_batch):
                        span = Range(file.base + chunk.start, file.base + chunk.end)
                        yield PlannedBatch(PARTITION, span, chunk.records)

    def _chunks(self, handle: BinaryIO, file: SourceFile, first: int, last: int, number: int | None) -> Iterator[Chunk]:
        try:
            yield from self._split(handle, file, first, last, number)
        except OSError as error:
            raise self._storage.read_error(file.path, file.etag, error) from error

    def _split(self, handle: BinaryIO, file: SourceFile, first: int, last: int, number: int | None) -> Iterator[Chunk]:
        self._check_boundary(handle, file, first)
        self._check_header(handle, file)
        if number is None:
            if self._storage.remote and self._delimiter is None and self._width is None:
                self._width = mean_record_bytes(handle, first, last)  # one request, not one for each file
            yield from split_by_size(
                handle, first, last, delimiter=self._delimiter, header=self._header, width=self._width
            )
        else:
            yield from split_by_count(handle, first, last, number, delimiter=self._delimiter, header=self._header)

    def _check_header(self, handle: BinaryIO, file: SourceFile) -> None:
        if self._header and file.size:
            data, ends = next(scan_records(handle, 0, file.size, delimiter=self._delimiter, block=1 << 20))
            check_header(self._pipeline, file.path, data[: int(ends[0])] if len(ends) else data)

    def _check_boundary(self, handle: BinaryIO, file: SourceFile, start: int) -> None:
        handle.seek(max(start - 1, 0))
        if start and handle.read(1) != b"\n":
            raise SourceError(
                f"position {file.base + start} is byte {start} of {file.path}, where no record begins.",
                pipeline=self._pipeline.name,
                position=file.base + start,
                hint="Start from earliest or latest, or from the first byte of a record.",
            )


def _total_size(files: Sequence[SourceFile]) -> int:
    return files[-1].base + files[-1].size if files else 0


def _files_in_range(files: Sequence[SourceFile], start: int, end: int) -> Iterator[tuple[SourceFile, int, int]]:
    """Yield the files that contain positions of ``[start, end)``, each with the range in the file's own positions.

    :param files: all recorded files, in order
    :param start: first position of the range
    :param end: position after the range
    """
    first = max(bisect_right(files, start, key=lambda file: file.base) - 1, 0)
    for file in files[first:]:
        if file.base >= end:
            return
        low, high = max(start - file.base, 0), min(end - file.base, file.size)
        if low < high:
            yield file, low, high
