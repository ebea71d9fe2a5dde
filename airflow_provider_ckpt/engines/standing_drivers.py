"""Find the standing drivers of this user, start one, ask them for their state, and stop them.

A standing driver is a Spark application that stays on the machine between runs; ``standing_driver.py`` describes a
single one. A lock on the runtime directory lets only one run at a time start or stop drivers.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import EngineError
from airflow_provider_ckpt.engines.failed_starts import FailedStart, FailedStarts
from airflow_provider_ckpt.engines.runtime_directory import open_runtime_directory
from airflow_provider_ckpt.engines.standing_driver import StandingDriver

if TYPE_CHECKING:
    import socket

    from airflow_provider_ckpt.config.pipeline import Pipeline

_PAUSE = 0.05
_START_SECONDS = 180.0
"""Seconds that a driver may take to start on a busy machine.

A run waits equally long while other drivers are started.
"""


@dataclass(frozen=True)
class DriverState:
    """State of one standing driver.

    :param key: key of the driver
    :param reported: status that the driver itself reports, such as its pid, runs and idle time; None if it does not
        answer in time
    """

    key: str
    reported: dict[str, Any] | None


class StandingDrivers:
    """All standing drivers of this user on this machine, as a context manager that opens the runtime directory.

    :param create: whether to create the runtime directory if it does not exist
    :raises FileNotFoundError: if the runtime directory does not exist and is not to be created
    :raises EngineError: if the runtime directory cannot be used, or another user could use it
    """

    def __init__(self, *, create: bool) -> None:
        self._path, self._descriptor = open_runtime_directory(create=create)
        self._failed_starts = FailedStarts(self._path)

    def __enter__(self) -> StandingDrivers:
        """Return this object, whose file descriptor of the runtime directory is open."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file descriptor of the runtime directory; the drivers go on."""
        os.close(self._descriptor)

    def connect(self, key: str) -> socket.socket | None:
        """Return a socket connection to a standing driver that accepts runs; None if there is none.

        :param key: key that the driver must have (see ``driver_key.py``)
        """
        return next(filter(None, (driver.connect() for driver in self._all() if driver.key == key)), None)

    def connect_or_start(
        self,
        find_key: Callable[[], str],
        pipeline: Pipeline,
        *,
        idle: float,
        limit: int,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> socket.socket:
        """Return a socket connection to a standing driver that can serve this run; start one if there is none.

        If several runs call this at the same time, one of them starts the driver, and the others wait for it.

        :param find_key: function that returns the key that the driver must have (see ``driver_key.py``); an upgrade may
            change the key during the wait or the start
        :param pipeline: declaration of the pipeline whose run needs the driver
        :param idle: seconds without runs after which a new driver ends
        :param limit: maximum number of drivers of this user; a driver without runs is stopped to make room for another
        :param is_stopped: function that returns whether to end the wait, because the run was killed
        :raises EngineError: if no driver can be started
        """
        with self._starting(is_stopped):
            key = find_key()
            found = self.connect(key)
            if found is not None:
                return found
            self._failed_starts.check(key)
            starting = self._find_starting(key)
            if starting is None:
                self._make_room(limit)
            return self._start(starting, key, find_key, pipeline, idle, is_stopped)

    def states(self) -> list[DriverState]:
        """Return the state of each running driver, after asking the driver for it."""
        return [DriverState(driver.key, driver.ask({"status": True})) for driver in self._living()]

    def failed_starts(self) -> list[FailedStart]:
        """Return the failed starts after which no driver with the same key has started; see :class:`FailedStarts`."""
        return self._failed_starts.all()

    def stop(self, *, at_once: bool) -> list[DriverState]:
        """Ask every driver to end, and return the states that the drivers had before.

        If a run is just starting a driver, wait until the driver has started, and stop it too. Delete the directories
        of drivers that were killed.

        :param at_once: whether drivers end without waiting for their runs to end; each of these runs then starts a
            Spark of its own and continues
        :raises EngineError: if a start in progress takes too long
        """
        before = []
        with self._starting(lambda: False):
            for driver in self._all():
                if not driver.is_living:
                    driver.remove_directory()
                    continue
                session = driver.session()
                if session is not None and driver.is_starting:  # the run that began the start was killed
                    before.append(DriverState(driver.key, None))
                    driver.await_end(session, seconds=0)
                    continue
                before.append(DriverState(driver.key, driver.ask({"status": True})))
                reported = driver.ask({"stop": "now" if at_once else "after runs"})
                if at_once or (not reported["runs"] if reported is not None else driver.is_ending()):
                    driver.await_end(session)
        return before

    def last_error(self, key: str) -> str:
        """Return the last error in the output of the newest driver with the given key; empty if there is none."""
        return next((driver.last_error() for driver in self._all() if driver.key == key), "")

    @contextmanager
    def _starting(self, is_stopped: Callable[[], bool]) -> Iterator[None]:
        """Hold, inside the ``with`` block, the lock under which drivers are started and stopped.

        The runtime directory itself is locked: a lock file in it could be removed and created again while it is locked.

        :param is_stopped: function that returns whether to end the wait for the lock, because the run was killed
        :raises EngineError: if the wait was ended, or took too long
        :raises OSError: if the runtime directory has been removed meanwhile
        """
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if is_stopped() or time.monotonic() > deadline:
                    raise EngineError(
                        f"other standing drivers were still starting after {_START_SECONDS:g} s"
                    ) from None
                time.sleep(_PAUSE)
        try:
            if not os.path.samestat(self._path.stat(), os.fstat(self._descriptor)):
                raise FileNotFoundError(f"{self._path} was removed and created again")
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _start(
        self,
        starting: StandingDriver | None,
        key: str,
        find_key: Callable[[], str],
        pipeline: Pipeline,
        idle: float,
        is_stopped: Callable[[], bool],
    ) -> socket.socket:
        """Start a driver, wait until it accepts runs, and return a connection to it; record the failure if it does not.

        :param starting: driver whose start another run has begun; None to start a new one
        :param key: key of the driver
        :param find_key: function that returns the current key, to detect that it changed during the start
        :param pipeline: declaration of the pipeline whose run needs the driver
        :param idle: seconds without runs after which the driver ends
        :param is_stopped: function that returns whether to end the wait, because the run was killed
        :raises EngineError: if the driver ends before it accepts runs or takes too long, or if the key changed
        """
        from airflow_provider_ckpt.engines.standing_launcher import StandingLauncher

        launcher = None
        driver = starting or self._driver(f"{key}-{secrets.token_hex(4)}")
        try:
            if starting is None:
                driver.create_directory()
                launcher = StandingLauncher(pipeline, driver.home, idle)
                driver.record_process(launcher.start())
            connection = _await_start(driver, is_stopped)
            if find_key() != key:
                connection.close()
                raise EngineError("the installed packages or the environment changed while it started")
        except BaseException as error:
            if not is_stopped():  # if the run was killed, its driver goes on starting, for the next run
                if isinstance(error, Exception):
                    self._failed_starts.record(key, driver.output, error)
                driver.await_end(driver.session(), seconds=0)
            raise
        self._failed_starts.forget(key)
        if launcher is not None:
            launcher.prepare_next_start()
        return connection

    def _make_room(self, limit: int) -> None:
        """Remove the directories of dead drivers, and stop drivers without runs until fewer than ``limit`` are running.

        Drivers that are about to end are stopped first, then those that have been without runs for longest.

        :param limit: number of drivers of this user below which another may be started
        :raises EngineError: if too many drivers serve runs
        """
        drivers = self._all()
        living = [driver for driver in drivers if driver.is_living]
        for driver in drivers:
            if driver not in living:
                driver.remove_directory()
        if len(living) < limit:
            return
        sessions = {driver: driver.session() for driver in living}
        states = {driver: driver.ask({"status": True}) for driver in living}
        ending = [driver for driver, reported in states.items() if reported is None and driver.is_ending()]
        waiting = {
            driver: reported["idle_seconds"] for driver, reported in states.items() if reported and not reported["runs"]
        }
        for driver in (*ending, *sorted(waiting, key=lambda driver: -waiting[driver])):
            if len(living) < limit:
                break
            reported = {"runs": 0} if driver in ending else driver.ask({"stop": "if idle"})
            if reported is not None and not reported["runs"]:
                driver.await_end(sessions[driver])
                living.remove(driver)
        if len(living) >= limit:
            raise EngineError(
                f"{len(living)} standing drivers are busy with runs, and [ckpt] warm_spark_servers allows {limit}"
            )

    def _driver(self, name: str) -> StandingDriver:
        return StandingDriver(self._path, self._descriptor, name)

    def _all(self) -> list[StandingDriver]:
        """Return the drivers that have a directory below the runtime directory, the newest first."""
        found = []
        with os.scandir(self._descriptor) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # a driver removes its directory when it ends
                    if entry.is_dir(follow_symlinks=False):
                        found.append((-entry.stat(follow_symlinks=False).st_mtime, entry.name))
        return [self._driver(name) for _, name in sorted(found)]

    def _living(self) -> list[StandingDriver]:
        """Return the drivers whose process lives or whose lock is held, also those that are starting or ending."""
        return [driver for driver in self._all() if driver.is_living]

    def _find_starting(self, key: str) -> StandingDriver | None:
        """Return the standing driver with the given key that has begun to start; None if there is none.

        The caller holds the lock of :meth:`_starting`, which the run that began the start held until then. So that run
        was killed while the driver started.

        :param key: key of the driver
        """
        return next((driver for driver in self._all() if driver.key == key and driver.is_starting), None)


def _await_start(driver: StandingDriver, is_stopped: Callable[[], bool]) -> socket.socket:
    """Wait until a driver accepts runs, and return a connection to it.

    :param driver: the driver
    :param is_stopped: function that returns whether to end the wait, because the run was killed
    :raises EngineError: if the driver ends before it accepts runs, or takes longer than :data:`_START_SECONDS`
    """
    deadline = time.monotonic() + _START_SECONDS
    while (connection := driver.connect()) is None:
        if not driver.is_living:
            raise EngineError(
                f"the standing driver ended while it started: {driver.last_error() or 'it printed no error'}"
            )
        if is_stopped() or time.monotonic() > deadline:
            raise EngineError(f"the standing driver did not accept a run within {_START_SECONDS:g} s")
        time.sleep(_PAUSE)
    return connection
