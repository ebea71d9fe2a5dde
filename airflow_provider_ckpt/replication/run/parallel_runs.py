"""Run several pipelines in threads of one process, which take turns; a run that fails does not stop the others.

A run executes its waves only during its turns. ``core/deficit_round_robin.py`` decides which runs have a turn, and when
a turn ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

from airflow_provider_ckpt.core.deficit_round_robin import DeficitRoundRobin
from airflow_provider_ckpt.replication.turn import Turn

log = logging.getLogger(__name__)

_STOP_SECONDS = 20.0
"""Longest time in seconds to wait for the runs in progress after they were asked to stop."""

_CHECK_SECONDS = 1.0
"""Interval, in seconds, at which a paused run checks whether the runs must stop."""

T = TypeVar("T")


class RunStoppedError(BaseException):
    """Error that ends the thread of a run, because the process was asked to stop.

    It is a ``BaseException``, so that code which handles failures does not catch it.
    """


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of several runs that share a process and its Spark.

    :param at_once: largest number of runs that have their turn at a time, at least 1
    :param most_in_progress: largest number of runs in progress, of which some wait for their next turn; at least
        ``at_once``
    :param quantum: number of records after which a run's turn ends if another run waits for one
    :param lanes_each: largest number of lanes that a run occupies while another run works or waits for its turn; None
        for no limit
    :param turns_each: number of turns after which a run pauses if another run waits to begin or to resume; None if no
        run pauses
    """

    at_once: int
    most_in_progress: int
    quantum: int
    lanes_each: int | None = None
    turns_each: int | None = None


