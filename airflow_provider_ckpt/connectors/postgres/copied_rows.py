"""Split the binary COPY data that the server sends into rows with their positions, read from the first column."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.postgres.column_types import INTEGERS, MICROSECONDS_A_DAY, CursorKind
from airflow_provider_ckpt.connectors.raw_copy_protocol import RawRows

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
"""Start of binary COPY data without flags: the server sends it in one message with the first row."""
_TRAILER = b"\xff\xff"
NO_ROWS = _HEADER + _TRAILER
"""Binary COPY data without rows."""
_VALUE_AT = 6
"""Offset of a row's first value, in bytes: the number of columns and the value's length come before it."""
_CURSOR_BYTES = {CursorKind.INT2: 2, CursorKind.INT4: 4, CursorKind.DATE: 4}
_MICROSECONDS_TO_2000 = 946_684_800_000_000
_DAYS_TO_2000 = 10_957


class CopyMessages:
    """File-like object to which psycopg2 writes each message of a COPY.

    :ivar received: all messages, in order
    """

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.write = self.received.append  # not a method of this class, since the call for each row must be fast


def joined_rows(messages: Sequence[bytes]) -> bytes | None:
    """Return the binary COPY data in messages, after checking that the server sent one message for each row.

    :param messages: all messages of the COPY, which must be one for each row and one for the end
    :return: the data; None if rows and messages do not correspond, as behind a proxy that joins messages
    """
    if not messages[0].startswith(_HEADER) or not messages[-1].endswith(_TRAILER):
        return None
    data = b"".join(messages)
    return data if messages[-1] == _TRAILER or data == NO_ROWS else None


def parse_rows(messages: Sequence[bytes], columns: int, kind: CursorKind) -> RawRows | None:
    """Return the rows of a COPY with their positions, which are the values of the first column, the cursor.

    :param messages: all messages of the COPY, which must be one for each row and one for the end
    :param columns: number of columns
    :param kind: type of the cursor
    :return: the rows; None if rows and messages do not correspond, as behind a proxy that joins messages
    """
    import numpy as np

    data = joined_rows(messages)
    if data is None:
        return None
    if data == NO_ROWS:
        return RawRows(data, np.array([], np.int64))
    width = _CURSOR_BYTES.get(kind, 8)
    ends = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)))
    starts = np.concatenate(([len(_HEADER)], ends[:-2]))
    if starts[-1] + _VALUE_AT + width > len(data):
        return None
    if (_at(data, 0, f"V{_VALUE_AT}", starts) != np.void(struct.pack(">hi", columns, width))).any():
        return None
    values = _at(data, _VALUE_AT, f">i{width}", starts)
    return RawRows(data, _to_positions(kind, values.astype(np.int64)))


def _at(data: bytes, offset: int, form: str, starts: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return an array of the values that stand at the same offset in each row of binary data.

    The values are taken through an overlapping view of the data, which needs no index for each single byte.

    :param data: the rows
    :param offset: offset of the value in its row, in bytes
    :param form: numpy type of the value, which may lie at any address
    :param starts: offset of each row in the data, in bytes
    """
    import numpy as np

    kind = np.dtype(form)
    return np.ndarray((len(data) - offset - kind.itemsize + 1,), kind, data, offset, strides=(1,))[starts]


def _to_positions(kind: CursorKind, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the positions of cursor values in PostgreSQL's binary form, which counts dates and times from 2000.

    :param kind: type of the cursor
    :param values: the cursor values
    """
    if kind in INTEGERS:
        return values
    if kind is CursorKind.DATE:
        return (values + _DAYS_TO_2000) * MICROSECONDS_A_DAY
    return values + _MICROSECONDS_TO_2000
