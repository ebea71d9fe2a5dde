"""Replace all rows of a table by those of a refresh: one commit removes the live files and adds the staged ones.

Each try opens the newest version of the table, looks there for the batch's receipt and the epoch, decides by the rows
of that version whether a user has to be asked, and commits the version right after it. If another writer commits in
between, the next try decides again. So the rows of every version that is replaced have been counted.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.two_phase.commit_retries import CommitRetries
from airflow_provider_ckpt.connectors.two_phase.receipt_nodes import CommittedReceipt
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.connectors.two_phase.replaceable_version import ReplaceableVersion
from airflow_provider_ckpt.connectors.two_phase.restored_target import refuse_loss
from airflow_provider_ckpt.connectors.two_phase.staged_refresh import StagedRefresh, abandoned_batches
from airflow_provider_ckpt.connectors.two_phase.staging import remove_files
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import CkptError, FencedError, SinkError
from airflow_provider_ckpt.core.receipt import Counts, Receipt
from airflow_provider_ckpt.core.refresh import ReplaceLimits
from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome

log = logging.getLogger(__name__)


class ReplacesTable(ABC):
    """Methods of :class:`~.sink_protocol.ReplacingSink` for a two-phase sink; the subclass opens the table."""

    _pipeline: Pipeline
    _context: SinkContext

    @abstractmethod
    def _version(self) -> ReplaceableVersion | None:
        """Return the newest version of the table; None if there is no table."""

    def prepare_staging(self, epoch: int, generation: int, abandoned_from: int | None) -> None:
        """Remove the files that earlier refreshes have staged and not published; see :class:`ReplacingSink`.

        An empty commit comes first, so that no request that is still in transit can publish these files any more.

        :param epoch: epoch of the run
        :param generation: generation of the new refresh
        :param abandoned_from: first of the generations directly before it whose refresh was not published; None if
            there are none
        :raises FencedError: if the fence is at a newer epoch
        """
        retries: CommitRetries | None = None
        while True:
            version = self._version()
            if version is None or version.target is None:
                return
            version.refuse_unless_current(epoch)
            abandoned = abandoned_batches(version, ReceiptChain(version.layout), generation, abandoned_from)
            if not abandoned or version.head is None:
                return
            retries = retries or CommitRetries(self._pipeline, str(version.layout.table))
            retries.refuse_if_over()
            note = {"pipeline": self._context.pipeline, "epoch": epoch, "refresh": generation}
            committed = version.commit([], epoch, version.head, note)
            retries.count_try(succeeded=committed)
            if committed:
                break
        files = [file for batch in abandoned for file in batch.data(version.layout.table)]
        remove_files(files)
        log.info("%s: removed %s files of refreshes that were not published", self._context.pipeline, f"{len(files):,}")

    def row_counts(self, key: BatchKey) -> tuple[int, int]:
        """Return the number of rows that a refresh has staged, and that of the table; see :class:`ReplacingSink`.

        The number of staged rows is the sum of the counts in the refresh's receipts.

        Both are 0 if there is no table.

        :param key: the batch that publishes the refresh
        """
        version = self._version()
        if version is None or version.target is None:
            return 0, 0
        return StagedRefresh.of(version, ReceiptChain(version.layout), key).rows, version.row_count()

    def is_staged(self, key: BatchKey, rows_end: int) -> bool:
        """Return whether all rows of a refresh are staged and all its files are intact; see :class:`ReplacingSink`.

        :param key: the batch that publishes the refresh
        :param rows_end: position after all rows of the refresh; its receipts must cover every position before it
        """
        version = self._version()
        if version is None or version.target is None:
            return False
        return StagedRefresh.of(version, ReceiptChain(version.layout), key).defect(version, rows_end) is None

    def publish(self, task: BatchTask, epoch: int, limits: ReplaceLimits | None) -> Outcome:
        """Remove all files of the table and add the staged ones in one commit; see :class:`ReplacingSink`.

        :param task: the batch that publishes
        :param epoch: epoch of the run
        :param limits: limits beyond which nothing is published; None if a user has approved the refresh
        :return: the verdict and its receipt; ``not_attempted`` if a limit is exceeded; ``failed`` with the error
        :raises FencedError: if the fence is at a newer epoch
        """
        try:
            return self._publish(task, epoch, limits)
        except FencedError:
            raise
        except CkptError as error:
            return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=error.info)

    def _publish(self, task: BatchTask, epoch: int, limits: ReplaceLimits | None) -> Outcome:
        retries: CommitRetries | None = None
        while True:
            version = self._existing_version()
            receipts = ReceiptChain(version.layout)
            refuse_loss(version, receipts)
            found = next((entry.receipt for entry in receipts.find(version.head, [task.key])), None)
            if found is not None:
                own = retries is not None and (found.epoch, found.attempt) == (epoch, task.attempt)
                verdict = AttemptOutcome(found.verdict.value)
                return Outcome(task.key, task.attempt, verdict, found, receipt_existed=not own)
            version.refuse_unless_current(epoch)
            commit = self._commit(version, receipts, task, limits)
            if commit is None:
                return Outcome(task.key, task.attempt, AttemptOutcome.NOT_ATTEMPTED)
            retries = retries or CommitRetries(self._pipeline, str(version.layout.table))
            retries.refuse_if_over()
            receipt = Receipt(
                task.key, task.range, task.instruction.verdict, epoch, task.attempt, Counts(), datetime.now(UTC)
            )
            head = receipts.append(version.head, [CommittedReceipt(receipt, None)], version=version.next_number)
            retries.count_try(succeeded=commit(epoch, head))

    def _commit(
        self, version: ReplaceableVersion, receipts: ReceiptChain, task: BatchTask, limits: ReplaceLimits | None
    ) -> Callable[[int, int], bool] | None:
        """Return a function that commits the effect of the publishing batch; None if a limit is exceeded.

        The function replaces the rows of the table, or only commits the receipt if the batch's instruction is not
        ``deliver``. It takes the epoch and the number of the new receipt node, and returns False if another writer
        committed first.

        :param version: the newest version of the table
        :param receipts: the pipeline's receipts at the table
        :param task: the batch that publishes
        :param limits: limits beyond which nothing is published; None for no limit
        :raises SinkError: if the refresh is not complete
        """
        note = {"pipeline": self._context.pipeline, "batches": [str(task.key)]}
        if task.instruction is not Instruction.DELIVER:
            return lambda epoch, head: version.commit([], epoch, head, {**note, "epoch": epoch})
        refresh = StagedRefresh.of(version, receipts, task.key)
        defect = refresh.defect(version, task.range.start)
        if defect is not None:
            raise SinkError(
                f"the refresh {task.key} is not complete: {defect}.",
                pipeline=self._context.pipeline,
                batch=str(task.key),
                hint="Nothing was published. Run again: the next run begins a new refresh.",
            )
        if limits is not None and limits.refusal_reason(refresh.rows, version.row_count()) is not None:
            return None
        batches = refresh.batches
        return lambda epoch, head: version.replace(batches, epoch, head, {**note, "epoch": epoch})

    def _existing_version(self) -> ReplaceableVersion:
        version = self._version()
        if version is None or version.target is None:
            raise SinkError(
                "there is no table whose rows could be replaced, and no batch had rows from which to create it.",
                pipeline=self._context.pipeline,
                hint="Create the table, or run again when the source has rows.",
            )
        return version