class ParallelRuns(Generic[T]):
    """Runs of several pipelines, each in a thread of its own, which take turns by deficit round robin.

    A turn is measured by the records that a run reads; ``core/deficit_round_robin.py`` explains this scheme.

    :param runs: by name of the pipeline, the function that executes its run, in the order in which the runs get their
        first turns. The function's argument is the run's :class:`SharedTurn`, whose ``check`` it has to call repeatedly
    :param limits: limits of the runs that share the process
    """

    def __init__(self, runs: Mapping[str, Callable[[SharedTurn], T]], limits: Limits) -> None:
        self._runs = runs
        self._limits = limits
        self._order = DeficitRoundRobin(
            runs, limits.quantum, limits.at_once, limits.most_in_progress, limits.turns_each
        )
        self._changed = threading.Condition()
        self._ended: SimpleQueue[tuple[str, T | Exception]] = SimpleQueue()
        self._stopped = threading.Event()
        self._threads: dict[str, threading.Thread] = {}

    def run(self) -> dict[str, T | Exception]:
        """Execute all runs, and return by pipeline name the result of each, or the exception with which it failed.

        An exception in the calling thread, such as that of a signal, stops the runs in progress: they release their
        leases, and no other run begins. The exception is raised again afterwards.
        """
        results: dict[str, T | Exception] = {}
        try:
            self.change(lambda _: None)
            while len(results) < len(self._runs):
                name, result = self._ended.get()
                results[name] = result
        except BaseException:
            self._stop()
            raise
        return results

    def change(self, change: Callable[[DeficitRoundRobin], None]) -> None:
        """Change the state of the turns; then begin the runs that get their first turn, and wake the waiting threads.

        If the system cannot start a thread, the run of this thread has failed; other runs go on.

        :param change: function that makes the change
        """
        with self._changed:
            change(self._order)
            for name in () if self._stopped.is_set() else self._order.grant():
                if name not in self._threads:  # else it resumes
                    thread = threading.Thread(target=self._work, args=(name,), name=f"ckpt-run-{name}", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError as error:
                        self.change(partial(DeficitRoundRobin.end, table=name))
                        self._ended.put((name, error))
                    else:
                        self._threads[name] = thread
            self._changed.notify_all()

    def wait_for_turn(self, name: str, seconds: float) -> bool:
        """Wait until a run has its turn, or the time is over; return whether the run has its turn.

        :param name: name of the run's pipeline
        :param seconds: longest time to wait
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._order.is_working(name), seconds)

    def most_lanes(self, name: str) -> int | None:
        """Return the largest number of lanes that a run may occupy now; None for no limit.

        :param name: name of the run's pipeline
        """
        with self._changed:
            return None if self._order.is_alone(name) else self._limits.lanes_each

    def must_pause(self, name: str, *, sleeps: bool) -> bool:
        """Return whether a run is to pause now, so that another one can begin or resume.

        :param name: name of the run's pipeline
        :param sleeps: whether the run waits for something other than its turn, such as a retry time; then it is to
            pause whatever the number of its turns
        """
        with self._changed:
            return self._order.must_pause(name, sleeps=sleeps)

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds, or until the runs must stop.

        :param seconds: time to wait
        :raises RunStoppedError: if the runs must stop
        """
        self._stopped.wait(seconds)
        self.check()

    def check(self) -> None:
        """Raise an error if the runs must stop.

        :raises RunStoppedError: if they must stop
        """
        if self._stopped.is_set():
            raise RunStoppedError

    def _work(self, name: str) -> None:
        """Execute a run and record its result, unless all runs must stop; this is the function of the run's thread.

        :param name: name of the run's pipeline
        """
        try:
            result: T | Exception = self._runs[name](SharedTurn(self, name))
        except RunStoppedError:
            return
        except BaseException as error:  # noqa: BLE001  # thread boundary: it is the run's result
            result = error if isinstance(error, Exception) else RuntimeError(repr(error))
        self.change(lambda order: order.end(name))
        self._ended.put((name, result))

    def _stop(self) -> None:
        """Begin no more runs, and wait until those in progress have stopped, but not longer than 20 s."""
        self._stopped.set()
        deadline = time.monotonic() + _STOP_SECONDS
        with self._changed:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            log.warning("Some runs did not stop within %g s; they end with this process", _STOP_SECONDS)


class SharedTurn(Turn):
    """Permission of one run of a :class:`ParallelRuns` to execute waves, which the run has only during its turns.

    :param runs: the runs that share the process
    :param name: name of the run's pipeline
    """

    def __init__(self, runs: ParallelRuns[T], name: str) -> None:
        super().__init__()
        self._runs = runs
        self._name = name
        self._seconds_idle = 0.0

    def check(self) -> None:
        """Raise an error if the run must stop.

        :raises RunStoppedError: if the run must stop
        """
        self._runs.check()

    @property
    def most_lanes(self) -> int | None:
        """Largest number of lanes of the run's next wave; None for as many as the pipeline declares.

        There is a limit only while another run has its turn or waits for it.
        """
        return self._runs.most_lanes(self._name)

    def charge(self, records: int) -> None:
        """Subtract the records of a wave that has ended from the run's quantum; the turn may end by this.

        The turn ends if the quantum is used up, or the wave has read nothing, and another run waits for a turn.

        :param records: number of records that the wave has read
        """
        self._runs.change(lambda order: order.charge(self._name, records))

    def leave(self) -> None:
        """End the run's turn, so that another run may have one.

        Records that the run read beyond the quantum are still subtracted from its next turn.
        """
        self._runs.change(lambda order: order.sleep(self._name))

    def take(self, seconds: float) -> bool:
        """Request the run's next turn, unless the run has its turn already, and wait; return whether it has its turn.

        :param seconds: longest time to wait
        """
        self._runs.change(lambda order: order.ask(self._name))
        return self._runs.wait_for_turn(self._name, seconds)

    def must_pause(self, seconds_used: float, seconds_idle: float) -> bool:
        """Return whether the run must pause, to make room for a run that waits to begin or to resume.

        A run pauses only if the number of runs in progress is at its limit. A run that could execute a wave then pauses
        after :attr:`Limits.turns_each` turns, and a run that has nothing to do pauses at once.

        :param seconds_used: seconds of its time budget that the run has used
        :param seconds_idle: seconds for which the run has nothing to do; 0 if it could execute a wave now
        """
        self.is_paused = self._runs.must_pause(self._name, sleeps=seconds_idle > 0)
        self.seconds_used, self._seconds_idle = seconds_used, seconds_idle
        return self.is_paused

    def resume(self) -> None:
        """Wait until this paused run has something to do, and then until it has its next turn.

        The time for which the run has nothing to do (``seconds_idle`` of :meth:`must_pause`) counts against its time
        budget; the wait for the turn does not.

        :raises RunStoppedError: if the process is to end all of its runs
        """
        self._runs.change(lambda order: order.pause(self._name))
        self._runs.sleep(self._seconds_idle)
        self.seconds_used += self._seconds_idle
        while not self.take(_CHECK_SECONDS):
            self._runs.check()
        self.is_paused = False
