"""Run several pipelines in the threads of one process, some at a time; a run that fails does not stop the others."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Generic, TypeVar

from airflow_provider_ckpt.replication.run.engine_protocol import Check

log = logging.getLogger(__name__)

_STOP_SECONDS = 20.0
"""Longest time in seconds to wait for the runs in progress after they were asked to stop."""

T = TypeVar("T")


class RunStoppedError(BaseException):
    """Error that ends the thread of a run, because the process was asked to stop.

    It is a ``BaseException``, so that code which handles failures does not catch it.
    """


class ParallelRuns(Generic[T]):
    """Runs of several pipelines, each in a thread; they begin in the order in which they are given.

    :param runs: by pipeline name, the function that executes the run. It gets a function to call repeatedly, which
        raises :class:`RunStoppedError` if the run must stop
    :param at_once: largest number of runs in progress at a time, at least 1
    """

    def __init__(self, runs: Mapping[str, Callable[[Check], T]], at_once: int) -> None:
        self._waiting = deque(runs.items())
        self._ended: SimpleQueue[tuple[str, T | Exception]] = SimpleQueue()
        self._stopped = threading.Event()
        self._unfinished = len(runs)
        self._threads = [
            threading.Thread(target=self._work, name=f"ckpt-side-by-side-{number}", daemon=True)
            for number in range(min(at_once, len(runs)))
        ]

    @property
    def unfinished(self) -> int:
        """Number of runs that are in progress or have not begun."""
        return self._unfinished

    def run(self) -> dict[str, T | Exception]:
        """Execute all runs, and return by pipeline name the result of each, or the exception with which it failed.

        An exception in the calling thread, such as that of a signal, stops the runs in progress: they release their
        leases, and no other run begins. The exception is raised again afterwards.
        """
        results: dict[str, T | Exception] = {}
        try:
            for thread in self._threads:
                thread.start()
            while self._unfinished:
                name, result = self._ended.get()
                results[name] = result
                self._unfinished -= 1
        except BaseException:
            self._stop()
            raise
        return results

    def _work(self) -> None:
        """Execute waiting runs one after the other, until none is left or all must stop; each thread calls this."""
        while not self._stopped.is_set():
            try:
                name, execute = self._waiting.popleft()
            except IndexError:
                return
            try:
                result: T | Exception = execute(self._check)
            except RunStoppedError:
                return
            except BaseException as error:  # noqa: BLE001  # thread boundary: it is the run's result
                result = error if isinstance(error, Exception) else RuntimeError(repr(error))
            self._ended.put((name, result))

    def _check(self) -> None:
        if self._stopped.is_set():
            raise RunStoppedError

    def _stop(self) -> None:
        """Begin no more runs, and wait until those in progress have stopped, but not longer than 20 s."""
        self._stopped.set()
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            log.warning("Some runs did not stop within %g s; they end with this process", _STOP_SECONDS)
