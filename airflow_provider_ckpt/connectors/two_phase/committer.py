"""Second phase of a two-phase sink: commit the batches of a wave together, and return the outcome of each.

Only the table itself is trusted. Each try opens the newest version of the table, checks the receipts and the epoch in
it, and commits the batches that have no receipt as the version right after it. The next try finds out by the receipts
whether the commit worked, so a commit that lost the race against another writer, a failed commit, and a commit that
succeeded with an error are handled alike.

In a refresh (``sink.mode: replace``) a commit has only the receipts, which describe the staged files;
``replacement.py`` adds the files to the table when all are staged.

A staged file is removed only if no commit of this wave ever named it: a named file may be part of a snapshot that is no
longer the newest, of a table that was renamed or dropped, or of a request that is still in transit. The table's own
maintenance removes the files that remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.refuse_fenced_run import name_batches
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.connectors.two_phase.commit_retries import CommitRetries
from airflow_provider_ckpt.connectors.two_phase.receipt_nodes import CommittedReceipt
from airflow_provider_ckpt.connectors.two_phase.receipts import ReceiptChain
from airflow_provider_ckpt.connectors.two_phase.restored_target import refuse_loss
from airflow_provider_ckpt.connectors.two_phase.staging import StagedBatch, StagedWave
from airflow_provider_ckpt.connectors.two_phase.version import TableOpener, TableVersion
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import CkptError, FencedError, IoError
from airflow_provider_ckpt.core.partition_order import StoppedPartitions
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.wave_messages import Outcome


class TableCommitter:
    """Committer of the batches that the lanes of one wave staged for a Delta or Iceberg table.

    In a pinned pipeline, the later batches of a partition are not attempted after one of its batches has failed, so
    that the order is preserved; otherwise batches are independent.

    :param pipeline: the pipeline
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param opener: opens the newest version of the table for each try
    """

    def __init__(self, pipeline: Pipeline, context: SinkContext, opener: TableOpener) -> None:
        self._pipeline = pipeline
        self._pinned = pipeline.pinned
        self._refreshes = pipeline.sink.replaces is not None
        self._opener = opener
        self._context = context
        self._receipts: ReceiptChain | None = None

    def commit(self, staged: Sequence[Outcome]) -> Sequence[Outcome]:
        """Commit the staged batches, and return the final outcome of each in the order given.

        See :meth:`.sink_protocol.Committer.commit`.
        """
        with closing(self._opener):
            return self._commit(StagedWave(staged))

    def _commit(self, wave: StagedWave) -> Sequence[Outcome]:
        contention = CommitRetries(self._pipeline, self._opener.target)
        try:
            while True:
                version = self._settle_committed(wave)
                self._refuse_misfits(wave, version)
                if not wave.waiting:
                    return wave.outcomes
                contention.refuse_if_over()
                contention.count_try(succeeded=self._attempt(wave, version))
        except FencedError:
            raise
        except CkptError as error:
            for index in list(wave.waiting):
                wave.failed(index, error)
        return wave.outcomes

    def _settle_committed(self, wave: StagedWave) -> TableVersion:
        """Open the newest version of the table, record the outcomes of batches with a receipt in it, and return it.

        Batches without a receipt keep waiting for a commit (:attr:`.StagedWave.waiting`).

        :param wave: the wave
        :raises FencedError: if batches are still waiting and the table's fence is at a newer epoch
        """
        version = self._opener.open(wave.schema)
        refuse_loss(version, self._chain(version))
        keys = {wave[index].key for index in wave.waiting}
        found = {entry.receipt.key: entry for entry in self._chain(version).find(version.head, keys)}
        version.publish(list(found.values()))
        for index, staged in list(wave.waiting.items()):
            entry = found.get(wave[index].key)
            if entry is None:
                continue
            same_attempt = (entry.receipt.epoch, entry.receipt.attempt) == (self._context.epoch, wave[index].attempt)
            if entry.file != staged.name:
                self._discard(wave, index, staged, version, dead_letters=not same_attempt)
            wave.receipted(index, entry.receipt, own=same_attempt and entry.file == staged.name)
        try:
            if wave.waiting:
                version.refuse_unless_current(self._context.epoch)
        except FencedError as error:
            name_batches(error, [wave[index].key for index in wave.waiting])
            for index, staged in wave.waiting.items():
                self._discard(wave, index, staged, version)
            raise
        return version

    def _discard(
        self, wave: StagedWave, index: int, staged: StagedBatch, version: TableVersion, *, dead_letters: bool = True
    ) -> None:
        """Remove the staged files of a batch, unless some commit of this wave contained them, even one that failed.

        :param wave: the wave
        :param index: index of the batch in the wave
        :param staged: the staged batch
        :param version: the newest version of the table
        :param dead_letters: whether to remove the file of dead letters, too
        """
        files = staged.data(version.layout.table)
        if dead_letters and staged.dead_letters:
            outcome = wave[index]
            files.append(version.layout.dead_letters.file(outcome.key, outcome.attempt, self._context.epoch))
        wave.discard(index, files)

    def _chain(self, version: TableVersion) -> ReceiptChain:
        self._receipts = self._receipts or ReceiptChain(version.layout)
        return self._receipts

    def _refuse_misfits(self, wave: StagedWave, version: TableVersion) -> None:
        stopped = StoppedPartitions(pinned=self._pinned, failed=wave.failed_keys)
        for index, staged in list(wave.waiting.items()):
            if wave[index].key in stopped:
                wave.not_attempted(index)
            else:
                try:
                    _refuse_missing_files(staged, version)
                    version.refuse_misfit(staged)
                    continue
                except CkptError as error:
                    wave.failed(index, error)
                    stopped.add(wave[index].key)
            self._discard(wave, index, staged, version)

    def _attempt(self, wave: StagedWave, version: TableVersion) -> bool:
        """Commit all waiting batches in one commit; return False if another writer committed first, or may have.

        The batches keep waiting: their receipts in the newest version, which the caller opens next, show the result.

        :param wave: the wave
        :param version: the newest version of the table
        """
        chosen: dict[BatchKey, int] = {}
        for index in wave.waiting:
            # One outcome of each batch is committed; a second outcome of the batch finds that one's receipt later.
            chosen.setdefault(wave[index].key, index)
        at = datetime.now(UTC)
        entries = [self._entry(wave[index], wave.waiting[index], at) for index in chosen.values()]
        number = self._chain(version).append(version.head, entries, version=version.next_number)
        wave.attempted |= set(chosen.values())
        note = {
            "pipeline": self._context.pipeline,
            "epoch": self._context.epoch,
            "batches": [str(key) for key in chosen],
        }
        added = [wave.waiting[index] for key, index in chosen.items() if not self._only_stages(key)]
        return version.commit(added, self._context.epoch, number, note)

    def _only_stages(self, key: BatchKey) -> bool:
        """Return whether a batch belongs to a refresh, so that its rows wait until the refresh is published.

        :param key: key of the batch
        """
        return self._refreshes and not key.is_side_partition

    def _entry(self, outcome: Outcome, staged: StagedBatch, at: datetime) -> CommittedReceipt:
        receipt = Receipt(
            outcome.key,
            staged.range,
            staged.verdict,
            self._context.epoch,
            outcome.attempt,
            staged.counts,
            at,
            staged.bound,
            staged.positions,
        )
        return CommittedReceipt(
            receipt, staged.name, staged=staged.for_refresh if self._only_stages(receipt.key) else None
        )


def _refuse_missing_files(staged: StagedBatch, version: TableVersion) -> None:
    for path in staged.data(version.layout.table):
        if path.size() is None:
            raise IoError(
                f"the staged file {path} no longer exists.",
                is_outage=True,
                hint="The batch is sent again. If VACUUM or a removal of orphan files cleans the table up, use a "
                "retention that is longer than a run.",
            )
