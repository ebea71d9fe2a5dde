"""Read results of MySQL and MariaDB into Arrow columns, without a Python object for each value.

The server sends each row as a packet: three bytes with the packet's length, one with its number, and the texts of the
row's values, each after its length. Only the boundaries of packets are found one by one; the values are extracted for
all rows at once.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pymysql.constants import CR
from pymysql.err import OperationalError, raise_mysql_exception

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    _Places = npt.NDArray[np.int64]

_HEADER = 4
_read_header = struct.Struct("<I").unpack_from
_READ_BYTES = 1 << 20
_MAX_PACKET = 0xFFFFFF
"""Length of a full packet, which the next packet continues."""

_NULL, _EOF, _ERROR = 0xFB, 0xFE, 0xFF
_LENGTHS = {0xFC: 2, 0xFD: 3, 0xFE: 8}
"""Number of bytes that follow a value's first byte and contain the value's length, by that first byte.

Any other first byte is the length itself.
"""

_MAX_EOF = 9
"""Length of a packet below which the first byte ``0xFE`` means the end of the rows, and not a long value."""


def read_columns(driver: Any, width: int) -> list[pa.Array]:
    """Return the rows that the server sends after describing their columns, as a binary array for each column.

    :param driver: the driver's connection
    :param width: number of columns
    :raises pymysql.err.MySQLError: if the server reports an error or the connection is lost
    """
    data = bytearray()
    starts: list[int] = []
    at = 0
    while True:
        data += _receive(driver)
        while at + _HEADER < len(data):
            size = _read_header(data, at)[0] & _MAX_PACKET
            start = at + _HEADER
            end = start + size if size < _MAX_PACKET else _end_of_long_packet(data, at)
            if end > len(data):
                break
            first = data[start]
            if first >= _EOF:
                if first == _ERROR:
                    _raise_error(driver, data[start - 1], bytes(data[start:end]))
                if size < _MAX_EOF:
                    return _split_into_columns(data, starts, width)
            starts.append(start)
            at = end


def _receive(driver: Any) -> bytes:
    """Return the bytes that have arrived; if there are none, wait for them up to the driver's read timeout.

    :param driver: the driver's connection
    :raises pymysql.err.OperationalError: if the connection is lost
    """
    try:
        received: bytes = driver._rfile.read1(_READ_BYTES)
    except OSError as error:
        raise _lost(driver, f" ({error})") from error
    if not received:
        raise _lost(driver)
    return received


def _lost(driver: Any, reason: str = "") -> OperationalError:
    driver._force_close()
    return OperationalError(CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query{reason}")


def _end_of_long_packet(data: bytearray, at: int) -> int:
    """Return the end of a packet that further packets continue; it is beyond the data until all of them have arrived.

    The headers of the further packets are removed from the data, so that the values follow each other without a gap.

    :param data: the received bytes
    :param at: offset of the first packet's header
    """
    headers = []
    size = _MAX_PACKET
    while size == _MAX_PACKET:
        if at + _HEADER > len(data):
            return at + _HEADER
        headers.append(at)
        size = _read_header(data, at)[0] & _MAX_PACKET
        at += _HEADER + size
    if at <= len(data):
        for header in reversed(headers[1:]):
            del data[header : header + _HEADER]
        at -= _HEADER * (len(headers) - 1)
    return at


def _raise_error(driver: Any, number: int, packet: bytes) -> None:
    if number == 0:  # a server that stops gives its notice this number, out of sequence
        raise _lost(driver)
    raise_mysql_exception(packet)


def _split_into_columns(data: bytearray, starts: Sequence[int], width: int) -> list[pa.Array]:
    """Return the values of the rows column by column, as a binary array for each column.

    :param data: the packets
    :param starts: offset at which each row's first value begins
    :param width: number of columns
    """
    import numpy as np
    import pyarrow as pa

    content = np.frombuffer(data, np.uint8)
    buffer = pa.py_buffer(data)
    at = np.array(starts, np.int64)
    columns = []
    for _ in range(width):
        first = content[at]
        begins, sizes = at + 1, first.astype(np.int64)
        is_null = first == _NULL
        sizes[is_null] = 0
        for mark, count in _LENGTHS.items():
            long = np.flatnonzero(first == mark)
            if len(long):
                places = at[long, None] + np.arange(1, count + 1)
                sizes[long] = (content[places].astype(np.int64) << np.arange(0, 8 * count, 8)).sum(axis=1)
                begins[long] += count
        at = begins + sizes
        columns.append(_to_binary_array(buffer, begins, at, is_null))
    return columns


def _to_binary_array(buffer: pa.Buffer, begins: _Places, ends: _Places, is_null: npt.NDArray[np.bool_]) -> pa.Array:
    """Return pieces of a buffer as a binary array.

    :param buffer: the buffer
    :param begins: offset at which each piece begins, in ascending order
    :param ends: offset at which each piece ends
    :param is_null: whether each piece stands for NULL
    """
    import numpy as np
    import pyarrow as pa

    if not len(begins):
        return pa.array([], pa.binary())
    offsets = np.column_stack((begins, ends)).ravel()  # values alternate with the gaps between them
    pieces = pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), buffer])
    wanted = pa.array(np.arange(0, len(offsets), 2), mask=is_null)
    return pieces.take(wanted).cast(pa.binary())
