"""A lane where there is no transform: reads and delivers in one process, so no record crosses the JVM.

It reads one batch ahead, in a thread: while the sink's commit waits for its disk, the source is at work.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.protocols import Reader
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.wave import BatchTask, Wave
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.delivery import Lane, outcome_rows
from airflow_provider_ckpt.spark.failures import info_of
from airflow_provider_ckpt.spark.gathering import Gathered
from airflow_provider_ckpt.spark.reading import lanes_of

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.spark.job import Job


def copy_lane(job: Job, wave: Wave, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For ``mapInArrow``: the outcomes of the lane's batches.

    :param schema: of the source's columns, for a batch that has no records
    """
    for _, tasks in lanes_of(wave, batches):
        started = time.monotonic()
        lane = Lane(job, transformed=False)
        ahead = _Ahead(job, tasks, schema.empty_table())
        outcomes = []
        try:
            for index, task in enumerate(tasks):
                late = index > 0 and time.monotonic() - started > wave.seconds
                if late or lane.stopped(task):
                    gathered = Gathered(schema.empty_table(), read=c.NOT_ATTEMPTED)
                else:
                    gathered = ahead.take(index)
                outcomes.append(lane.deliver(task, gathered))
        finally:
            ahead.close()
            lane.close()
        yield outcome_rows(outcomes)  # once a lane: nobody sees them before the wave ends, and each yield costs the JVM


class _Ahead:
    """Reads batches in a thread of its own, over a connection of its own: the one asked for, and then the next.

    :param nothing: the records of a batch that has none
    """

    def __init__(self, job: Job, tasks: Sequence[BatchTask], nothing: pa.Table) -> None:
        self._job = job
        self._tasks = tasks
        self._nothing = nothing
        self._traced = job.pipeline.dead_letter_queue.include_stack_trace
        self._reader: Reader | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ckpt-read")
        self._next: tuple[int, Future[Gathered]] | None = None

    def take(self, index: int) -> Gathered:
        """The records of a batch, or why they could not be read; begins to read the batch after it."""
        expected, reading = self._next or (index, self._pool.submit(self._read, index))
        if expected != index:
            reading = self._pool.submit(self._read, index)
        gathered = reading.result()
        following = index + 1
        self._next = None
        if following < len(self._tasks) and gathered.failure is None:
            self._next = (following, self._pool.submit(self._read, following))
        return gathered

    def close(self) -> None:
        """Wait for what is being read, and let go of the connection."""
        self._pool.shutdown(cancel_futures=True)
        if self._reader is not None:
            self._reader.close()

    def _read(self, index: int) -> Gathered:
        import pyarrow as pa

        task = self._tasks[index]
        if task.instruction is not Instruction.DELIVER:
            return Gathered(self._nothing)
        try:
            self._reader = self._reader or self._job.reader()
            records = list(self._reader.read(task))
        except Exception as error:  # noqa: BLE001  # the lane's boundary: whatever a driver raised becomes an outcome
            return Gathered(self._nothing, failure=info_of(error, traced=self._traced))
        rows = pa.Table.from_batches(records) if records else self._nothing
        return Gathered(rows, rows.num_rows)
