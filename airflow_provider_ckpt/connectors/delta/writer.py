"""Delta sink, writing half: a lane stages each batch as one data file and one file of dead letters, both durable.

Nothing staged is part of the table until :class:`DeltaCommitter` commits it; what never gets there is ignored by every
reader and removed by the table's next VACUUM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.content import Content, DeadLetter, data_error
from airflow_provider_ckpt.connectors.delta import table as delta_table
from airflow_provider_ckpt.connectors.delta.column_types import for_delta, misfit_error, misfits
from airflow_provider_ckpt.connectors.delta.fence import refuse_unless_current
from airflow_provider_ckpt.connectors.delta.layout import Layout
from airflow_provider_ckpt.connectors.delta.receipts import Receipts
from airflow_provider_ckpt.connectors.delta.staged import DataFile, Staged, discard, schema_text
from airflow_provider_ckpt.connectors.delta.stats import statistics
from airflow_provider_ckpt.connectors.files.local import (
    io_error,
    local_path,
    make_directory,
    sync_directory,
    sync_file,
)
from airflow_provider_ckpt.connectors.protocols import POSITION, Connection, SinkContext
from airflow_provider_ckpt.core.batch import AttemptOutcome, Instruction, Verdict
from airflow_provider_ckpt.core.errors import (
    CkptError,
    ErrorInfo,
    ErrorType,
    FencedError,
    SinkError,
)
from airflow_provider_ckpt.core.wave import BatchTask, Outcome

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

_VERDICTS = {
    Instruction.DELIVER: Verdict.DELIVERED,
    Instruction.REJECT: Verdict.REJECTED,
    Instruction.VOID: Verdict.VOID,
}
_NOT_NULL = "23502"


class DeltaWriter:
    """Stages batches; see the module.

    :param pipeline: ``sink.path`` names the table
    """

    def __init__(self, pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> None:
        self._pipeline = pipeline
        self._context = context
        path = local_path(pipeline.sink.path or "", "sink.path", connection)
        self._layout = Layout(path, context.ledger, context.pipeline)
        self._receipts = Receipts(self._layout)
        self._table: DeltaTable | None = None

    def deliver(self, task: BatchTask, content: Content) -> Outcome:
        """Stage the batch, unless it has its receipt already; see :class:`Writer`."""
        try:
            table = self._fresh()
            refuse_unless_current(self._layout, table, self._context.epoch)
            head = table.transaction_version(self._layout.receipts_app) if table else None
            entry = self._receipts.find(head, [task.key]).get(task.key)
            if entry is not None:
                outcome = AttemptOutcome(entry.receipt.verdict.value)
                return Outcome(task.key, task.attempt, outcome, entry.receipt, found=True)
            return self._stage(task, content, table)
        except FencedError:
            raise
        except CkptError as error:
            return Outcome(task.key, task.attempt, AttemptOutcome.FAILED, error=error.info)

    def close(self) -> None:
        """Nothing is held open."""

    def _fresh(self) -> DeltaTable | None:
        path = self._layout.table
        self._table = delta_table.load(path) if self._table is None else delta_table.refresh(self._table, path)
        return self._table

    def _stage(self, task: BatchTask, content: Content, table: DeltaTable | None) -> Outcome:
        rows, letters = for_delta(content.rows), list(content.letters)
        if table is not None and rows.num_rows:
            problems = misfits(table, rows.schema.remove(rows.schema.get_field_index(POSITION)))
            if problems:
                raise misfit_error(self._layout.table, problems)
            errors = _nulls(rows, delta_table.required(table))
            if errors:
                rows = _without(rows, errors)
                letters = sorted([*letters, *content.original(errors)], key=lambda letter: letter.position)
        counts = content.counts(len(letters) - len(content.letters))
        if not counts.balanced:
            raise SinkError(
                f"SumIdentity: of {counts.read} records read, {counts.delivered} are to be delivered, "
                f"{counts.filtered} were filtered and {counts.dead_lettered} dead-lettered; nothing was sent.",
                batch=str(task.key),
            )
        data = rows.drop_columns([POSITION]) if rows.num_columns > 1 else None
        written: list[Path] = []
        try:
            letters_file = self._write_letters(task, letters, written) if letters else None
            file = self._write_rows(task, data, written) if data is not None and data.num_rows else None
        except CkptError:
            discard(written)
            raise
        staged = Staged(
            task.range,
            task.bound,
            _VERDICTS[task.instruction],
            counts,
            file,
            letters_file,
            schema_text(data.schema) if data is not None else None,
        )
        return staged.outcome(task, Counter(letter.error.type.value for letter in letters))

    def _write_rows(self, task: BatchTask, rows: pa.Table, written: list[Path]) -> DataFile:
        import pyarrow.parquet as pq

        path = self._layout.new_data_file(task.key, task.attempt, self._context.epoch)
        written.append(path)
        try:
            make_directory(path.parent)
            pq.write_table(rows, path, compression="zstd", store_schema=False)
            sync_file(path)
            sync_directory(path.parent)
            metadata = pq.read_metadata(path)
            status = path.stat()
        except OSError as error:
            raise io_error(error, f"write {path}") from error
        return DataFile(path.name, status.st_size, int(status.st_mtime * 1000), statistics(metadata, rows.schema))

    def _write_letters(self, task: BatchTask, letters: list[DeadLetter], written: list[Path]) -> str:
        retries = self._pipeline.dead_letter_queue.max_dlq_retries
        path = self._layout.letters.write(task, self._context, letters, retries)
        written.append(path)
        return str(path)


def _nulls(rows: pa.Table, names: list[str]) -> dict[int, ErrorInfo]:
    import pyarrow.compute as pc

    errors: dict[int, ErrorInfo] = {}
    for name in names:
        column = rows.column(name)
        if column.null_count:
            message = f"column {name} is NULL, and the Delta table declares it NOT NULL"
            for position in rows.column(POSITION).filter(pc.is_null(column)).to_pylist():
                errors[position] = data_error(ErrorType.SINK, message, _NOT_NULL)
    return errors


def _without(rows: pa.Table, errors: Mapping[int, ErrorInfo]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    return rows.filter(pc.invert(pc.is_in(rows.column(POSITION), pa.array(list(errors), pa.int64()))))
