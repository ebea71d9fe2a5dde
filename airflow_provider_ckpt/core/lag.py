"""The lag: the number of positions by which the source is ahead of a partition's checkpoint, and its text for users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_ckpt.core.ranges import START

NOT_BEGUN = "not begun"
"""Text in place of a number for a partition whose lag is unknown; in JSON it is null."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """Lag of one partition.

    :param committed: its checkpoint
    :param end: position before which the source is known to have records
    """

    committed: int
    end: int

    @property
    def distance(self) -> int:
        """Difference of the two positions; only differences between distances have a meaning before the first batch."""
        return max(self.end - self.committed, 0)

    @property
    def positions(self) -> int | None:
        """Number of positions; None if there are records, but the checkpoint is still ``start``.

        ``start`` is no position of the source, so that a distance from it would not count anything.
        """
        return None if self.distance and self.committed == START else self.distance


def lag_positions(lag: Mapping[str, PartitionLag]) -> dict[str, int | None]:
    """Return the number of positions by partition, JSON-ready; see :attr:`PartitionLag.positions`."""
    return {name: part.positions for name, part in lag.items()}


def known_lag(positions: Mapping[str, int | None]) -> int:
    """Return the sum over the partitions whose lag is known."""
    return sum(number for number in positions.values() if number is not None)


def not_begun(positions: Mapping[str, int | None]) -> list[str]:
    """Return the partitions whose lag is not known, because their first batch has no verdict yet."""
    return sorted(name for name, number in positions.items() if number is None)


def lag_cells(positions: Mapping[str, int | None]) -> dict[str, int | str]:
    """Return the lag by partition as users see it: a number, or :data:`NOT_BEGUN`."""
    return {name: NOT_BEGUN if number is None else number for name, number in positions.items()}


def lag_text(positions: Mapping[str, int | None]) -> str:
    """Return the lag of a pipeline as text: the known sum, and the partitions for which it is not known."""
    unknown = not_begun(positions)
    if not unknown:
        return f"{known_lag(positions):,}"
    if len(unknown) == len(positions):
        return NOT_BEGUN
    return f"{known_lag(positions):,} ({NOT_BEGUN}: {', '.join(unknown)})"
