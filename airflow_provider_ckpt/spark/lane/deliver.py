"""Deliver a lane's batches: check each batch's record counts, and have the sink's writer claim its verdict.

A batch that fails does not fail its lane: each batch yields its outcome as one row of the wave's result.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter
from airflow_provider_ckpt.connectors.raw_copy_protocol import RawCopy, RawRows
from airflow_provider_ckpt.connectors.record_positions import RecordPositions
from airflow_provider_ckpt.connectors.row_filter import without_refused
from airflow_provider_ckpt.connectors.sink_protocol import Refused, Writer
from airflow_provider_ckpt.connectors.source_protocol import Reader
from airflow_provider_ckpt.connectors.sum_identity import checked_counts
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.partition_order import StoppedPartitions
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome, Wave
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark.dead_letters import originals
from airflow_provider_ckpt.spark.dead_letters.error_policy import skipped_indexes, without_skipped
from airflow_provider_ckpt.spark.dead_letters.headers import with_headers
from airflow_provider_ckpt.spark.dead_letters.replay_reader import is_replay
from airflow_provider_ckpt.spark.failures import to_error_info
from airflow_provider_ckpt.spark.lane.gather import GatheredBatch, Gatherer
from airflow_provider_ckpt.spark.lane.reject_whole_batch import reject_all
from airflow_provider_ckpt.spark.lane.stack_traces import TRACES, DeferredBatch
from airflow_provider_ckpt.spark.lane.task_retry import is_task_retry
from airflow_provider_ckpt.spark.transform import python_function

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.spark.job import Job
    from airflow_provider_ckpt.spark.transform.python_function import Function


_RETRY_REFUSED = ErrorInfo(
    ErrorType.PROCESSING,
    "Spark retries this task; delivery is at_most_once, so nothing of the batch is sent again",
)


class Lane:
    """Delivery of one lane's batches through one writer to the sink.

    It also has a reader, which reads records again for their dead letters.

    :param job: description of the run
    :param transformed: whether the rows went through a transform. For the dead letter of a row that the sink refuses,
        the original record must then be read from the source again
    :param returns: output columns of the transform's Python function; None if there is no function
    """

    def __init__(self, job: Job, *, transformed: bool, returns: pa.Schema | None = None) -> None:
        self._job = job
        self._pipeline = job.pipeline
        self._transformed = transformed
        self._returns = returns
        self._function: Function | None = None
        self._refuses_retry = self._pipeline.delivery == "at_most_once" and is_task_retry()
        self._policy = self._pipeline.policy
        self._traced = self._pipeline.dead_letter_queue.include_stack_trace
        self._stopped = StoppedPartitions(pinned=job.pipeline.pinned)
        self._deferred = StoppedPartitions(pinned=job.pipeline.pinned)
        self._reader: Reader | None = None
        self._unreachable = False
        self._writer: Writer | None = None
        self._last_outcome_at = time.monotonic()

    @property
    def reader(self) -> Reader:
        """The lane's reader, opened at its first use."""
        if self._reader is None:
            self._reader = self._job.reader()
        return self._reader

    def close(self) -> None:
        """Close the lane's connections to source and sink."""
        self._close_writer()
        if self._reader is not None:
            self._reader.close()

    def is_stopped(self, task: BatchTask) -> bool:
        """Return whether an earlier failure in this lane keeps a batch from being attempted.

        Such a failure is an outage of source or sink or, in a pinned pipeline, a failed batch of the same partition.

        :param task: the batch
        """
        return self._unreachable or task.key in self._stopped

    def defer_for_traces(self, task: BatchTask, gathered: GatheredBatch) -> DeferredBatch | None:
        """Defer a batch if the driver must first find the stack traces of its rejected records; else return None.

        Stack traces are needed if dead letters include them and the batch does not have them yet; see
        ``stack_traces.py``.

        :param task: the batch
        :param gathered: the batch's records after the transform
        """
        if gathered.rejected is None or gathered.failure is not None:
            return None
        if not self._traced or TRACES in task.detail or self.is_stopped(task):
            return None
        return self.defer(DeferredBatch.from_rejected(task, gathered.rejected))

    def defer(self, deferred: DeferredBatch) -> DeferredBatch:
        """Register a deferred batch, which the driver is to run again, and return it.

        In a pinned pipeline, the lane then does not attempt the later batches of the same partition.

        :param deferred: the batch
        """
        self._deferred.add(deferred.key)
        return deferred

    def deliver(self, task: BatchTask, gathered: GatheredBatch) -> Outcome:
        """Claim the verdict for a batch (delivered, rejected or void, as its instruction says), and return the outcome.

        Any error makes the outcome ``failed``. A batch that the lane must not attempt gets ``not_attempted``.

        :param task: the batch
        :param gathered: the batch's records as they were read and transformed
        """
        if gathered.read == c.NOT_ATTEMPTED or self.is_stopped(task) or task.key in self._deferred:
            return self._with_seconds(Outcome(task.key, task.attempt, AttemptOutcome.NOT_ATTEMPTED))
        if self._refuses_retry:
            return self._with_seconds(_failed(task, _RETRY_REFUSED))
        try:
            outcome = self._attempt(task, gathered)
        except Exception as error:  # noqa: BLE001  # lane boundary: any error becomes this batch's outcome
            outcome = _failed(task, to_error_info(error, traced=self._traced))
        return self._ended(task, outcome)

    def deliver_raw(self, task: BatchTask, raw_copy: RawCopy, rows: RawRows) -> Outcome | None:
        """Deliver a batch without decoding its rows into records; return None if it must be delivered as records.

        If the result is None, the sink has stored nothing of the batch, unless the connection was lost during the
        commit.

        :param task: the batch
        :param raw_copy: writes the rows to the sink
        :param rows: the batch's rows as bytes in the sink's format, with their positions
        """
        if self._refuses_retry:
            return None
        outcome = raw_copy.deliver(task, rows)
        return None if outcome is None else self._ended(task, outcome)

    def _ended(self, task: BatchTask, outcome: Outcome) -> Outcome:
        """Add the duration to an outcome; after a failure, remember which later batches the lane must not attempt.

        :param task: the batch
        :param outcome: outcome of its attempt
        """
        if outcome.outcome is AttemptOutcome.FAILED:
            self._unreachable = outcome.error is not None and outcome.error.is_outage
            self._stopped.add(task.key)
        return self._with_seconds(outcome)

    def _attempt(self, task: BatchTask, gathered: GatheredBatch) -> Outcome:
        """Turn a batch's records into rows and dead letters, check the counts, and have the writer deliver both.

        :param task: the batch
        :param gathered: the batch's records as they were read and transformed
        """
        if gathered.failure is not None:
            return _failed(task, gathered.failure)
        if task.instruction is Instruction.REJECT:
            reject_all(gathered, self.reader, task, raw=self._job.shape.raw)
        elif task.instruction is Instruction.DELIVER and is_replay(task):
            left_out = originals.unreadable_dead_letters(self.reader, task)
            gathered.dead_letters += left_out
            gathered.read += len(left_out)
        if task.instruction is Instruction.DELIVER and self._returns is not None:
            self._apply_function(task, gathered, self._returns)
        if task.instruction is Instruction.DELIVER:
            found = len(gathered.dead_letters)
            gathered.dead_letters = without_skipped(gathered.dead_letters, task, self._policy)
            gathered.filtered += found - len(gathered.dead_letters)
        content = BatchContent(
            gathered.rows,
            self._with_headers(task, gathered.dead_letters),
            gathered.read,
            gathered.filtered,
            positions=self._positions(task, gathered),
        )
        checked_counts(content, task, self._pipeline.dead_letter_queue)
        return self._write(task, gathered, content)

    def _write(self, task: BatchTask, gathered: GatheredBatch, content: BatchContent) -> Outcome:
        """Have the writer deliver a batch. If the sink refuses rows, deliver again without them, until it refuses none.

        :param task: the batch
        :param gathered: the batch's records as they were read
        :param content: rows and dead letters to deliver
        """
        self._writer = self._writer or self._job.writer()
        while isinstance(result := self._writer.deliver(task, content), Refused):
            try:
                content = self._without_refused(task, gathered, content, result.errors)
            except BaseException:
                self._close_writer()  # the writer may keep the batch's transaction open
                raise
        return result

    def _without_refused(
        self, task: BatchTask, gathered: GatheredBatch, content: BatchContent, errors: Mapping[int, ErrorInfo]
    ) -> BatchContent:
        """Return a batch's content without the rows that the sink refused.

        Each refused row becomes a dead letter or is skipped, as ``error_policy`` says for its error type.

        :param task: the batch
        :param gathered: the batch's records as they were read
        :param content: rows and dead letters that the writer was to deliver
        :param errors: errors of the refused rows, by record number
        :raises RecordError: if ``error_policy`` demands that one of the errors fails the batch
        """
        numbers = list(errors)
        found = [(gathered.positions.position(number), errors[number]) for number in numbers]
        skipped = skipped_indexes(found, task, self._policy)
        kept = {number: errors[number] for at, number in enumerate(numbers) if at not in skipped}
        dead_letters = self._with_headers(task, self._originals(task, gathered, kept)) if kept else []
        return without_refused(content, errors, dead_letters, len(skipped))

    def _originals(self, task: BatchTask, gathered: GatheredBatch, errors: Mapping[int, ErrorInfo]) -> list[DeadLetter]:
        """Return dead letters, with the original records, for the rows that the sink refused.

        :param task: the batch
        :param gathered: the batch's records as they were read
        :param errors: errors of the refused rows, by record number
        """
        raw = self._job.shape.raw
        if self._transformed:
            return originals.from_source(self.reader, task, gathered.positions, errors, raw=raw)
        return originals.from_rows(self.reader, task, gathered.positions, gathered.rows, errors, raw=raw)

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _positions(self, task: BatchTask, gathered: GatheredBatch) -> str | None:
        """Return the positions of a batch's records as text for its receipt; with it, ``recover`` finds late records.

        :param task: the batch
        :param gathered: the batch's records
        :return: None if the source has no cursor or is read as a whole by each run, if the batch is a replay, or if its
            instruction is ``void``
        """
        source = self._pipeline.source
        if not source.ordered_by_cursor or source.is_full or task.key.is_replay:
            return None
        if task.instruction is Instruction.VOID:
            return None
        if task.instruction is Instruction.REJECT:
            return RecordPositions.of([dead_letter.position for dead_letter in gathered.dead_letters]).text()
        return RecordPositions.of(gathered.positions.all).text()

    def _apply_function(self, task: BatchTask, gathered: GatheredBatch, returns: pa.Schema) -> None:
        """Apply the user's Python function, the last step of the transform, to the rows of a batch.

        The results replace the rows in ``gathered``. Rows that the function excludes count as filtered, and those for
        which it raises an error become dead letters.

        :param task: the batch
        :param gathered: the batch's records, which are changed
        :param returns: output columns of the function
        """
        self._function = self._function or self._job.transform_function()
        assert self._function is not None
        applied = python_function.apply(self._function, gathered.rows, returns, traced=self._traced)
        gathered.rows = applied.rows
        gathered.filtered += applied.filtered
        if applied.errors:
            raw = self._job.shape.raw
            gathered.dead_letters += originals.from_source(
                self.reader, task, gathered.positions, applied.errors, raw=raw
            )

    def _with_headers(self, task: BatchTask, dead_letters: list[DeadLetter]) -> list[DeadLetter]:
        return (
            with_headers(dead_letters, task, self._pipeline, epoch=self._job.context.epoch)
            if dead_letters
            else dead_letters
        )

    def _with_seconds(self, outcome: Outcome) -> Outcome:
        """Return an outcome with its duration: the wall time since the lane's previous outcome, in seconds."""
        now = time.monotonic()
        seconds, self._last_outcome_at = now - self._last_outcome_at, now
        return replace(outcome, seconds=round(seconds, 4))


