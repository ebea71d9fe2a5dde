"""Remove records from the rows of a batch."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER

if TYPE_CHECKING:
    import pyarrow as pa


def exclude_rows(rows: pa.Table, numbers: Collection[int]) -> pa.Table:
    """Return the rows except those with the given numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return rows.filter(pc.invert(pc.is_in(rows.column(ROW_NUMBER), pa.array(list(numbers), pa.int64()))))
