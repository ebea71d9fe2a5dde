"""A batch some of whose rows the target has refused, and whose transaction waits to be completed with the others."""

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
    """A batch whose transaction is still open, and contains all rows that the target accepts.

    :param task: the batch and its attempt
    :param receipt: the receipt as it was claimed; it counts the refused rows as delivered until the batch is completed
    :param numbers: numbers of the accepted rows
    """

    task: BatchTask
    receipt: Receipt
    numbers: pa.ChunkedArray

    def is_continued_by(self, task: BatchTask, content: BatchContent) -> bool:
        """Return whether a call of ``deliver`` completes this batch: the same attempt with only the accepted rows."""
        return task == self.task and self.numbers.equals(content.rows.column(ROW_NUMBER))
