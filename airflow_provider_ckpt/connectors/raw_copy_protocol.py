"""Interface of connectors that copy batches from source to sink as raw data, without converting them to records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from airflow_provider_ckpt.core.wave_messages import BatchTask, Outcome


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows of a batch as raw data.

    :param data: all rows, in the encoding that source and sink share, such as PostgreSQL's binary COPY format
    :param positions: source position of each row, in order
    """

    data: bytes
    positions: npt.NDArray[np.int64]


class RawCopy(Protocol):
    """Raw copy of one lane, which reads batches from the source and delivers them to the sink.

    A batch that cannot be copied raw leaves nothing in the sink. The lane then delivers this and all later batches with
    the source's reader and the sink's writer, which find bad rows and report errors. A thread may call :meth:`read`
    while the lane calls :meth:`deliver`.
    """

    def read(self, task: BatchTask) -> RawRows | None:
        """Read a batch from the source as raw data.

        :param task: the batch
        :return: the rows; None if the batch cannot be copied raw, so that the lane must read and deliver records
        """

    def deliver(self, task: BatchTask, rows: RawRows) -> Outcome | None:
        """Claim a batch's receipt and write its rows, in one transaction of the sink.

        :param task: the batch
        :param rows: its rows
        :return: the outcome, which is ``failed`` after a transient error; None if the lane must read and deliver the
            batch as records. With None nothing of the batch is in the sink, except if the connection was lost during
            the commit and the commit took effect; the writer then finds the batch's receipt
        """

    def close(self) -> None:
        """Close all connections; the thread that calls :meth:`read` must have ended."""
