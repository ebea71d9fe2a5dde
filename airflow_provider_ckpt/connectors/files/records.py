"""Where records end in a file's bytes: the one rule that planning and reading share, without decoding anything.

JSON lines: every newline ends a record. CSV: a newline does if the number of quote characters so far is even. Nothing
follows the last newline; a last record may lack its own.
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
"""Bytes read at once."""

BOM = b"\xef\xbb\xbf"
_NEWLINE, _QUOTE = 0x0A, 0x22


def scan(file: BinaryIO, start: int, end: int, *, quoted: bool, block: int = BLOCK) -> Iterator[tuple[bytes, Offsets]]:
    """The bytes of ``[start, end)`` in blocks, each with the offsets in it just after every newline that ends a record.

    :param start: where a record begins (or, without quotes, anywhere)
    :param quoted: whether newlines inside quotes are data
    :param block: bytes read at once
    :raises SourceError: if the file ends before ``end``
    """
    import numpy as np

    file.seek(start)
    odd = 0
    while start < end:
        data = file.read(min(block, end - start))
        if not data:
            raise SourceError(f"{file.name} ends at byte {start}, before byte {end}: it was cut after its discovery.")
        start += len(data)
        raw = np.frombuffer(data, np.uint8)
        newlines = np.flatnonzero(raw == _NEWLINE)
        if quoted and (odd or b'"' in data):
            quotes = np.flatnonzero(raw == _QUOTE)
            newlines = newlines[(np.searchsorted(quotes, newlines) + odd) % 2 == 0]
            odd = (odd + len(quotes)) % 2
        yield data, newlines + 1
