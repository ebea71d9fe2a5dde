"""Compute the lag, the number of positions by which the source is ahead of a partition's checkpoint, and show it.

The lag is unknown, written None, while the checkpoint is ``start``: this is not a position of the source, so there is
no distance from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_provider_ckpt.core.ranges import START

NOT_BEGUN = "not begun"
"""Text that users see instead of a number for a partition whose lag is unknown; in JSON it is null."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The checkpoint of one partition and the end of its source, whose difference is the lag.

    :param committed: the partition's checkpoint
    :param end: position before which the source is known to have records
    """

    committed: int
    end: int

    @property
    def distance(self) -> int:
        """Number of positions from the checkpoint (``committed``) to the end of the source (``end``), at least 0.

        While the checkpoint is ``start``, only the change of this number over time has a meaning.
        """
        return max(self.end - self.committed, 0)

    @property
    def positions(self) -> int | None:
        """The lag as a number of positions; None if it is unknown; 0 if the source has no record to read.

        The lag is unknown while the checkpoint is ``start`` although the source has records: ``start`` is no position
        of the source, so a distance from it would be no number of positions.
        """
        return None if self.distance and self.committed == START else self.distance


def lag_positions(lag: Mapping[str, PartitionLag]) -> dict[str, int | None]:
    """Return the lag of each partition as a number of positions, or None if it is unknown.

    :param lag: checkpoint and end of the source, by partition
    :return: a JSON-ready dict by partition; see :attr:`PartitionLag.positions`
    """
    return {name: part.positions for name, part in lag.items()}


def known_lag(lags: Mapping[str, int | None]) -> int:
    """Return the sum of the lags of all partitions whose lag is known; 0 if there is none.

    :param lags: number of positions by partition; None if the lag is unknown
    """
    return sum(number for number in lags.values() if number is not None)


def not_begun(lags: Mapping[str, int | None]) -> list[str]:
    """Return the sorted ids of the partitions whose lag is unknown, because their checkpoint is still ``start``.

    :param lags: number of positions by partition; None if the lag is unknown
    """
    return sorted(name for name, number in lags.items() if number is None)


def lag_cells(lags: Mapping[str, int | None]) -> dict[str, int | str]:
    """Return the lag of each partition as users see it in a table: a number, or ``not begun`` if it is unknown.

    :param lags: number of positions by partition; None while the partition's checkpoint is ``start``
    """
    return {name: NOT_BEGUN if number is None else number for name, number in lags.items()}


def lag_text(lags: Mapping[str, int | None]) -> str:
    """Return the lag of a pipeline as text, such as ``1,200 (not begun: orders)``.

    The number is the sum of the known lags, and the partitions in parentheses are those whose lag is unknown. If all
    are unknown, the text is ``not begun``.

    :param lags: number of positions by partition; None if the lag is unknown
    """
    unknown = not_begun(lags)
    if not unknown:
        return f"{known_lag(lags):,}"
    if len(unknown) == len(lags):
        return NOT_BEGUN
    return f"{known_lag(lags):,} ({NOT_BEGUN}: {', '.join(unknown)})"
