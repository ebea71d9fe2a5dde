"""The delivering half of a lane: gathers each batch, checks its sum, and has the sink's writer claim the verdict.

A batch that fails does not fail its lane; what happened comes back as an outcome, one row a batch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.content import Content, DeadLetter
from airflow_provider_ckpt.connectors.protocols import POSITION, Reader, Writer
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo, ErrorType
from airflow_provider_ckpt.core.wave import BatchTask, Outcome, Wave
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark import originals
from airflow_provider_ckpt.spark.headers import headed
from airflow_provider_ckpt.spark.letters import replays
from airflow_provider_ckpt.spark.reading import unexpected
from airflow_provider_ckpt.spark.texts import unreadable_texts

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.spark.job import Job


@dataclass(slots=True)
class Gathered:
    """What was read of one batch, by verdict.

    :param rows: to be delivered
    :param read: how many records were read, or :data:`NOT_ATTEMPTED`
    :param letters: rejected by the transform
    :param filtered: left out by ``where``
    :param failure: why reading failed
    """

    rows: pa.Table
    read: int = 0
    letters: list[DeadLetter] = field(default_factory=list)
    filtered: int = 0
    failure: ErrorInfo | None = None


class Lane:
    """One lane's delivery: its writer, a reader for originals, and which partitions have failed.

    :param transformed: whether the rows went through a transform, so that originals must be read again
    """

    def __init__(self, job: Job, *, transformed: bool) -> None:
        self._job = job
        self._pipeline = job.pipeline
        self._transformed = transformed
        self._stopped: set[str] = set()
        self._reader: Reader | None = None
        self._unreachable = False
        self._writer: Writer | None = None
        self._mark = time.monotonic()

    @property
    def reader(self) -> Reader:
        """The lane's reader, opened when first needed."""
        if self._reader is None:
            self._reader = self._job.reader()
        return self._reader

    def close(self) -> None:
        """Let go of the lane's connections."""
        if self._writer is not None:
            self._writer.close()
        if self._reader is not None:
            self._reader.close()

    def stopped(self, task: BatchTask) -> bool:
        """Whether a failure before this batch keeps it from being attempted."""
        return self._unreachable or task.key.partition in self._stopped

    def deliver(self, task: BatchTask, gathered: Gathered) -> Outcome:
        """Carry out a batch's instruction and say what became of it."""
        if gathered.read == c.NOT_ATTEMPTED or self.stopped(task):
            return self._timed(Outcome(task.key, task.attempt, AttemptOutcome.NOT_ATTEMPTED))
        try:
            outcome = self._attempt(task, gathered)
        except CkptError as error:
            outcome = _failed(task, error.info)
        except Exception as error:  # noqa: BLE001  # the lane's boundary: whatever a driver raised becomes this batch's outcome
            outcome = _failed(task, unexpected(error))
        if outcome.outcome is AttemptOutcome.FAILED:
            self._unreachable = outcome.error is not None and outcome.error.whole
            if self._pipeline.pinned:
                self._stopped.add(task.key.partition)
        return self._timed(outcome)

    def _attempt(self, task: BatchTask, gathered: Gathered) -> Outcome:
        if gathered.failure is not None:
            return _failed(task, gathered.failure)
        if task.instruction is Instruction.REJECT:
            error = task.error or ErrorInfo(ErrorType.RETRY_EXHAUSTED, "the batch was given up")
            gathered.letters = originals.of_all(self.reader, task, error, raw=self._job.shape.raw)
            gathered.read = len(gathered.letters)
        elif task.instruction is Instruction.DELIVER and replays(task):
            left_out = originals.left_out(self.reader, task)
            gathered.letters += left_out
            gathered.read += len(left_out)
        refusal = _refusal(gathered, dead_letters=self._pipeline.dead_letter_queue.enabled)
        if refusal is not None:
            return _failed(task, refusal)

        def original(errors: Mapping[int, ErrorInfo]) -> list[DeadLetter]:
            raw = self._job.shape.raw
            if self._transformed:
                return self._headed(task, originals.reread(self.reader, task, errors, raw=raw))
            return self._headed(task, originals.from_rows(self.reader, task, gathered.rows, errors, raw=raw))

        self._writer = self._writer or self._job.writer()
        letters = self._headed(task, gathered.letters)
        content = Content(gathered.rows, letters, gathered.read, gathered.filtered, original)
        return self._writer.deliver(task, content)

    def _headed(self, task: BatchTask, letters: list[DeadLetter]) -> list[DeadLetter]:
        return headed(letters, task, self._pipeline, epoch=self._job.context.epoch) if letters else letters

    def _timed(self, outcome: Outcome) -> Outcome:
        now = time.monotonic()
        seconds, self._mark = now - self._mark, now
        return replace(outcome, seconds=round(seconds, 4))


