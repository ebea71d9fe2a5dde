"""Collect the records of a lane, which Spark passes in pieces, into whole batches, divided by the transform's verdict.

The verdict of a record says whether it is delivered, filtered or rejected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, cast

from airflow_provider_ckpt.connectors.batch_content import DeadLetter
from airflow_provider_ckpt.connectors.row_filter import exclude_rows
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.connectors.source_protocol import POSITION, Reader, SparkFedReader
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.wave_messages import BatchTask
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.dead_letters import originals
from airflow_provider_ckpt.spark.failures import to_error_info
from airflow_provider_ckpt.spark.lane import oversized_records
from airflow_provider_ckpt.spark.lane.stack_traces import TRACES
from airflow_provider_ckpt.spark.lane.utf8 import invalid_utf8
from airflow_provider_ckpt.spark.record_positions import RecordPositions
from airflow_provider_ckpt.spark.transform import original_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.connectors.source_protocol import RecordShape


@dataclass(slots=True)
class GatheredBatch:
    """All records that were read of one batch, divided into records to deliver, dead letters and filtered records.

    :param rows: records to deliver: :data:`~.sink_protocol.ROW_NUMBER`, then the output columns
    :param positions: source positions of all records that reached delivery
    :param read: number of records that were read, or :data:`~.columns.NOT_ATTEMPTED`
    :param dead_letters: dead letters of rejected records
    :param filtered: number of records that are neither delivered nor rejected, such as those that ``where`` excludes
    :param failure: the error that ended reading; None if all records were read
    :param rejected: position, verdict, message and original columns of each record that the transform rejected; None if
        there are none
    """

    rows: pa.Table
    positions: RecordPositions
    read: int = 0
    dead_letters: list[DeadLetter] = field(default_factory=list)
    filtered: int = 0
    failure: ErrorInfo | None = None
    rejected: pa.Table | None = None

    @classmethod
    def of(cls, records: pa.Table, read: int = 0, failure: ErrorInfo | None = None) -> GatheredBatch:
        """Return a batch all of whose records are to be delivered.

        :param records: records as a reader yields them, with their positions
        :param read: number of records that were read, or :data:`NOT_ATTEMPTED`
        :param failure: the error that ended reading; None if all records were read
        """
        return cls(numbered(records), RecordPositions(records.column(POSITION)), read, failure=failure)


class BatchSlice:
    """Consecutive rows of an Arrow batch that belong to the same micro-batch of the same lane.

    :param records: the rows, with their control columns
    :ivar lane: the lane's index in the wave
    :ivar index: the batch's index in the lane
    :ivar ends: whether the last row is the marker row that ends the batch
    """

    def __init__(self, records: pa.RecordBatch) -> None:
        self.records = records
        self.lane, self.index = c.lane_and_index(records.column(c.BATCH)[0].as_py())
        self.ends: bool = records.column(c.MARKER)[-1].is_valid


class Gatherer:
    """Buffer that collects the rows of one micro-batch, which Spark passes in several Arrow batches.

    :param traced: whether the error of a batch that cannot be gathered includes a traceback
    """

    def __init__(self, *, traced: bool) -> None:
        self._traced = traced
        self._pieces: list[pa.RecordBatch] = []

    def split(self, batch: pa.RecordBatch) -> Iterator[BatchSlice]:
        """Yield the slices of an Arrow batch that belong to different micro-batches, in order.

        :param batch: rows of one or more micro-batches, as Spark passes them
        """
        if batch.num_rows == 0:
            return
        import numpy as np

        number = batch.column(c.BATCH).to_numpy(zero_copy_only=False)
        cuts = np.flatnonzero(number[1:] != number[:-1]) + 1
        bounds = [0, *cuts.tolist(), batch.num_rows]
        for start, end in pairwise(bounds):
            yield BatchSlice(batch.slice(start, end - start))

    def add(self, batch_slice: BatchSlice) -> None:
        """Keep a slice of a batch until all rows of the batch have arrived.

        :param batch_slice: the slice
        """
        self._pieces.append(batch_slice.records)

    def take(self, reader: Reader, task: BatchTask, shape: RecordShape, *, read_by_spark: bool) -> GatheredBatch:
        """Return the batch whose slices were added since the last call, with its records divided by verdict.

        :param reader: reader of the batch's source, which reads rejected records again if necessary
        :param task: the batch
        :param shape: names and types of the source's columns If Spark itself reads the source and the batch is to be
            rejected as a whole, the result contains no records to deliver.

        :param read_by_spark: whether Spark itself reads the source (JDBC). The original columns, which each record then
            carries, are passed to ``reader``, from which records can be read again
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        table = pa.Table.from_batches(self._pieces)
        self._pieces = []
        marker = json.loads(table.column(c.MARKER)[-1].as_py())
        table = table.slice(0, table.num_rows - 1)
        if read_by_spark:
            parts = [originals.unpack_originals(batch) for batch in table.to_batches() if batch.num_rows]
            cast("SparkFedReader", reader).accept(task, parts)
            if task.instruction is Instruction.REJECT:
                table = table.slice(0, 0)
        positions, numbers = RecordPositions(table.column(POSITION)), numbered(table)
        verdict = table.column(c.VERDICT)
        all_accepted = verdict.null_count == table.num_rows
        outputs = [name for name in table.column_names if name not in _CONTROL]
        rows = (numbers if all_accepted else numbers.filter(pc.is_null(verdict))).select([ROW_NUMBER, *outputs])
        reason = ErrorInfo.from_json(marker["failure"]) if marker["failure"] else None
        gathered = GatheredBatch(rows, positions, marker["read"], failure=reason)
        if not all_accepted:
            bad = table.filter(pc.is_valid(verdict))
            is_filtered = pc.equal(bad.column(c.VERDICT), c.FILTERED)
            gathered.filtered = pc.sum(is_filtered).as_py() or 0
            if gathered.filtered < bad.num_rows:
                gathered.rejected = _rejected_table(bad.filter(pc.invert(is_filtered)), shape)
        if reason is None:
            try:
                _add_dead_letters(gathered, reader, task, raw=shape.raw)
                gathered.dead_letters += oversized_records.dead_letters(reader, task, marker["large"])
            except Exception as error:  # noqa: BLE001  # records are read again here, so the batch counts as unread
                gathered.failure = to_error_info(error, traced=self._traced)
        return gathered


