"""Store the positions of a batch's records in its receipt: a digest, and the full list if it is small enough.

``recover`` uses them to detect which records of a range appeared after the range was read, even if others have
disappeared. The digest does not depend on the order of the records. It consists of their number and three sums over
their positions: of the quotients by a prime, of the remainders, and of the remainders' cubes. The full list is stored
as compressed differences, which take some hundred bytes for any number of dense ids, and about four bytes a record for
times.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PRIME = 2**31 - 1
"""Prime by which the digest divides positions; the product of two remainders fits into 64 bits."""

MAX_CHARACTERS = 24_000
"""Maximum number of characters that the compressed list of positions may take in a receipt."""

_SAMPLE = 4_096
_WIDTHS = ("u1", "u2", "u4", "u8")


@dataclass(frozen=True, slots=True)
class PositionDigest:
    """Digest of a set of positions: equal digests mean equal positions, except for a chance of one in billions.

    :param count: number of positions
    :param sums: three sums over all positions ``p``: of ``p // PRIME``, of ``r = p % PRIME``, and of ``r ** 3 %
        PRIME``; None if only the count is known
    """

    count: int
    sums: tuple[int, int, int] | None

    @classmethod
    def of(cls, positions: npt.NDArray[np.int64]) -> PositionDigest:
        """Return the digest of an array of positions, which may be in any order."""
        quotients, remainders = positions // PRIME, positions % PRIME
        cubes = remainders * remainders % PRIME * remainders % PRIME
        return cls(len(positions), (int(quotients.sum()), int(remainders.sum()), int(cubes.sum())))

    @classmethod
    def total(cls, parts: Iterable[PositionDigest]) -> PositionDigest:
        """Return the digest of the union of several sets of positions that have no position in common.

        :param parts: digest of each set; none of them may lack the sums
        """
        count, sums = 0, (0, 0, 0)
        for part in parts:
            assert part.sums is not None
            count += part.count
            sums = (sums[0] + part.sums[0], sums[1] + part.sums[1], sums[2] + part.sums[2])
        return cls(count, sums)

    def same(self, other: PositionDigest) -> bool:
        """Return whether this digest and another have the same count and sums, as digests of one set of positions have.

        If one of them has no sums, only the counts are compared.

        :param other: the other digest
        """
        if self.sums is None or other.sums is None:
            return self.count == other.count
        return self == other

    @staticmethod
    def sql(position: str, rows: str) -> str:
        """Return a PostgreSQL query whose only row is the digest: the count and the three sums.

        :param position: SQL expression of a record's position, a 64-bit integer
        :param rows: rest of the query, starting with FROM
        """
        quotient, left = f"p / {PRIME} - (p % {PRIME} < 0)::int", f"(p % {PRIME} + {PRIME}) % {PRIME}"
        sums = ", ".join(f"coalesce(sum({value}), 0)::bigint" for value in ("q", "r", f"r * r % {PRIME} * r % {PRIME}"))
        divided = f"SELECT {quotient} AS q, {left} AS r FROM (SELECT {position} AS p {rows}) AS shown"
        return f"SELECT count(*), {sums} FROM ({divided}) AS divided"


@dataclass(frozen=True, slots=True)
class RecordPositions:
    """Positions of a batch's records, as its receipt stores them.

    :param digest: digest of the positions
    :param packed: all positions in order, compressed to text; None if the text would be too long
    """

    digest: PositionDigest
    packed: str | None

    @classmethod
    def of(cls, positions: Any) -> RecordPositions:
        """Return the digest and the compressed list of a batch's positions.

        :param positions: numpy array or sequence of integers, in any order
        """
        import numpy as np

        array = np.sort(np.asarray(positions, dtype=np.int64))
        return cls(PositionDigest.of(array), _pack(array))

    def text(self) -> str:
        """Return digest and list as one text, to be stored in the receipt; :meth:`parse` is its inverse."""
        assert self.digest.sums is not None
        sums = ",".join(map(str, (self.digest.count, *self.digest.sums)))
        return sums if self.packed is None else f"{sums};{self.packed}"

    @classmethod
    def parse(cls, text: str) -> RecordPositions:
        """Restore the positions from the output of :meth:`text`."""
        numbers, _, packed = text.partition(";")
        count, quotients, remainders, cubes = map(int, numbers.split(","))
        return cls(PositionDigest(count, (quotients, remainders, cubes)), packed or None)

    def all(self) -> npt.NDArray[np.int64] | None:
        """Return all positions in ascending order; None if only the digest is stored."""
        return None if self.packed is None else _unpack(self.packed)


def _pack(positions: npt.NDArray[np.int64]) -> str | None:
    """Encode sorted positions as text: the first one, the differences' integer type, and the compressed differences.

    Return None if the text would be longer than :data:`MAX_CHARACTERS`, or the first and last are 2**63 or more apart.
    """
    import numpy as np

    if not len(positions):
        return "0,0,"
    steps = np.diff(positions)
    if len(steps) and (int(steps.min()) < 0 or int(positions[-1]) - int(positions[0]) >= 2**63):
        return None
    largest = int(steps.max()) if len(steps) else 0
    width = next(at for at, kind in enumerate(_WIDTHS) if largest <= np.iinfo(kind).max)
    raw = steps.astype(f"<{_WIDTHS[width]}")
    if len(raw) > 2 * _SAMPLE:
        sample = len(zlib.compress(raw[:_SAMPLE].tobytes(), 1))
        if sample * len(raw) // _SAMPLE > 2 * MAX_CHARACTERS:
            return None
    data = base64.b64encode(zlib.compress(raw.tobytes(), 1)).decode()
    return f"{positions[0]},{width},{data}" if len(data) <= MAX_CHARACTERS else None


def _unpack(text: str) -> npt.NDArray[np.int64]:
    import numpy as np

    first, width, data = text.split(",")
    if not data:
        return np.array([], np.int64)
    steps = np.frombuffer(zlib.decompress(base64.b64decode(data)), f"<{_WIDTHS[int(width)]}").astype(np.int64)
    return np.concatenate(([int(first)], steps)).cumsum()
