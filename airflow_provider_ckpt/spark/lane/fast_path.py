"""Fast path of a lane: read and deliver in one Python process, so that no record passes through the JVM.

It serves pipelines without a transform, and those that only decode JSON. A batch with a record that is not flat JSON
(see ``plain_json.py``) is deferred and run again through the JVM. A thread reads one batch ahead, so that the source
works while the sink's commit waits for its disk.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.row_filter import exclude_rows
from airflow_provider_ckpt.connectors.source_protocol import Reader
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.core.wave import BatchTask, Outcome, Wave
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.dead_letters import originals
from airflow_provider_ckpt.spark.failures import to_error_info
from airflow_provider_ckpt.spark.lane import oversized_records
from airflow_provider_ckpt.spark.lane.deliver import Lane, outcome_rows
from airflow_provider_ckpt.spark.lane.gather import GatheredBatch
from airflow_provider_ckpt.spark.lane.read import lanes_of_task
from airflow_provider_ckpt.spark.lane.stack_traces import DeferredBatch
from airflow_provider_ckpt.spark.lane.utf8 import invalid_utf8
from airflow_provider_ckpt.spark.transform import out_of_range_times

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.spark.job import Job
    from airflow_provider_ckpt.spark.transform.plain_json import FlatJsonDecoder


def run_lane(
    job: Job, wave: Wave, schema: pa.Schema, flat_decoder: FlatJsonDecoder | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Read and deliver the batches of this task's lanes, and yield a row with the outcome of each (for ``mapInArrow``).

    :param job: the run
    :param wave: the wave
    :param schema: schema of the rows to deliver, for a batch without records
    :param flat_decoder: decoder of flat JSON records, None if nothing is decoded
    :param batches: numbers of the lanes that this Spark task runs
    """
    for _, tasks in lanes_of_task(wave, batches):
        started = time.monotonic()
        lane = Lane(job, transformed=flat_decoder is not None)
        prefetcher = _Prefetcher(job, tasks, schema.empty_table(), flat_decoder)
        outcomes: list[Outcome | DeferredBatch] = []
        try:
            for index, task in enumerate(tasks):
                late = index > 0 and time.monotonic() - started > wave.seconds
                if late or lane.is_stopped(task):
                    gathered: GatheredBatch | None = GatheredBatch.of(schema.empty_table(), c.NOT_ATTEMPTED)
                else:
                    gathered = prefetcher.take(index)
                outcomes.append(
                    lane.defer(DeferredBatch(task.key)) if gathered is None else lane.deliver(task, gathered)
                )
        finally:
            prefetcher.close()
            lane.close()
        yield outcome_rows(outcomes)  # once per lane: each yield costs time in the JVM


class _Prefetcher:
    """Reader that, in a thread of its own, reads the next batch of a lane while the lane delivers the current one.

    :param job: the run
    :param tasks: the lane's batches
    :param empty: empty table, for a batch without records
    :param flat_decoder: decoder of flat JSON records, None if nothing is decoded
    """

    def __init__(
        self, job: Job, tasks: Sequence[BatchTask], empty: pa.Table, flat_decoder: FlatJsonDecoder | None
    ) -> None:
        self._job = job
        self._tasks = tasks
        self._empty = empty
        self._flat_decoder = flat_decoder
        pipeline = job.pipeline
        self._largest = pipeline.transform.max_record_bytes
        self._traced = pipeline.dead_letter_queue.include_stack_trace
        self._time_checks = out_of_range_times.time_range_checks(pipeline, job.shape)
        self._reader: Reader | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ckpt-read")
        self._next: tuple[int, Future[GatheredBatch | None]] | None = None

    def take(self, index: int) -> GatheredBatch | None:
        """Return the records of a batch, or the error that ended reading, and start to read the next batch.

        :param index: index of the batch in the lane
        :return: None if the batch must be decoded by Spark
        """
        expected, reading = self._next or (index, self._pool.submit(self._read, index))
        if expected != index:
            reading = self._pool.submit(self._read, index)
        gathered = reading.result()
        following = index + 1
        self._next = None
        if following < len(self._tasks) and (gathered is None or gathered.failure is None):
            self._next = (following, self._pool.submit(self._read, following))
        return gathered

    def close(self) -> None:
        """Wait for the batch that is being read, and close the connection to the source."""
        self._pool.shutdown(cancel_futures=True)
        if self._reader is not None:
            self._reader.close()

    def _read(self, index: int) -> GatheredBatch | None:
        """Read and decode the batch of this index from the source; return None if it must be decoded by Spark."""
        import pyarrow as pa

        task = self._tasks[index]
        if task.instruction is not Instruction.DELIVER:
            return GatheredBatch.of(self._empty)
        try:
            self._reader = self._reader or self._job.reader()
            records = []
            for found in self._reader.read(task):
                rows = found if self._flat_decoder is None else self._decoded(self._flat_decoder, found)
                if rows is None:
                    return None
                records.append(rows)
            table = pa.Table.from_batches(records) if records else self._empty
            return self._separate_bad_records(self._reader, task, table)
        except Exception as error:  # noqa: BLE001  # lane boundary: any error becomes the batch's outcome
            return GatheredBatch.of(self._empty, failure=to_error_info(error, traced=self._traced))

    def _decoded(self, flat_decoder: FlatJsonDecoder, records: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return raw records as decoded rows; None if Spark must decode one of them, or one is above the size limit."""
        _, large = oversized_records.separate(records, self._largest)
        return None if large else flat_decoder.rows(records)

    def _separate_bad_records(self, reader: Reader, task: BatchTask, records: pa.Table) -> GatheredBatch:
        """Return a batch whose records with invalid UTF-8 or a time out of range are dead letters, and all others rows.

        :param reader: the lane's reader
        :param task: the batch
        :param records: all records of the batch
        """
        gathered = GatheredBatch.of(records, records.num_rows)
        errors = {} if self._flat_decoder else invalid_utf8(gathered.rows, ErrorType.MESSAGE_DESERIALIZATION)
        errors |= out_of_range_times.errors(gathered.rows, self._time_checks)
        if errors:
            raw = self._job.shape.raw
            gathered.dead_letters = originals.from_rows(
                reader, task, gathered.positions, gathered.rows, errors, raw=raw
            )
            gathered.rows = exclude_rows(gathered.rows, errors)
        return gathered
