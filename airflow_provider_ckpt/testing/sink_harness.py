"""Harness of a sink for its conformance suite, and the batches that the suite sends.

The target has one integer column, ``id``. A batch has ten positions, and record ``n`` has the id ``n``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, Committer, Sink, SinkContext, Writer
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import KnownReceipts, Receipt
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome
from airflow_provider_ckpt.testing.lane_writer import LaneWriter

LEDGER = "7a1f9c1e-0000-4000-8000-000000000001"
OTHER_LEDGER = "7a1f9c1e-0000-4000-8000-000000000002"
SIZE = 10
NOT_UTF8 = b"\xff\x00 not text"
BAD = ErrorInfo(ErrorType.MESSAGE_DESERIALIZATION, "not JSON: \x00")


@dataclass(frozen=True)
class StoredDeadLetter:
    """Dead letter as a user finds it in the sink; the sink's own classes need not be able to read it.

    :param seq: number of the batch
    :param position: position of the record
    :param key: the record's key; None if it has none
    :param value: the record's bytes; None if the dead letter has none
    :param error_type: type of the error
    """

    seq: int
    position: int
    key: bytes | None
    value: bytes | None
    error_type: str


class SinkHarness(ABC):
    """Harness of a sink with an empty target that has one integer column, ``id``.

    :cvar refused: ids that the target refuses, of which the suite uses the first; empty if the target accepts every
        integer and null
    """

    refused: Sequence[int | None] = ()

    @abstractmethod
    def sink(self, context: SinkContext) -> Sink:
        """Open the sink for a run; the suite closes it.

        :param context: ledger, pipeline and epoch of the run
        """

    @abstractmethod
    def writer(self, context: SinkContext) -> Writer:
        """Open a writer of the sink for a run; the suite closes it.

        :param context: ledger, pipeline and epoch of the run
        """

    def committer(self, context: SinkContext) -> Committer | None:  # noqa: ARG002  # for a two-phase sink
        """Open the committer of a two-phase sink for a run; None if the sink's writer commits itself.

        :param context: ledger, pipeline and epoch of the run
        """
        return None

    @abstractmethod
    def target(self) -> list[int]:
        """Return the ids in the target, sorted and with repetitions."""

    @abstractmethod
    def dead_letters(self, context: SinkContext) -> list[StoredDeadLetter]:
        """Return the stored dead letters of a pipeline whose batches have a receipt, ordered by position.

        :param context: ledger and pipeline
        """


class FailingHeaders(Mapping[str, str]):
    """Headers of a dead letter that raise :class:`MemoryError` when a writer reads them, in the middle of a batch."""

    def __getitem__(self, name: str) -> str:
        raise MemoryError

    def __iter__(self) -> Iterator[str]:
        raise MemoryError

    def __len__(self) -> int:
        raise MemoryError


class Run:
    """Run of a pipeline under one epoch, with a sink and a writer of its own; a context manager that closes both.

    :param harness: harness of the sink
    :param epoch: epoch of the run
    :param ledger: id of the ledger
    :param pipeline: name of the pipeline
    """

    def __init__(self, harness: SinkHarness, epoch: int, ledger: str = LEDGER, pipeline: str = "orders") -> None:
        self._closing = ExitStack()
        self.context = SinkContext(ledger, pipeline, epoch)
        self.sink = self._closing.enter_context(closing(harness.sink(self.context)))
        self.writer = self._closing.enter_context(closing(harness.writer(self.context)))
        self._committer = harness.committer(self.context)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def take_over(self) -> Self:
        """Check the sink, create its bookkeeping and raise its fence, as a run does first; return this object."""
        self.sink.check()
        self.sink.create_bookkeeping()
        self.sink.fence(self.context.epoch)
        return self

    def send(self, task: BatchTask, content: BatchContent) -> Outcome:
        """Deliver a batch until it has a verdict, and return the outcome; refused rows become dead letters.

        :param task: the batch
        :param content: its rows and dead letters
        """
        return self.commit(LaneWriter(self.writer, originals).deliver(task, content))

    def commit(self, outcome: Outcome) -> Outcome:
        """Return the final outcome of a batch; for a two-phase sink, commit the staged batch first.

        :param outcome: the outcome that the writer returned
        """
        if outcome.outcome is not AttemptOutcome.STAGED:
            return outcome
        assert self._committer is not None
        (final,) = self._committer.commit([outcome])
        return final

    def receipts(self, known: Mapping[str, KnownReceipts] | None = None) -> list[Receipt]:
        """Return the receipts in the sink that the ledger does not know.

        :param known: by partition, the position up to which the ledger knows all receipts; None if the ledger knows no
            receipts
        """
        return list(self.sink.receipts(known or {}))


def task(
    seq: int,
    *,
    attempt: int = 1,
    generation: int = 1,
    partition: str = "main",
    instruction: Instruction = Instruction.DELIVER,
) -> BatchTask:
    """Return a batch of ten positions.

    :param seq: number of the batch, which determines its positions
    :param attempt: number of the attempt
    :param generation: generation of the partition
    :param partition: id of the partition
    :param instruction: verdict that the writer is to claim
    """
    error = ErrorInfo(ErrorType.RETRY_EXHAUSTED, "given up") if instruction is Instruction.REJECT else None
    span = Range(seq * SIZE, (seq + 1) * SIZE)
    return BatchTask(BatchKey(generation, partition, seq), span, attempt, instruction, 1000, error=error)


def ids(*seqs: int) -> list[int]:
    """Return the ids of all records of some batches.

    :param seqs: numbers of the batches
    """
    return [number for seq in seqs for number in range(seq * SIZE, (seq + 1) * SIZE)]


def dead_letter(position: int, error: ErrorInfo = BAD) -> DeadLetter:
    """Return a dead letter whose bytes are not valid text.

    :param position: position of its record
    :param error: its error
    """
    return DeadLetter(position, b"k\x00", NOT_UTF8 + str(position).encode(), error, {"source-file": "a\x00b"})


def content(seq: int, *, rejected: int = 0, filtered: int = 0) -> BatchContent:
    """Return a batch's content of ten records: the first ones rejected, the next ones filtered, the rest to deliver.

    :param seq: number of the batch
    :param rejected: number of records that are dead letters
    :param filtered: number of records that a filter excludes
    """
    positions = ids(seq)
    rows = pa.array(positions[rejected + filtered :], pa.int64())
    dead_letters = [dead_letter(position) for position in positions[:rejected]]
    return BatchContent(pa.table({ROW_NUMBER: rows, "id": rows}), dead_letters, SIZE, filtered)


def all_rejected(seq: int) -> BatchContent:
    """Return the content of a batch all of whose records are dead letters.

    :param seq: number of the batch
    """
    return content(seq, rejected=SIZE)


def no_records() -> BatchContent:
    """Return the content of a batch without records."""
    empty = pa.array([], pa.int64())
    return BatchContent(pa.table({ROW_NUMBER: empty, "id": empty}), [], 0, 0)


def originals(errors: Mapping[int, ErrorInfo]) -> list[DeadLetter]:
    """Return the dead letters of refused rows, as a lane creates them from its source.

    :param errors: errors of the refused rows, by row number
    """
    return [dead_letter(position, error) for position, error in errors.items()]