def deliver_lane(job: Job, wave: Wave, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For ``mapInArrow`` behind the transform: outcomes of the lane that the records' markers belong to.

    A Spark task may get several lanes in turn, or none.
    """
    lanes: dict[int, Lane] = {}
    gathering = _Gathering()
    try:
        for batch in batches:
            for piece in gathering.split(batch):
                if piece.lane not in lanes:
                    lanes[piece.lane] = Lane(job, transformed=True)
                lane = lanes[piece.lane]
                gathering.add(piece)
                if piece.ends:
                    task = wave.lanes[piece.lane][piece.index]
                    yield outcome_rows([lane.deliver(task, gathering.take(lane.reader, task, raw=job.shape.raw))])
    finally:
        for lane in lanes.values():
            lane.close()


class _Piece:
    """Rows of one lane and one batch, cut from an Arrow batch."""

    def __init__(self, records: pa.RecordBatch) -> None:
        self.records = records
        self.lane: int = records.column(c.LANE)[0].as_py()
        self.index: int = records.column(c.BATCH)[0].as_py()
        self.ends: bool = records.column(c.READ)[-1].is_valid


class _Gathering:
    """Puts a batch together from the Arrow batches that Spark cut its records into."""

    def __init__(self) -> None:
        self._pieces: list[pa.RecordBatch] = []

    def split(self, batch: pa.RecordBatch) -> Iterator[_Piece]:
        """Cut where the batch's number changes; each marker row ends a piece."""
        if batch.num_rows == 0:
            return
        import numpy as np

        index = batch.column(c.BATCH).to_numpy(zero_copy_only=False)
        cuts = np.flatnonzero(index[1:] != index[:-1]) + 1
        edges = [0, *cuts.tolist(), batch.num_rows]
        for start, end in pairwise(edges):
            yield _Piece(batch.slice(start, end - start))

    def add(self, piece: _Piece) -> None:
        """Keep a piece until its batch is whole."""
        self._pieces.append(piece.records)

    def take(self, reader: Reader, task: BatchTask, *, raw: bool) -> Gathered:
        """The batch that is whole now, by verdict."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table = pa.Table.from_batches(self._pieces)
        self._pieces = []
        marker = table.slice(table.num_rows - 1)
        table = table.slice(0, table.num_rows - 1)
        read = marker.column(c.READ)[0].as_py()
        failure = marker.column(c.FAILURE)[0].as_py()
        verdict = table.column(c.VERDICT)
        good = verdict.null_count == table.num_rows
        outputs = [name for name in table.column_names if name not in _CONTROL]
        rows = (table if good else table.filter(pc.is_null(verdict))).select([POSITION, *outputs])
        filtered, letters = 0, []
        if not good:
            bad = table.filter(pc.is_valid(verdict))
            is_filtered = pc.equal(bad.column(c.VERDICT), c.FILTERED)
            filtered = pc.sum(is_filtered).as_py() or 0
            rejected = bad.filter(pc.invert(is_filtered)).select([POSITION, c.VERDICT, c.MESSAGE, c.ORIGINAL])
            letters = originals.of_rejected(reader, task, rejected, raw=raw)
        garbled = unreadable_texts(rows)
        if garbled:
            letters += originals.reread(reader, task, garbled, raw=raw)
            rows = rows.filter(pc.invert(pc.is_in(rows.column(POSITION), pa.array(list(garbled), pa.int64()))))
        why = ErrorInfo.from_json(json.loads(failure)) if failure else None
        return Gathered(rows, read, letters, filtered, why)


_CONTROL = frozenset({*c.CONTROL, c.VERDICT, c.MESSAGE, c.ORIGINAL})


def _refusal(gathered: Gathered, *, dead_letters: bool) -> ErrorInfo | None:
    """Why a batch must not be sent: its sum is wrong, or it needs dead letters that the pipeline does not allow."""
    delivered, rejected = gathered.rows.num_rows, len(gathered.letters)
    if gathered.read != delivered + rejected + gathered.filtered:
        return ErrorInfo(
            ErrorType.GENERIC,
            f"SumIdentity: {gathered.read} records were read, but {delivered} are to be delivered, "
            f"{gathered.filtered} were filtered and {rejected} rejected; nothing was sent",
        )
    if gathered.letters and not dead_letters:
        first = gathered.letters[0]
        return ErrorInfo(
            ErrorType.DEAD_LETTER_QUEUE,
            f"position {first.position} calls for a dead letter ({first.error.type}: {first.error.message}), "
            "but dead_letter_queue.enabled is false; nothing of the batch was sent",
        )
    return None


def _failed(task: BatchTask, error: ErrorInfo) -> Outcome:
    return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=error)


def outcome_rows(outcomes: Sequence[Outcome]) -> pa.RecordBatch:
    """Outcomes as the rows that their batches give back, one each."""
    import pyarrow as pa

    rows = [json.dumps(outcome.to_json()) for outcome in outcomes]
    return pa.RecordBatch.from_arrays([pa.array(rows, pa.string())], [c.OUTCOME])
