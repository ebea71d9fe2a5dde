"""Writing side of the files sink: stage a batch's rows as a file, claim the batch, and publish the file."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.dead_letter_retries import store_dead_letters
from airflow_provider_ckpt.connectors.files.fence import refuse_unless_current
from airflow_provider_ckpt.connectors.files.layout import FilesLayout
from airflow_provider_ckpt.connectors.files.receipts import ClaimedReceipt, FilesReceipts
from airflow_provider_ckpt.connectors.files.staging import discard, publish, stage
from airflow_provider_ckpt.connectors.refuse_fenced_run import naming_batch
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, SinkContext
from airflow_provider_ckpt.connectors.sum_identity import checked_counts
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import CkptError, FencedError
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome


class FilesWriter:
    """Writing side of the files sink in one lane; see :class:`~.sink_protocol.Writer`.

    :param pipeline: ``sink.path`` names the directory, ``sink.format`` the format of its files
    :param connection: the Airflow connection, whose path is prefixed to a relative ``sink.path``
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._queue = pipeline.dead_letter_queue
        self._context = context
        self._target = FilesLayout.of(pipeline, connection, context)
        self._receipts = FilesReceipts(self._target)

    @naming_batch
    def deliver(self, task: BatchTask, content: BatchContent) -> Outcome:
        """Write a batch's file, claim its verdict and publish the file; see :meth:`Writer.deliver`.

        If the batch has a receipt already, only the file that the receipt names is published, if it is not yet. An
        error becomes the outcome ``failed``.

        :raises FencedError: if the fence is at a newer epoch
        """
        try:
            refuse_unless_current(self._target, self._context.epoch)
            entry = self._receipts.find(task.key)
            if entry is not None:
                publish(self._target, entry)
                return _outcome(task, entry, found=True)
            return self._deliver(task, content)
        except FencedError:
            raise
        except CkptError as error:
            return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=error.info)

    def close(self) -> None:
        """Do nothing: no file is held open."""

    def _deliver(self, task: BatchTask, content: BatchContent) -> Outcome:
        counts = checked_counts(content, task, self._queue)
        # They are never removed: a duplicate of this task may have claimed the batch for the same attempt.
        if content.dead_letters:
            store = partial(self._target.dead_letters.write, task, self._context, content.dead_letters)
            store_dead_letters(store, content.dead_letters, task, self._queue)
        name = None
        if content.rows.num_rows:
            name = self._target.new_file(task.key, self._context.epoch)
            stage(self._target, name, content.rows.drop_columns([ROW_NUMBER]))
        receipt = Receipt(
            task.key,
            task.range,
            task.instruction.verdict,
            self._context.epoch,
            task.attempt,
            counts,
            datetime.now(UTC),
            task.bound,
            content.positions,
        )
        entry, own = self._receipts.claim(receipt, name)
        if not own and name is not None:
            discard(self._target, name)
        publish(self._target, entry)
        if not own:
            return _outcome(task, entry, found=True)
        dead_letters = Counter(dead_letter.error.type.value for dead_letter in content.dead_letters)
        return replace(_outcome(task, entry, found=False), dead_letters=dead_letters)


def _outcome(task: BatchTask, entry: ClaimedReceipt, *, found: bool) -> Outcome:
    return Outcome(
        task.key, task.attempt, AttemptOutcome(entry.receipt.verdict.value), entry.receipt, receipt_existed=found
    )
