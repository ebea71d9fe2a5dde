"""A batch with refused rows, whose transaction stays open until the writer is called again with the accepted rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.connectors.batch_content import BatchContent
    from airflow_provider_ckpt.core.receipt import Receipt
    from airflow_provider_ckpt.core.wave_messages import BatchTask


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """A batch whose transaction is still open and contains all rows that the target accepts.

    The writer has returned the errors of the other rows, and waits for a second call that completes the batch.

    :param task: the batch and its attempt
    :param receipt: the receipt as it was claimed; it counts the refused rows as delivered until the batch is completed
    :param numbers: row numbers (:data:`~.sink_protocol.ROW_NUMBER`) of the accepted rows
    """

    task: BatchTask
    receipt: Receipt
    numbers: pa.ChunkedArray

    def is_continued_by(self, task: BatchTask, content: BatchContent) -> bool:
        """Return whether a call of ``deliver`` completes this batch: the same attempt with the accepted rows only.

        :param task: the task of that call
        :param content: the content of that call
        """
        return task == self.task and self.numbers.equals(content.rows.column(ROW_NUMBER))
