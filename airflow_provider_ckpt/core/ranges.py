"""Define half-open ranges of source positions, merge and subtract ranges, and find their end before the first gap.

A position is a signed 64-bit integer. The source defines its meaning: an offset, a cursor value, microseconds since the
epoch, or a byte in the concatenation of all discovered files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

START = -(2**63)
"""The position before all others, at which a source with a cursor column begins; users see it as ``start``."""


def position_text(position: int, form: str = "d") -> str:
    """Return a position as text for users: ``start`` for :data:`START`, else the number.

    :param position: the position
    :param form: format specification of the number, such as ``,`` for thousands separators
    """
    return "start" if position == START else format(position, form)


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The positions ``start <= p < end`` of a partition; never empty.

    :param start: first position in the range
    :param end: first position after the range
    :raises ValueError: if the range would be empty
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise ValueError(f"a range must not be empty: [{self.start}, {self.end})")

    def __str__(self) -> str:
        return f"[{position_text(self.start)}, {position_text(self.end)})"

    def overlaps(self, other: Range) -> bool:
        """Return whether this range and another one have a position in common; adjacent ranges have none."""
        return self.start < other.end and other.start < self.end


def merge(ranges: Iterable[Range]) -> list[Range]:
    """Return the fewest ranges that together contain the same positions as the given ones, in ascending order.

    Overlapping and adjacent ranges become one.
    """
    merged: list[Range] = []
    for item in sorted(ranges):
        if merged and item.start <= merged[-1].end:
            if item.end > merged[-1].end:
                merged[-1] = Range(merged[-1].start, item.end)
        else:
            merged.append(item)
    return merged


def contiguous_end(start: int, ranges: Iterable[Range]) -> int:
    """Return the first position, at or after ``start``, that no range covers.

    Applied to resolved ranges, it is the position to which the checkpoint can move.
    """
    end = start
    for item in merge(ranges):
        if item.start > end:
            break
        end = max(end, item.end)
    return end


def subtract(whole: Range, covered: Iterable[Range]) -> list[Range]:
    """Return the parts of ``whole`` that no range of ``covered`` contains, in order."""
    gaps: list[Range] = []
    at = whole.start
    for item in merge(covered):
        if item.end <= at:
            continue
        if item.start >= whole.end:
            break
        if item.start > at:
            gaps.append(Range(at, item.start))
        at = max(at, item.end)
    if at < whole.end:
        gaps.append(Range(at, whole.end))
    return gaps
