"""Finds texts that are not UTF-8 among the rows to deliver: an expression may make some, a Parquet file may hold some.

No sink can hold one, and a table's file with such a text is unreadable as a whole. All rows are looked at in bulk; one
by one only if need be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.batch_content import data_error
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType

if TYPE_CHECKING:
    import pyarrow as pa


def unreadable_texts(rows: pa.Table, kind: ErrorType) -> dict[int, ErrorInfo]:
    """The rows with a text that is not UTF-8, by number, and why.

    :param rows: :data:`~.protocols.NUMBER` first
    :param kind: of the errors
    """
    found: dict[int, ErrorInfo] = {}
    numbers = rows.column(0)
    for name, column in zip(rows.column_names[1:], rows.columns[1:], strict=True):
        if _readable(column):
            continue
        start = 0
        for chunk in column.chunks:
            # Taken, not sliced: a slice of lists or structs is checked with all that it was cut from.
            for at in [] if _readable(chunk) else [at for at in range(len(chunk)) if not _readable(chunk.take([at]))]:
                error = data_error(kind, f"{name} is a text that is not valid UTF-8")
                found.setdefault(numbers[start + at].as_py(), error)
            start += len(chunk)
    return found


def _readable(texts: pa.Array | pa.ChunkedArray) -> bool:
    import pyarrow as pa

    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
