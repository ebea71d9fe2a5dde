"""Read the batches of a lane (one Spark task) in order, and end each batch with a marker row."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.failures import to_error_info
from airflow_provider_ckpt.spark.lane import oversized_records

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.connectors.source_protocol import Reader
    from airflow_provider_ckpt.core.wave_messages import BatchTask, Wave
    from airflow_provider_ckpt.spark.job import Job
    from airflow_provider_ckpt.spark.transform.plain_json import FlatJsonDecoder


def lanes_of_task(wave: Wave, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, list[BatchTask]]]:
    """Yield, for each lane that this Spark task runs, its index in the wave and its batches; usually there is one lane.

    :param wave: the batches, by lane
    :param batches: indexes of the lanes that this Spark task runs, as rows of ``spark.range``
    """
    for batch in batches:
        for lane in batch.column(0).to_pylist():
            yield lane, list(wave.lanes[lane])


def read_lane(
    job: Job, wave: Wave, schema: pa.Schema, flat_decoder: FlatJsonDecoder | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the lanes that this Spark task runs, with a marker row after each batch.

    Spark calls this by ``mapInArrow``.

    :param job: description of the run
    :param wave: the batches, by lane
    :param schema: Arrow schema of the rows to yield: the control columns, then the source's columns
    :param flat_decoder: decoder of flat JSON records; None if readers decode nothing
    :param batches: indexes of the lanes that this Spark task runs, as rows of ``spark.range``
    """
    for lane, _ in lanes_of_task(wave, batches):
        yield from read_batches(job, wave, lane, schema, flat_decoder, job.reader)


def read_batches(
    job: Job,
    wave: Wave,
    lane: int,
    schema: pa.Schema,
    flat_decoder: FlatJsonDecoder | None,
    open_reader: Callable[[], Reader],
    read: frozenset[Instruction] = frozenset({Instruction.DELIVER}),
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one lane's batches, with a marker row after each batch.

    If a batch cannot be read, its marker row contains the error, and the lane goes on with the next batch. After
    :attr:`Wave.seconds`, or after an outage of the source, it reads no more batches: the marker row of each of the
    others says that the batch was not attempted.

    :param job: description of the run
    :param wave: the batches, by lane
    :param lane: index of the lane in the wave
    :param schema: Arrow schema of the rows to yield: the control columns, then the source's columns
    :param flat_decoder: decoder of flat JSON records; None if readers decode nothing
    :param open_reader: function that opens the lane's reader
    :param read: instructions of those batches whose records are read; any other batch yields its marker row only
    """
    pipeline = job.pipeline
    traced, largest = pipeline.dead_letter_queue.include_stack_trace, pipeline.transform.max_record_bytes
    started = time.monotonic()
    unreachable = False
    reader: Reader | None = None
    try:
        for index, task in enumerate(wave.lanes[lane]):
            if unreachable or (index and time.monotonic() - started > wave.seconds):
                yield _marker(schema, lane, index, c.NOT_ATTEMPTED)
                continue
            count, failure = 0, None
            large: list[tuple[int, int]] = []
            if task.instruction in read:
                try:
                    reader = reader or open_reader()
                    for records in reader.read(task):
                        count += records.num_rows
                        taken, larger = oversized_records.separate(records, largest) if job.shape.raw else (records, [])
                        large += larger
                        if taken.num_rows:
                            yield _with_control_columns(schema, lane, index, taken, flat_decoder)
                except CkptError as error:
                    failure, unreachable = to_error_info(error, traced=traced), error.is_outage
                except Exception as error:  # noqa: BLE001  # lane boundary: any error becomes the batch's outcome
                    failure = to_error_info(error, traced=traced)
            yield _marker(schema, lane, index, count, failure, large)
    finally:
        if reader is not None:
            reader.close()


def control_schema(flat_decoder: FlatJsonDecoder | None) -> list[pa.Field]:
    """Return the Arrow fields of the control columns, in order.

    :param flat_decoder: decoder of flat JSON records, which adds :data:`~.columns.FLAT_JSON`; None if
        readers decode nothing
    """
    import pyarrow as pa

    fields = [pa.field(c.BATCH, pa.int64()), pa.field(POSITION, pa.int64()), pa.field(c.MARKER, pa.string())]
    return fields if flat_decoder is None else [*fields, pa.field(c.FLAT_JSON, flat_decoder.kind)]


def _with_control_columns(
    schema: pa.Schema, lane: int, index: int, records: pa.RecordBatch, flat_decoder: FlatJsonDecoder | None
) -> pa.RecordBatch:
    """Return the records of a batch with their control columns, in the types of ``schema``.

    :param schema: Arrow schema of the rows to return: the control columns, then the source's columns
    :param lane: index of the lane in the wave
    :param index: index of the batch in the lane
    :param records: records as the reader yields them: the position, then the source's columns
    :param flat_decoder: decoder of flat JSON records; None if readers decode nothing
    """
    import pyarrow as pa

    size = records.num_rows
    batch = pa.repeat(pa.scalar(c.batch_number(lane, index), pa.int64()), size)
    control = [batch, records.column(0), pa.nulls(size, pa.string())]
    if flat_decoder is not None:
        decoded = flat_decoder.decoded(records.column("value"))
        control.append(decoded)
        records = _without_decoded_values(records, decoded)
    data = [_cast(column, schema.field(len(control) + at).type) for at, column in enumerate(records.columns[1:])]
    return pa.RecordBatch.from_arrays(control + data, schema=schema)


def _without_decoded_values(records: pa.RecordBatch, decoded: pa.StructArray) -> pa.RecordBatch:
    """Return the records, with a null ``value`` where the JSON is decoded, so that the JVM does not get the bytes.

    The bytes are needed later for rejected records only, which are few and are then read again.

    :param records: records as the reader yields them
    :param decoded: the decoded fields of each record; null for a record that Spark must decode
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    at = records.schema.get_field_index("value")
    left = pc.if_else(decoded.is_null(), records.column(at), pa.scalar(None, records.column(at).type))
    return records.set_column(at, "value", left)


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    return column if column.type == wanted else column.cast(wanted)


def _marker(
    schema: pa.Schema,
    lane: int,
    index: int,
    read: int,
    failure: ErrorInfo | None = None,
    large: Sequence[tuple[int, int]] = (),
) -> pa.RecordBatch:
    """Return the marker row that ends a batch.

    :param schema: Arrow schema of the rows that a lane yields
    :param lane: index of the lane in the wave
    :param index: index of the batch in the lane
    :param read: number of records that were read, or :data:`NOT_ATTEMPTED`
    :param failure: the error that ended reading; None if all records were read
    :param large: position and size in bytes of each record that exceeds ``max_record_bytes``
    """
    import pyarrow as pa

    marker = json.dumps({"read": read, "failure": failure and failure.to_json(), "large": large})
    return pa.RecordBatch.from_pylist([{c.BATCH: c.batch_number(lane, index), c.MARKER: marker}], schema=schema)
