"""The second phase: commits what the lanes staged, one commit a wave, and says what became of each batch.

The table alone is believed. Each turn opens a fresh version, checks on it the receipts and the epoch, and commits what
is still missing as that version's very next; the next turn finds out whether that worked. So a lost race, a crash
anywhere, and an error after the commit are one case. A staged file is removed only if no commit of this wave ever named
it: one that was named may be part of a snapshot that is no longer the newest, of a table that was renamed or dropped,
or of a request that is still on its way. What is left behind is for the table's own maintenance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.local.filesystem import io_error
from airflow_provider_ckpt.connectors.protocols import SinkContext
from airflow_provider_ckpt.connectors.two_phase.contention import Contention
from airflow_provider_ckpt.connectors.two_phase.receipts import Entry, Receipts
from airflow_provider_ckpt.connectors.two_phase.set_back import refuse_set_back
from airflow_provider_ckpt.connectors.two_phase.staging import Staged, StagedWave
from airflow_provider_ckpt.connectors.two_phase.version import TableVersion
from airflow_provider_ckpt.core.batch import BatchKey, Receipt
from airflow_provider_ckpt.core.errors import CkptError, FencedError, IoError
from airflow_provider_ckpt.core.wave import Outcome


class TableCommitter(ABC):
    """Commits staged batches; see the module.

    In a pinned pipeline a partition's later batches are not attempted after one that failed, so its order is kept;
    otherwise each batch stands for itself.

    :param target: which table, for messages
    """

    def __init__(self, pipeline: Pipeline, context: SinkContext, target: str) -> None:
        self._pipeline = pipeline
        self._pinned = pipeline.pinned
        self._target = target
        self._context = context
        self._receipts: Receipts | None = None

    @abstractmethod
    def _open(self, wave: StagedWave) -> TableVersion:
        """The table as it is now, created if need be."""

    def commit(self, staged: Sequence[Outcome]) -> Sequence[Outcome]:
        """Commit, and give the final outcome of each, in the order given; see :class:`Committer`."""
        wave = StagedWave(staged)
        contention = Contention(self._pipeline, self._target)
        try:
            while True:
                version = self._look(wave)
                self._refuse_misfits(wave, version)
                if not wave.waiting:
                    return wave.outcomes
                contention.refuse_if_over()
                contention.tried(worked=self._attempt(wave, version))
        except FencedError:
            raise
        except CkptError as error:
            for index in list(wave.waiting):
                wave.failed(index, error)
        return wave.outcomes

    def _look(self, wave: StagedWave) -> TableVersion:
        """A fresh version, with receipts settled, and no newer epoch if anything still waits."""
        version = self._open(wave)
        refuse_set_back(version, self._chain(version))
        keys = {wave[index].key for index in wave.waiting}
        found = {entry.receipt.key: entry for entry in self._chain(version).find(version.head, keys)}
        for index, staged in list(wave.waiting.items()):
            entry = found.get(wave[index].key)
            if entry is None:
                continue
            same_attempt = (entry.receipt.epoch, entry.receipt.attempt) == (self._context.epoch, wave[index].attempt)
            if entry.file != staged.name:
                wave.discard(index, staged, version.layout.table, letters=not same_attempt)
            wave.receipted(index, entry.receipt, ours=same_attempt and entry.file == staged.name)
        try:
            if wave.waiting:
                version.refuse_unless_current(self._context.epoch)
        except FencedError:
            for index, staged in wave.waiting.items():
                wave.discard(index, staged, version.layout.table)
            raise
        return version

    def _chain(self, version: TableVersion) -> Receipts:
        self._receipts = self._receipts or Receipts(version.layout)
        return self._receipts

    def _refuse_misfits(self, wave: StagedWave, version: TableVersion) -> None:
        stopped = wave.failed_partitions if self._pinned else set()
        for index, staged in list(wave.waiting.items()):
            if wave[index].key.partition in stopped:
                wave.not_attempted(index)
            else:
                try:
                    _refuse_gone(staged, version)
                    version.refuse_misfit(staged)
                    continue
                except CkptError as error:
                    wave.failed(index, error)
                    if self._pinned:
                        stopped.add(wave[index].key.partition)
            wave.discard(index, staged, version.layout.table)

    def _attempt(self, wave: StagedWave, version: TableVersion) -> bool:
        """One commit of all that waits; False if it may not have worked. Whether it did, the next look says."""
        chosen: dict[BatchKey, int] = {}
        for index in wave.waiting:
            chosen.setdefault(wave[index].key, index)  # a twin of the same batch will find this one's receipt
        at = datetime.now(UTC)
        entries = [self._entry(wave[index], wave.waiting[index], at) for index in chosen.values()]
        try:
            number = self._chain(version).append(version.head, entries, version=version.following)
        except OSError as error:
            raise io_error(error, f"write receipts in {version.layout.table}") from error
        wave.attempted |= set(chosen.values())
        note = {
            "pipeline": self._context.pipeline,
            "epoch": self._context.epoch,
            "batches": [str(key) for key in chosen],
        }
        return version.commit([wave.waiting[index] for index in chosen.values()], self._context.epoch, number, note)

    def _entry(self, outcome: Outcome, staged: Staged, at: datetime) -> Entry:
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
        return Entry(receipt, staged.name)


def _refuse_gone(staged: Staged, version: TableVersion) -> None:
    for path in staged.data(version.layout.table):
        if not path.is_file():
            raise IoError(
                f"the staged file {path} is gone.",
                whole=True,
                hint="A clean-up that keeps too little removes files while a run is at work. The batch is sent again.",
            )
