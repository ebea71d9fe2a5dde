"""The turn of a run: its right to execute waves, which it may share with other runs of this process."""

from __future__ import annotations


class Turn:
    """Turn of a run that shares Spark with no other run of this process: it may always execute waves."""

    @property
    def most_lanes(self) -> int | None:
        """Largest number of lanes of the next wave; None for as many as the pipeline declares."""
        return None

    def charge(self, records: int) -> None:
        """Report a wave that has ended, by which the turn may end.

        :param records: number of records that it has read
        """

    def leave(self) -> None:
        """End the turn, because the run waits for something else than other runs."""

    def take(self, seconds: float) -> bool:
        """Ask for the next turn if there is none, and wait for it; return whether the run has a turn.

        :param seconds: longest time to wait
        """
        del seconds
        return True
