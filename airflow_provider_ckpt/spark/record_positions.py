"""Where in the source the records of a batch are: a position alone does not say, since a cursor may give several one.

A record's number counts the batch's records in the order in which they were read, from 0. Read again, the records of a
position come in the same order, so a record is found by its position and its place among those that share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


class Places:
    """The positions of a batch's records, by number.

    :param positions: of all that were read, in their order, which is that of positions
    """

    def __init__(self, positions: pa.ChunkedArray) -> None:
        self._positions: npt.NDArray[np.int64] = positions.to_numpy()

    @property
    def all(self) -> npt.NDArray[np.int64]:
        """Every record's position, in order."""
        return self._positions

    def position(self, number: int) -> int:
        """A record's source position."""
        return int(self._positions[number])

    def place(self, number: int) -> tuple[int, int]:
        """A record's position, and how many records of that position come before it."""
        position = self.position(number)
        return position, number - int(self._positions.searchsorted(position))

    def records(self, position: int) -> int:
        """How many records have this position."""
        first, end = self._positions.searchsorted([position, position + 1])
        return int(end - first)