def _add_dead_letters(gathered: GatheredBatch, reader: Reader, task: BatchTask, *, raw: bool) -> None:
    """Add to a batch the dead letters of records that the transform rejected, and of rows with invalid UTF-8.

    :param gathered: the batch, which is changed
    :param reader: reader of the batch's source
    :param task: the batch as it was planned
    :param raw: whether the source yields bytes rather than columns
    """
    if gathered.rejected is not None:
        if raw:
            gathered.rejected = originals.restore_values(reader, task, gathered.rejected)
        gathered.dead_letters = originals.from_rejected(
            reader, task, gathered.rejected, task.detail.get(TRACES, {}), raw=raw
        )
    garbled = invalid_utf8(gathered.rows, ErrorType.TRANSFORM_EVALUATION)
    if garbled:
        gathered.dead_letters += originals.from_source(reader, task, gathered.positions, garbled, raw=raw)
        gathered.rows = exclude_rows(gathered.rows, garbled)


def numbered(records: pa.Table) -> pa.Table:
    """Return the records of a batch with the column of positions replaced by record numbers, from 0."""
    import numpy as np
    import pyarrow as pa

    at = records.schema.get_field_index(POSITION)
    return records.set_column(at, ROW_NUMBER, pa.array(np.arange(records.num_rows, dtype=np.int64)))


def _rejected_table(records: pa.Table, shape: RecordShape) -> pa.Table:
    """Return position, error type, message and original columns of records that the transform rejected.

    :param records: the rejected records, with their control columns
    :param shape: names and types of the source's columns
    """
    import pyarrow as pa

    verdicts, messages = [], []
    for verdict in records.column(c.VERDICT).to_pylist():
        kind, _, message = verdict.partition(" ")
        verdicts.append(kind)
        messages.append(message)
    original = original_columns.unpack(pa.concat_arrays(records.column(c.ORIGINAL).chunks), shape)
    columns = [records.column(POSITION), pa.array(verdicts), pa.array(messages), original]
    return pa.Table.from_arrays(columns, [POSITION, c.VERDICT, originals.MESSAGE, c.ORIGINAL])


_CONTROL = frozenset({*c.CONTROL, c.VERDICT, c.ORIGINAL})
