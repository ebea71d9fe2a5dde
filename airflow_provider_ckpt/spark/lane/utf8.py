"""Find text that is not valid UTF-8 in rows to deliver; it comes from SQL expressions or from Parquet files.

No sink can store such text, and a single value of it makes the whole data file of a table unreadable. Columns are
checked in bulk, and value by value only if that check fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.batch_content import record_error
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType

if TYPE_CHECKING:
    import pyarrow as pa


def invalid_utf8(rows: pa.Table, kind: ErrorType) -> dict[int, ErrorInfo]:
    """Return an error, by record number, for each row with text that is not valid UTF-8.

    :param rows: :data:`~.sink_protocol.ROW_NUMBER`, then the columns to check
    :param kind: type of the errors
    """
    found: dict[int, ErrorInfo] = {}
    numbers = rows.column(0)
    for name, column in zip(rows.column_names[1:], rows.columns[1:], strict=True):
        if _is_valid_utf8(column):
            continue
        start = 0
        for chunk in column.chunks:
            # take() copies the value. Validating a slice of lists or structs would check the whole array instead.
            for at in (
                []
                if _is_valid_utf8(chunk)
                else [at for at in range(len(chunk)) if not _is_valid_utf8(chunk.take([at]))]
            ):
                error = record_error(kind, f"{name} is a text that is not valid UTF-8")
                found.setdefault(numbers[start + at].as_py(), error)
            start += len(chunk)
    return found


def _is_valid_utf8(texts: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether all text in a column is valid UTF-8, including text in its lists and structs."""
    import pyarrow as pa

    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
