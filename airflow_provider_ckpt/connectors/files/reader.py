"""Reading side of the files source: read byte ranges of text files, and split them into records in Arrow.

The records of a block are split together, without a Python object for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.files.csv_header import check_header, delimiter, has_header
from airflow_provider_ckpt.connectors.files.open_storage import open_storage
from airflow_provider_ckpt.connectors.files.record_ends import BOM, scan_records
from airflow_provider_ckpt.connectors.source_protocol import POSITION, RecordShape
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.core.wave_messages import BatchTask

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.connectors.files.record_ends import Offsets

MAX_ROWS = 20_000
"""Maximum number of records in one Arrow batch."""

_LARGEST = 2**31 - 1


class FilesReader:
    """Reading side of the files source in one lane; see :class:`~.source_protocol.Reader`.

    The byte ranges to read are in ``task.detail["segments"]``, where :meth:`FilesSource.locate` has put them.

    :param pipeline: the pipeline
    :param connection: the object store's connection; not needed for local files, since their paths are absolute
    :param shape: columns of the source
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> None:
        self._pipeline = pipeline
        self._storage = open_storage(pipeline, connection)
        self._columns = [POSITION, *(name for name, _ in shape.columns)]
        self._delimiter = delimiter(pipeline)
        self._header = has_header(pipeline)

    def read(self, task: BatchTask) -> Iterator[pa.RecordBatch]:
        """Yield the records of the task's range, without line terminators, CSV header and byte order mark.

        See :meth:`.source_protocol.Reader.read`.

        :raises SourceError: if a file has changed since it was recorded, or changes while it is read
        :raises IoError: if the file system fails
        """
        for segment in task.detail["segments"]:
            path, etag = segment["path"], segment["etag"]
            try:
                with self._storage.open(path, etag, checked=True) as file:
                    yield from self._segment(file, segment)
                    self._storage.verify(path, etag, file)
            except OSError as error:
                raise self._storage.read_error(path, etag, error) from error

    def origin(self, task: BatchTask, position: int) -> Mapping[str, str]:
        """Return the dead letter headers that locate a record: its file, and the offset in bytes where it begins.

        :param task: the batch
        :param position: position of the record
        """
        return origin_headers(task, position)

    def close(self) -> None:
        """Do nothing: no file is held open between batches."""

    def _segment(self, file: BinaryIO, segment: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        at, end = segment["start"], segment["end"]
        pending: list[bytes] = []
        size = 0
        for data, ends in scan_records(file, at, end, delimiter=self._delimiter):
            if len(ends):
                last = int(ends[-1])
                complete = b"".join([*pending, data[:last]])
                yield from self._records(complete, ends + size, at, segment)
                at += len(complete)
                pending, size, data = [], 0, data[last:]
            pending.append(data)
            size += len(data)
        rest = b"".join(pending)
        if rest and not (at == 0 and rest == BOM):
            import numpy as np

            yield from self._records(rest, np.array([size]), at, segment, ended=False)

    def _records(
        self, data: bytes, ends: Offsets, at: int, segment: Mapping[str, Any], *, ended: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records that end at the given offsets, in Arrow batches as :meth:`read` yields them.

        :param data: bytes of the file
        :param ends: offsets in ``data`` just after each record
        :param at: offset of ``data`` in the file
        :param segment: the byte range that is being read
        :param ended: whether each record ends with a newline; the last record of a file may lack it
        :raises SourceError: if a record is longer than 2 GiB, or the file's header is wrong
        """
        import numpy as np
        import pyarrow as pa

        raw = np.frombuffer(data, np.uint8)
        starts = np.concatenate(([0], ends[:-1]))
        keep = np.ones(len(raw), np.bool_)
        lengths = ends - starts
        newline = np.full(len(ends), ended)
        lengths -= newline
        keep[ends[newline] - 1] = False
        returned = newline & (lengths > 0) & (raw[np.maximum(ends - 2, 0)] == 0x0D)
        lengths -= returned
        keep[ends[returned] - 2] = False
        if at == 0 and data.startswith(BOM):
            keep[: len(BOM)] = False
            lengths[0] -= len(BOM)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        if offsets[-1] > _LARGEST:
            raise SourceError(f"{segment['path']} holds a record of more than 2 GiB at byte {at}.")
        values = pa.Array.from_buffers(
            pa.binary(),
            len(ends),
            [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(raw[keep])],
        )
        positions = pa.array(starts + (segment["base"] + at), pa.int64())
        batch = pa.RecordBatch.from_arrays([positions, values], names=self._columns)
        if at == 0 and self._header:
            check_header(self._pipeline, segment["path"], batch.column(1)[0].as_py())
            batch = batch.slice(1)
        for first in range(0, batch.num_rows, MAX_ROWS):
            yield batch.slice(first, MAX_ROWS)


def origin_headers(task: BatchTask, position: int) -> Mapping[str, str]:
    """Return the dead letter headers with the file that contains a record, and the record's position in that file.

    :param task: the record's batch, as :meth:`.FilesSource.locate` returned it
    :param position: the record's position in the source
    """
    origin = {"source-partition": task.key.source, "source-position": str(position)}
    for segment in task.detail["segments"]:
        if segment["start"] <= position - segment["base"] < segment["end"]:
            return origin | {"source-file": segment["path"], "source-position": str(position - segment["base"])}
    return origin
