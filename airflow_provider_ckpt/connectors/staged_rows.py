"""Check the rows that a refresh has staged in a table of the target's database against the receipts of its batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import SinkError
from airflow_provider_ckpt.core.receipt import Receipt
from airflow_provider_ckpt.core.refresh import missing_ranges
from airflow_provider_ckpt.core.wave_messages import BatchTask

_INCOMPLETE_HINT = "Nothing was published. Run again: the next run begins a new refresh."


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Receipts of the batches that staged the rows of one refresh.

    :param receipts: the receipts, without that of the batch that publishes the refresh
    """

    receipts: Sequence[Receipt]

    @classmethod
    def of(cls, receipts: Iterable[Receipt], key: BatchKey) -> Self:
        """Return the staged rows of a refresh.

        :param receipts: the receipts of the refresh's generation and partition
        :param key: the batch that publishes the refresh
        """
        return cls([receipt for receipt in receipts if receipt.key != key])

    @property
    def count(self) -> int:
        """Number of staged rows."""
        return sum(receipt.counts.delivered for receipt in self.receipts)

    def covers(self, rows_end: int) -> bool:
        """Return whether batches that were staged or rejected cover every position before ``rows_end``.

        :param rows_end: position after the last one that may contain rows
        """
        return not missing_ranges(self.receipts, rows_end)

    def refuse_missing(self, task: BatchTask, pipeline: str) -> None:
        """Raise an error if a position before the publishing batch has no receipt of a staged or rejected batch.

        :param task: the batch that publishes; the positions before its range contain the rows
        :param pipeline: the pipeline's name, for the error
        :raises SinkError: with the first missing positions
        """
        missing = missing_ranges(self.receipts, task.range.start)
        if missing:
            reason = f"positions {', '.join(map(str, missing[:3]))} of it are not staged"
            raise incomplete_error(task, reason, pipeline)

    def refuse_lost(self, task: BatchTask, held: int, pipeline: str) -> None:
        """Raise an error if the staging table's number of rows differs from the number that the receipts count.

        :param task: the batch that publishes
        :param held: number of rows in the staging table
        :param pipeline: the pipeline's name, for the error
        :raises SinkError: with both numbers
        """
        if held != self.count:
            reason = f"its receipts count {self.count:,} rows, and {held:,} are staged"
            raise incomplete_error(task, reason, pipeline)

    def refuse_other_rows(self, task: BatchTask, published: int, place: str, pipeline: str) -> None:
        """Raise an error if the number of rows in the target after the publication would differ from the staged rows.

        :param task: the batch that publishes
        :param published: number of rows that the target would have
        :param place: name of the target
        :param pipeline: the pipeline's name, for the error
        :raises SinkError: with both numbers
        """
        if published != self.count:
            raise SinkError(
                f"publishing {task.key} to {place}: {self.count:,} rows were staged, and the target would have "
                f"{published:,}.",
                pipeline=pipeline,
                batch=str(task.key),
                hint="A trigger of the target drops or adds rows. Change it, or write sink.rows_may_differ: true.",
            )


def incomplete_error(task: BatchTask, reason: str, pipeline: str) -> SinkError:
    """Return the error of a refresh that cannot be published, since not all of its rows are staged.

    :param task: the batch that publishes
    :param reason: the reason, as a part of the message such as ``its staging table does not exist``
    :param pipeline: the pipeline's name
    """
    return SinkError(
        f"the refresh {task.key} is not complete: {reason}.",
        pipeline=pipeline,
        batch=str(task.key),
        hint=_INCOMPLETE_HINT,
    )
