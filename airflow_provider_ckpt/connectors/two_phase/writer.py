"""First phase of a two-phase sink: a lane stages each batch durably, as data files and a file of dead letters.

Staged files are not part of the table until the commit (``committer.py``); readers ignore files that are never
committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter, record_error
from airflow_provider_ckpt.connectors.dead_letter_retries import store_dead_letters
from airflow_provider_ckpt.connectors.refuse_fenced_run import naming_batch
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, Refused, SinkContext
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.connectors.sum_identity import checked_counts
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.connectors.two_phase.staging import StagedBatch, remove_files
from airflow_provider_ckpt.connectors.two_phase.version import TableVersion
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import CkptError, ErrorInfo, ErrorType, FencedError
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome

if TYPE_CHECKING:
    import pyarrow as pa

_NOT_NULL = "23502"

V = TypeVar("V", bound=TableVersion)


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Data files that were written for a batch; the fields have the same meaning as in :class:`StagedBatch`."""

    name: str | None = None
    files: Sequence[Mapping[str, Any]] = ()
    schema: str | None = None


class TableWriter(ABC, Generic[V]):
    """Writing side of a two-phase sink in one lane, which stages batches; the subclass writes the format's data files.

    :param pipeline: the pipeline
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    def __init__(self, pipeline: Pipeline, context: SinkContext) -> None:
        self._pipeline = pipeline
        self._context = context
        self._receipts: ReceiptChain | None = None

    @abstractmethod
    def _open_version(self) -> V:
        """Return the version of the table whose receipts, epoch and columns the next batch is checked against."""

    @abstractmethod
    def _convert_rows(self, rows: pa.Table, version: V) -> pa.Table:
        """Convert rows to the table's column types.

        :param rows: rows with their numbers
        :param version: the table
        :raises ConfigError: if the columns do not fit the table
        """

    @abstractmethod
    def _record_errors(self, rows: pa.Table, version: V) -> dict[int, ErrorInfo]:
        """Return the errors of rows that the table cannot store, by row number.

        :param rows: rows with their numbers
        :param version: the table
        """

    @abstractmethod
    def _write(self, task: BatchTask, rows: pa.Table, version: V, written: list[Location]) -> WrittenFiles:
        """Write the rows of a batch durably as data files; if there are no rows, only the columns are described.

        :param task: the batch and its attempt
        :param rows: rows without their numbers
        :param version: the table
        :param written: list to which each file's path is added before the file is written
        """

    @naming_batch
    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome | Refused:
        """Stage a batch; if the batch has a receipt already, return the receipt's verdict instead.

        See :meth:`.sink_protocol.Writer.deliver`.

        :param task: the batch and its attempt
        :param content: the batch's rows and dead letters
        :return: the outcome: ``staged``, the receipt's verdict, or ``failed`` with the error; or the errors of the rows
            that the table cannot store, after which nothing is staged
        :raises FencedError: if the fence is at a newer epoch
        """
        try:
            version = self._open_version()
            version.refuse_unless_current(self._context.epoch)
            self._receipts = self._receipts or ReceiptChain(version.layout)
            entry = next(self._receipts.find(version.head, [task.key]), None)
            if entry is not None:
                version.publish([entry])
                outcome = AttemptOutcome(entry.receipt.verdict.value)
                return Outcome(task.key, task.attempt, outcome, entry.receipt, receipt_existed=True)
            return self._stage(task, content, version)
        except FencedError:
            raise
        except CkptError as error:
            return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=error.info)

    def close(self) -> None:
        """Do nothing: no file is held open."""

    def _stage(self, task: BatchTask, content: BatchContent, version: V) -> Outcome | Refused:
        counts = checked_counts(content, task, self._pipeline.dead_letter_queue)
        rows = self._convert_rows(content.rows, version)
        errors = self._record_errors(rows, version) if rows.num_rows else {}
        if errors:
            return Refused(errors)
        dead_letters = sorted(content.dead_letters, key=lambda dead_letter: dead_letter.position)
        written: list[Location] = []
        try:
            data = WrittenFiles()
            if rows.num_columns > 1:
                data = self._write(task, rows.drop_columns([ROW_NUMBER]), version, written)
            # Dead letters come last, and are never removed: the receipt of a duplicate of this attempt may name them.
            if dead_letters:
                self._write_dead_letters(task, dead_letters, version)
        except BaseException:
            remove_files(written)
            raise
        staged = StagedBatch(
            task.range,
            task.bound,
            task.instruction.verdict,
            counts,
            data.name,
            data.files,
            bool(dead_letters),
            data.schema,
            content.positions,
        )
        return staged.outcome(task, Counter(dead_letter.error.type.value for dead_letter in dead_letters))

    def _write_dead_letters(self, task: BatchTask, dead_letters: list[DeadLetter], version: V) -> None:
        store = partial(version.layout.dead_letters.write, task, self._context, dead_letters)
        store_dead_letters(store, dead_letters, task, self._pipeline.dead_letter_queue)


def null_errors(rows: pa.Table, names: Iterable[str]) -> dict[int, ErrorInfo]:
    """Return the errors of rows that have a null in a column that may not be null, by row number.

    :param rows: rows with their numbers
    :param names: columns that may not be null
    """
    import pyarrow.compute as pc

    errors: dict[int, ErrorInfo] = {}
    for name in names:
        column = rows.column(name)
        if column.null_count:
            message = f"column {name} is NULL, and the table declares it NOT NULL"
            for number in rows.column(ROW_NUMBER).filter(pc.is_null(column)).to_pylist():
                errors[number] = record_error(ErrorType.SINK, message, _NOT_NULL)
    return errors
