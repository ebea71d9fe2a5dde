"""Define the turns of a run: periods in which the run may execute waves, while other runs of its process wait."""

from __future__ import annotations


class Turn:
    """Permission of a run to execute waves in Spark; a run that has its process for itself has it at any time.

    Runs that share a process take turns instead: they use the subclass :class:`~.parallel_runs.SharedTurn`.

    :ivar is_paused: whether the run was told to pause, and has not resumed since
    :ivar seconds_used: seconds of the run's time budget that it used before it paused, 0 if it never paused
    """

    def __init__(self) -> None:
        self.is_paused = False
        self.seconds_used = 0.0

    @property
    def most_lanes(self) -> int | None:
        """Largest number of lanes of the next wave; None for as many as the pipeline declares."""
        return None

    def charge(self, records: int) -> None:
        """Subtract the records of a wave that has ended from the run's quantum; the turn may end by this.

        :param records: number of records that the wave has read
        """

    def leave(self) -> None:
        """End the run's turn, because the run waits for something else, such as a retry time or a busy lease."""

    def take(self, seconds: float) -> bool:
        """Return whether the run may execute a wave now; if not, request its next turn and wait for it.

        :param seconds: longest time to wait
        """
        del seconds
        return True

    def must_pause(self, seconds_used: float, seconds_idle: float) -> bool:
        """Return whether the run must pause: end and release its lease, so that another run of the process can begin.

        A run that cannot pause does not call this.

        :param seconds_used: seconds of its time budget that the run has used
        :param seconds_idle: seconds for which the run has nothing to do; 0 if it could execute a wave now
        """
        del seconds_used, seconds_idle
        return False