def deliver_lane(
    job: Job, wave: Wave, returns: pa.Schema | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Deliver the batches that the transform outputs, and yield one result row for each batch (for ``mapInArrow``).

    A Spark task may get the rows of several lanes in turn, or none.

    :param job: description of the run
    :param wave: the batches, by lane
    :param returns: output columns of the transform's Python function; None if there is no function
    :param batches: the transform's output: records, and a marker row at the end of each batch
    """
    lanes: dict[int, Lane] = {}
    read_by_spark = job.pipeline.source.read_by_spark
    gatherer = Gatherer(traced=job.pipeline.dead_letter_queue.include_stack_trace)
    try:
        for batch in batches:
            for batch_slice in gatherer.split(batch):
                if batch_slice.lane not in lanes:
                    lanes[batch_slice.lane] = Lane(job, transformed=True, returns=returns)
                lane = lanes[batch_slice.lane]
                gatherer.add(batch_slice)
                if batch_slice.ends:
                    task = wave.lanes[batch_slice.lane][batch_slice.index]
                    gathered = gatherer.take(lane.reader, task, job.shape, read_by_spark=read_by_spark)
                    yield outcome_rows([lane.defer_for_traces(task, gathered) or lane.deliver(task, gathered)])
    finally:
        for lane in lanes.values():
            lane.close()


def _failed(task: BatchTask, error: ErrorInfo) -> Outcome:
    return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=error)


def outcome_rows(outcomes: Sequence[Outcome | DeferredBatch]) -> pa.RecordBatch:
    """Return outcomes and deferred batches as rows of the wave's result (:data:`~.columns.OUTCOME`), one per batch."""
    import pyarrow as pa

    rows = [json.dumps(outcome.to_json()) for outcome in outcomes]
    return pa.RecordBatch.from_arrays([pa.array(rows, pa.string())], [c.OUTCOME])
