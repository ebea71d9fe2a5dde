"""Map the numbers of a batch's records to source positions; several records may share a position.

A record's number is its index, from 0, among the batch's records in the order in which they were read. Records that
share a position come in the same order when they are read again, so a record can be identified by its position and its
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

    :param positions: int64 position of every record that was read, in ascending order
    """

    def __init__(self, positions: pa.ChunkedArray) -> None:
        self._positions: npt.NDArray[np.int64] = positions.to_numpy()

    @property
    def all(self) -> npt.NDArray[np.int64]:
        """Position of every record, in ascending order."""
        return self._positions

    def position(self, number: int) -> int:
        """Return the source position of a record.

        :param number: the record's index in its batch, from 0
        """
        return int(self._positions[number])

    def position_and_index(self, number: int) -> tuple[int, int]:
        """Return the source position of a record, and its index among the records of that position.

        :param number: the record's index in its batch, from 0
        """
        position = self.position(number)
        return position, number - int(self._positions.searchsorted(position))

    def count_at(self, position: int) -> int:
        """Return the number of records at a position."""
        first, end = self._positions.searchsorted([position, position + 1])
        return int(end - first)
