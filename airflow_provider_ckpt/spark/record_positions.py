"""Map record numbers to source positions; several records may share a position.

A record's number is its index, from 0, among the batch's records in the order in which they were read. Records that
share a position come in the same order when they are read again. So a record can be identified by its position and its
index among the records of that position.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


class RecordPositions:
    """Source positions of a batch's records, by record number.

    :param positions: positions of all records that were read, in ascending order
    """

    def __init__(self, positions: pa.ChunkedArray) -> None:
        self._positions: npt.NDArray[np.int64] = positions.to_numpy()

    @property
    def all(self) -> npt.NDArray[np.int64]:
        """Positions of all records, in ascending order."""
        return self._positions

    def position(self, number: int) -> int:
        """Return the source position of the record with this number."""
        return int(self._positions[number])

    def position_and_index(self, number: int) -> tuple[int, int]:
        """Return the position of the record with this number, and its index among the records of that position."""
        position = self.position(number)
        return position, number - int(self._positions.searchsorted(position))

    def count_at(self, position: int) -> int:
        """Return the number of records at a position."""
        first, end = self._positions.searchsorted([position, position + 1])
        return int(end - first)
