"""Remove rows from a batch; rows that the sink refused are counted as dead letters or as filtered."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER

if TYPE_CHECKING:
    import pyarrow as pa


def exclude_rows(rows: pa.Table, numbers: Collection[int]) -> pa.Table:
    """Return the rows of a batch without those whose row numbers are given.

    :param rows: rows with the column :data:`~.sink_protocol.ROW_NUMBER`
    :param numbers: numbers of the rows to leave out
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    return rows.filter(pc.invert(pc.is_in(rows.column(ROW_NUMBER), pa.array(list(numbers), pa.int64()))))


def without_refused(
    content: BatchContent, refused: Collection[int], dead_letters: Sequence[DeadLetter], skipped: int = 0
) -> BatchContent:
    """Return a batch's content without the rows that the sink refused, which count as dead letters or as filtered.

    :param content: the batch as the sink received it
    :param refused: numbers of the refused rows
    :param dead_letters: dead letters of the refused rows that ``error_policy`` does not skip; they are added to the
        batch's dead letters
    :param skipped: number of refused rows that ``error_policy`` skips; it is added to the number of filtered records
    """
    return replace(
        content,
        rows=exclude_rows(content.rows, refused),
        dead_letters=[*content.dead_letters, *dead_letters],
        filtered=content.filtered + skipped,
    )
