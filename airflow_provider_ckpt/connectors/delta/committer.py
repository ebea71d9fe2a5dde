"""Delta sink, second phase: commits what the lanes staged, one Delta commit a wave, and says what became of each batch.

The table alone is believed. Each turn opens a fresh handle, checks on it the receipts and the epoch, and commits what
is still missing as that handle's very next version; the next turn finds out whether that worked. So a lost race, a
crash anywhere, and an error after the commit are one case. A file is removed only when the table shows that its batch
went another way, never while the fate of a commit is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.delta.column_types import misfit_error, misfits
from airflow_provider_ckpt.connectors.delta.fence import TRIES, refuse_unless_current
from airflow_provider_ckpt.connectors.delta.layout import Layout
from airflow_provider_ckpt.connectors.delta.receipts import Entry, Receipts
from airflow_provider_ckpt.connectors.delta.staged import Staged, StagedWave, discard
from airflow_provider_ckpt.connectors.files.local import io_error, local_path
from airflow_provider_ckpt.connectors.protocols import Connection, SinkContext
from airflow_provider_ckpt.core.batch import BatchKey, Receipt
from airflow_provider_ckpt.core.errors import CkptError, ConfigError, FencedError, IoError, SinkError
from airflow_provider_ckpt.core.wave import Outcome

if TYPE_CHECKING:
    from deltalake import DeltaTable


class DeltaCommitter:
    """Commits staged batches; see the module.

    In a pinned pipeline a partition's later batches are not attempted after one that failed, so its order is kept;
    otherwise each batch stands for itself.
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._pinned = pipeline.pinned
        self._context = context
        path = local_path(pipeline.sink.path or "", "sink.path", connection)
        self._layout = Layout(path, context.ledger, context.pipeline)
        self._receipts = Receipts(self._layout)

    def commit(self, staged: Sequence[Outcome]) -> Sequence[Outcome]:
        """Commit, and give the final outcome of each, in the order given; see :class:`Committer`."""
        wave = StagedWave(staged)
        try:
            for _ in range(TRIES):
                table, head = self._look(wave)
                self._refuse_misfits(wave, table)
                if not wave.waiting:
                    return wave.outcomes
                self._attempt(wave, table, head)
            self._look(wave)
            if wave.waiting:
                raise SinkError(f"other writers took {TRIES} versions of {self._layout.table}.", recoverable=True)
        except FencedError:
            raise
        except CkptError as error:
            for index in list(wave.waiting):
                wave.failed(index, error)
        return wave.outcomes

    def _look(self, wave: StagedWave) -> tuple[DeltaTable, int | None]:
        """A fresh handle, with receipts settled and no newer epoch if anything still waits; and the receipts' head."""
        table = self._open(wave)
        head = table.transaction_version(self._layout.receipts_app)
        found = self._receipts.find(head, {wave[index].key for index in wave.waiting})
        for index, staged in list(wave.waiting.items()):
            entry = found.get(wave[index].key)
            if entry is None:
                continue
            same_attempt = (entry.receipt.epoch, entry.receipt.attempt) == (self._context.epoch, wave[index].attempt)
            if entry.file != staged.name:
                discard(staged.paths(self._layout.table, letters=not same_attempt))
            wave.receipted(index, entry.receipt, ours=same_attempt and entry.file == staged.name)
        try:
            if wave.waiting:
                refuse_unless_current(self._layout, table, self._context.epoch)
        except FencedError:
            for staged in wave.waiting.values():  # no receipt, and none can come any more
                discard(staged.paths(self._layout.table))
            raise
        return table, head

    def _open(self, wave: StagedWave) -> DeltaTable:
        table = delta_table.load(self._layout.table)
        if table is not None:
            return table
        refuse_unless_current(self._layout, None, self._context.epoch)
        schema = wave.schema
        if schema is None:
            raise ConfigError(
                f"there is no Delta table at {self._layout.table} yet, and no batch has columns to create it from.",
                hint="Create the table, or let a batch with rows go first.",
            )
        delta_table.create(self._layout.table, schema, {self._layout.epoch_app: self._context.epoch})
        table = delta_table.load(self._layout.table)
        if table is None:
            raise SinkError(f"the Delta table {self._layout.table} was removed while it was being written.")
        return table

    def _refuse_misfits(self, wave: StagedWave, table: DeltaTable) -> None:
        stopped = wave.failed_partitions if self._pinned else set()
        for index, staged in list(wave.waiting.items()):
            problem = self._problem(staged, table)
            if wave[index].key.partition in stopped:
                wave.not_attempted(index)
            elif problem is not None:
                wave.failed(index, problem)
                if self._pinned:
                    stopped.add(wave[index].key.partition)
            else:
                continue
            discard(staged.paths(self._layout.table))

    def _problem(self, staged: Staged, table: DeltaTable) -> CkptError | None:
        if staged.file is None or staged.schema is None:
            return None
        path = self._layout.table / staged.file.name
        if not path.is_file():
            return IoError(f"the staged file {path} is gone.", hint="The batch is sent again.")
        problems = misfits(table, staged.schema)
        return misfit_error(self._layout.table, problems) if problems else None

    def _attempt(self, wave: StagedWave, table: DeltaTable, head: int | None) -> None:
        """One commit of all that waits. Whether it worked, the next look says."""
        from deltalake.exceptions import DeltaError

        chosen: dict[BatchKey, int] = {}
        for index in wave.waiting:
            chosen.setdefault(wave[index].key, index)  # a twin of the same batch will find this one's receipt
        at = datetime.now(UTC)
        entries = [self._entry(wave[index], wave.waiting[index], at) for index in chosen.values()]
        try:
            number = self._receipts.append(head, entries)
        except OSError as error:
            raise io_error(error, f"write receipts in {self._layout.table}") from error
        wave.attempted |= set(chosen.values())
        files = [wave.waiting[index].file for index in chosen.values()]
        note = {
            "pipeline": self._layout.pipeline,
            "epoch": self._context.epoch,
            "batches": [str(key) for key in chosen],
        }
        try:
            delta_table.commit(
                table,
                self._layout.table,
                [file.add() for file in files if file is not None],
                {self._layout.epoch_app: self._context.epoch, self._layout.receipts_app: number},
                {"ckpt": note},
            )
        except (DeltaError, OSError) as error:
            if not delta_table.moved(table, self._layout.table):
                raise delta_table.delta_error(error, f"commit to the Delta table {self._layout.table}") from error

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
        )
        return Entry(receipt, staged.name)
