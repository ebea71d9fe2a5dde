"""Fast path of a lane: read and deliver in one Python process, so that no record passes through the JVM.

It serves pipelines without a transform, and those that only decode JSON. A batch with a record that is not flat JSON
(see ``plain_json.py``) is deferred: the lane returns it, and it is run again through the JVM. A thread reads one batch
ahead, so that the source works while the sink commits. Batches between two PostgreSQL tables with the same columns are
copied as raw bytes (see ``connectors/postgres/raw_copy.py``). If a batch cannot be copied as bytes, the lane reads this
batch and all later ones as records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.raw_copy_protocol import RawCopy, RawRows
from airflow_provider_ckpt.connectors.row_filter import exclude_rows
from airflow_provider_ckpt.connectors.source_protocol import Reader
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.errors import ErrorType
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome, Wave
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
    """Read and deliver the batches of this Spark task's lanes, and yield a row per batch (for ``mapInArrow``).

    The row contains the batch's outcome, or the batch itself if it is deferred. Batches for which no time was left have
    the outcome ``not_attempted``.

    :param job: description of the run
    :param wave: the batches, by lane
    :param schema: Arrow schema of the rows to deliver: the position, then the sink's columns
    :param flat_decoder: decoder of flat (unnested) JSON records; None if nothing is decoded
    :param batches: indexes of the lanes that this Spark task runs, as rows of ``spark.range``
    """
    for _, tasks in lanes_of_task(wave, batches):
        started = time.monotonic()
        lane = Lane(job, transformed=flat_decoder is not None)
        raw_copy = job.raw_copy()
        prefetcher = _Prefetcher(job, tasks, schema.empty_table(), flat_decoder, raw_copy)
        outcomes: list[Outcome | DeferredBatch] = []
        try:
            for index, task in enumerate(tasks):
                late = index > 0 and time.monotonic() - started > wave.seconds
                if late or lane.is_stopped(task):
                    outcomes.append(lane.deliver(task, GatheredBatch.of(schema.empty_table(), c.NOT_ATTEMPTED)))
                else:
                    outcomes.append(_deliver(lane, prefetcher, raw_copy, task, index))
        finally:
            prefetcher.close()
            lane.close()
            if raw_copy is not None:
                raw_copy.close()
        yield outcome_rows(outcomes)  # once per lane: each yield costs time in the JVM


def _deliver(
    lane: Lane, prefetcher: _Prefetcher, raw_copy: RawCopy | None, task: BatchTask, index: int
) -> Outcome | DeferredBatch:
    """Deliver a batch as raw bytes if possible, else as records; defer it if Spark must decode its records.

    :param lane: the lane, which delivers the batch
    :param prefetcher: reader of the lane's batches
    :param raw_copy: object that copies rows as bytes; None if the pipeline's rows must be read as records
    :param task: the batch
    :param index: index of the batch in the lane, from 0
    """
    found = prefetcher.take(index)
    if isinstance(found, RawRows):
        assert raw_copy is not None
        outcome = lane.deliver_raw(task, raw_copy, found)
        if outcome is not None:
            return outcome
        found = prefetcher.take_records(index)
    return lane.defer(DeferredBatch(task.key)) if found is None else lane.deliver(task, found)


class _Prefetcher:
    """Reader with a thread of its own, which reads the next batch of a lane while the lane delivers the current one.

    :param job: description of the run, which creates the source's reader
    :param tasks: the lane's batches, in order
    :param empty: table without rows in the schema of the rows to deliver, used for a batch without records
    :param flat_decoder: decoder of flat (unnested) JSON records; None if nothing is decoded
    :param raw_copy: object that reads rows as bytes, until a batch cannot be read so; None if rows must be read as
        records
    """

    def __init__(
        self,
        job: Job,
        tasks: Sequence[BatchTask],
        empty: pa.Table,
        flat_decoder: FlatJsonDecoder | None,
        raw_copy: RawCopy | None,
    ) -> None:
        self._job = job
        self._tasks = tasks
        self._empty = empty
        self._flat_decoder = flat_decoder
        self._raw_copy = raw_copy
        pipeline = job.pipeline
        self._largest = pipeline.transform.max_record_bytes
        self._traced = pipeline.dead_letter_queue.include_stack_trace
        self._time_checks = out_of_range_times.time_range_checks(pipeline, job.shape)
        self._reader: Reader | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ckpt-read")
        self._next: tuple[int, Future[GatheredBatch | RawRows | None]] | None = None

    def take(self, index: int) -> GatheredBatch | RawRows | None:
        """Return a batch as it was read, and start to read the next one in the thread.

        If reading fails, the result contains the error (:attr:`GatheredBatch.failure`), and the next batch is not read
        ahead.

        :param index: index of the batch in the lane, from 0
        :return: raw rows, or records; None if Spark must decode the batch
        """
        expected, reading = self._next or (index, self._pool.submit(self._read, index))
        if expected != index:
            reading = self._pool.submit(self._read, index)
        found = reading.result()
        following = index + 1
        self._next = None
        if following < len(self._tasks) and not (isinstance(found, GatheredBatch) and found.failure):
            self._next = (following, self._pool.submit(self._read, following))
        return found

    def take_records(self, index: int) -> GatheredBatch | None:
        """Read a batch again, as records, because its raw rows could not be delivered; None if Spark must decode it.

        :param index: index of the batch in the lane, from 0
        """
        return self._pool.submit(self._read_records, index).result()

    def close(self) -> None:
        """Wait until the batch that is being read has been read, and close the connection to the source."""
        self._pool.shutdown(cancel_futures=True)
        if self._reader is not None:
            self._reader.close()

    def _read(self, index: int) -> GatheredBatch | RawRows | None:
        """Read a batch as raw bytes if possible, else as records; return None if Spark must decode it.

        :param index: index of the batch in the lane, from 0
        """
        rows = self._raw_copy.read(self._tasks[index]) if self._raw_copy is not None else None
        return self._read_records(index) if rows is None else rows

    def _read_records(self, index: int) -> GatheredBatch | None:
        """Read a batch as decoded records; return None if Spark must decode them.

        :param index: index of the batch in the lane, from 0
        :return: the batch; an error of reading is in :attr:`GatheredBatch.failure`
        """
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
        """Return raw records as decoded rows; None if Spark must decode one of them, or one exceeds
        ``max_record_bytes``.

        :param flat_decoder: decoder of flat (unnested) JSON records
        :param records: records as the reader yields them
        """
        _, large = oversized_records.separate(records, self._largest)
        return None if large else flat_decoder.rows(records)

    def _separate_bad_records(self, reader: Reader, task: BatchTask, records: pa.Table) -> GatheredBatch:
        """Return a batch in which records with invalid UTF-8 or a time out of range have become dead letters.

        :param reader: reader of the batch's source, which knows the records' origin
        :param task: the batch
        :param records: all records of the batch, with their positions
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
