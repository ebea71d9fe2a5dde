"""Find the ends of the records in a text file (JSON lines or CSV); planning and reading share this rule.

In JSON lines every newline ends a record; in CSV, every newline outside quotes. The last record of a file may lack its
newline. Bytes are compared, without decoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from airflow_provider_ckpt.core.errors import SourceError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Offsets = npt.NDArray[np.int64]

BLOCK = 8 << 20
"""Number of bytes to read at once."""

BOM = b"\xef\xbb\xbf"
"""UTF-8 byte order mark, which may precede the first record of a file."""

_NEWLINE, _QUOTE = 0x0A, 0x22


def scan_records(
    file: BinaryIO, start: int, end: int, *, delimiter: bytes | None, block: int = BLOCK
) -> Iterator[tuple[bytes, Offsets]]:
    """Yield the bytes ``[start, end)`` in blocks, each with the offsets just after newlines that end records.

    These offsets are relative to their block.

    :param file: the open file
    :param start: offset of the first byte. For CSV a record must begin there; for JSON lines it may be any byte
    :param end: offset just after the last byte
    :param delimiter: CSV's field separator; None for JSON lines
    :param block: number of bytes to read at once
    :raises SourceError: if the file ends before ``end``
    """
    import numpy as np

    file.seek(start)
    quotes = _QuoteScanner(delimiter) if delimiter is not None else None
    while start < end:
        data = file.read(min(block, end - start))
        if not data:
            raise SourceError(
                f"{file.name} ends at byte {start}, before byte {end}: it was truncated after its discovery."
            )
        raw = np.frombuffer(data, np.uint8)
        newlines = np.flatnonzero(raw == _NEWLINE)
        if quotes is not None:
            newlines = quotes.outside(data, raw, newlines, at=start)
        start += len(data)
        yield data, newlines + 1


class _QuoteScanner:
    """Search for the newlines outside CSV quotes; the state is kept from one block of a file to the next.

    A quote at the beginning of a field opens a quoted text, and the next quote closes it; a quote right after a closing
    one opens it again (a doubled quote is data). Any other quote is a plain character, so that a stray quote inside a
    field affects only its own record.

    :param delimiter: field separator
    """

    def __init__(self, delimiter: bytes) -> None:
        self._delimiter = delimiter
        self._before = b"\n" * max(len(delimiter), len(BOM))
        self._open = False
        self._closed = -2  # offset of the newest closing quote

    def outside(self, data: bytes, raw: npt.NDArray[np.uint8], newlines: Offsets, *, at: int) -> Offsets:
        """Return the offsets of newlines in a block that are not inside quotes.

        :param data: the block
        :param raw: the block as an array
        :param newlines: offsets of all newlines, relative to the block like those returned
        :param at: the block's offset in the file
        """
        import numpy as np

        was_open = self._open
        quotes = np.flatnonzero(raw == _QUOTE) if was_open or b'"' in data else newlines[:0]
        if len(quotes):
            quotes = self._effective(quotes, self._begins(data, quotes, at), at)
        self._before = (self._before + data)[-len(self._before) :]
        if was_open or len(quotes):
            newlines = newlines[(np.searchsorted(quotes, newlines) + was_open) % 2 == 0]
        return newlines

    def _begins(self, data: bytes, quotes: Offsets, at: int) -> npt.NDArray[np.bool_]:
        """Return a boolean array that is true for each quote that is the first character of a field.

        :param data: the block
        :param quotes: offsets of the quotes in the block
        :param at: the block's offset in the file
        """
        import numpy as np

        width = len(self._before)
        padded = np.frombuffer(self._before + data, np.uint8)
        delimited = np.ones(len(quotes), np.bool_)
        for back, byte in enumerate(reversed(self._delimiter), start=1):
            delimited &= padded[quotes + width - back] == byte
        begins: npt.NDArray[np.bool_] = delimited | (padded[quotes + width - 1] == _NEWLINE)
        if at <= len(BOM) and (self._before + data[: len(BOM) - at]).endswith(BOM):
            begins |= quotes == len(BOM) - at
        return begins

    def _effective(self, quotes: Offsets, begins: npt.NDArray[np.bool_], at: int) -> Offsets:
        """Return the offsets of the quotes that open or close a quoted text, and store the state at the block's end.

        :param quotes: offsets of all quotes in the block
        :param begins: mask of the quotes that are the first character of a field
        :param at: the block's offset in the file
        """
        import numpy as np

        repeated = np.concatenate(([self._closed == at + quotes[0] - 1], np.diff(quotes) == 1))
        if not np.all((begins | repeated)[int(self._open) :: 2]):
            quotes = self._one_by_one(quotes, begins, self._closed - at)
        ends_open = (len(quotes) + self._open) % 2 == 1
        if len(quotes) and not ends_open:
            self._closed = at + int(quotes[-1])
        self._open = ends_open
        return quotes

    def _one_by_one(self, quotes: Offsets, begins: npt.NDArray[np.bool_], closed: int) -> Offsets:
        """Return the offsets of the quotes that open or close a text, for a block with quotes inside unquoted fields.

        Such quotes neither open nor close a text, so all quotes are examined one by one; :meth:`_effective` handles all
        other blocks at once.

        :param quotes: offsets of all quotes in the block
        :param begins: mask of the quotes that are the first character of a field
        :param closed: offset of the newest closing quote, relative to the block
        """
        import numpy as np

        is_open, effective = self._open, []
        for offset, begin in zip(quotes.tolist(), begins.tolist(), strict=True):
            if is_open:
                is_open, closed = False, offset
            elif begin or closed == offset - 1:
                is_open = True
            else:
                continue
            effective.append(offset)
        return np.array(effective, np.int64)
