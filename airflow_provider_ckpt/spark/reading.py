"""The reading half of a lane: works through its batches in order and marks the end of each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.protocols import POSITION
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.failures import info_of

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.connectors.protocols import Reader
    from airflow_provider_ckpt.core.wave import BatchTask, Wave
    from airflow_provider_ckpt.spark.job import Job


def lanes_of(wave: Wave, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, list[BatchTask]]]:
    """The lanes that this Spark task got: one for each row of ``spark.range``."""
    for batch in batches:
        for lane in batch.column(0).to_pylist():
            yield lane, list(wave.lanes[lane])


def read_lane(job: Job, wave: Wave, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For ``mapInArrow``: the records of the lane's batches, then a marker for each batch.

    No batch is started once the wave's time is over; a batch that cannot be read says so in its marker and does not
    fail the lane.
    """
    traced = job.pipeline.dead_letter_queue.include_stack_trace
    for lane, tasks in lanes_of(wave, batches):
        started = time.monotonic()
        unreachable = False
        reader: Reader | None = None
        try:
            for index, task in enumerate(tasks):
                if unreachable or (index and time.monotonic() - started > wave.seconds):
                    yield _marker(schema, lane, index, c.NOT_ATTEMPTED, None)
                    continue
                read, failure = 0, None
                if task.instruction is Instruction.DELIVER:
                    try:
                        reader = reader or job.reader()
                        for records in reader.read(task):
                            read += records.num_rows
                            yield _tagged(schema, lane, index, records)
                    except CkptError as error:
                        failure, unreachable = info_of(error, traced=traced), error.whole
                    except Exception as error:  # noqa: BLE001  # the lane's boundary: it becomes the batch's outcome
                        failure = info_of(error, traced=traced)
                yield _marker(schema, lane, index, read, failure)
        finally:
            if reader is not None:
                reader.close()


def control_schema() -> list[pa.Field]:
    """The control columns as Arrow fields, in order."""
    import pyarrow as pa

    return [
        pa.field(c.LANE, pa.int32()),
        pa.field(c.BATCH, pa.int32()),
        pa.field(POSITION, pa.int64()),
        pa.field(c.READ, pa.int64()),
        pa.field(c.FAILURE, pa.string()),
    ]


def _tagged(schema: pa.Schema, lane: int, index: int, records: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    size = records.num_rows
    control = [
        pa.repeat(pa.scalar(lane, pa.int32()), size),
        pa.repeat(pa.scalar(index, pa.int32()), size),
        records.column(0),
        pa.nulls(size, pa.int64()),
        pa.nulls(size, pa.string()),
    ]
    data = [_cast(column, schema.field(len(control) + at).type) for at, column in enumerate(records.columns[1:])]
    return pa.RecordBatch.from_arrays(control + data, schema=schema)


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    return column if column.type == wanted else column.cast(wanted)


def _marker(schema: pa.Schema, lane: int, index: int, read: int, failure: ErrorInfo | None) -> pa.RecordBatch:
    import pyarrow as pa

    row = {c.LANE: lane, c.BATCH: index, c.READ: read, c.FAILURE: json.dumps(failure.to_json()) if failure else None}
    return pa.RecordBatch.from_pylist([row], schema=schema)
