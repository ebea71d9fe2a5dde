"""``warm`` engine: the runs of all pipelines of this user share a Spark that stays on the machine between runs.

The first run starts a standing driver (``spark/driver/standing.py``), and later runs find it. A run that finds no
driver and cannot start one, or that loses its driver, starts a Spark of its own, as with the ``submit`` engine.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import EngineError
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.engines.driver_key import driver_key
from airflow_provider_ckpt.engines.run_directory_engine import NOTHING_LOST, PAUSE, RunDirectoryEngine
from airflow_provider_ckpt.engines.standing_drivers import StandingDrivers
from airflow_provider_ckpt.engines.submit import SubmitEngine
from airflow_provider_ckpt.replication.run.engine_protocol import Check, EngineInfo
from airflow_provider_ckpt.spark.driver import standing_protocol
from airflow_provider_ckpt.spark.driver.session_conf import static_part

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.engines.run_directory import RunDirectory
    from airflow_provider_ckpt.spark.job import Job

log = logging.getLogger(__name__)

_KILL_SECONDS = 2.0
_ACCEPT_SECONDS = 5.0
_TRIES = 3
"""Number of drivers that a run tries before it starts a Spark of its own: one may end while the run connects to it."""


class WarmEngine:
    """Engine that runs waves on a standing driver, or on a Spark of this run's own if no standing driver can be used.

    It implements :class:`~.engine_protocol.Engine`.

    :param pipeline: the pipeline's declaration; its Spark properties decide which driver can serve it
    :param on_ready: called with the properties of Spark once Spark has started or the driver was found
    """

    def __init__(self, pipeline: Pipeline, on_ready: Callable[[EngineInfo], None] | None = None) -> None:
        self._pipeline = pipeline
        self._on_ready = on_ready
        self._killed = False
        self._job: Job | None = None
        self._engine: RunDirectoryEngine = StandingEngine(pipeline, on_ready)

    @property
    def started(self) -> bool:
        """Return whether :meth:`start` was called."""
        return self._engine.started

    @property
    def loss_blames_batch(self) -> bool:
        """Return whether the loss of Spark during a wave of one batch counts as a failure of that batch.

        This is False with a standing driver, which may have ended because of another run's batch.
        """
        return not self._is_standing

    def start(self, job: Job) -> None:
        """Begin to look for a standing driver, and return at once.

        :param job: description of the run
        """
        self._job = job
        self._engine.start(job)

    def ready(self, check: Check) -> EngineInfo:
        """Wait until the standing driver, or else a Spark of this run's own, is ready; see :meth:`Engine.ready`.

        :param check: called repeatedly while waiting; it raises an error if the run must stop
        :return: Spark's parallelism and the columns of the transform's result
        """
        try:
            return self._engine.ready(check)
        except EngineError as error:
            if self._killed or not self._is_standing:
                raise
            name = self._pipeline.name
            log.warning(
                "%s: no standing Spark driver can be used, so this run starts a Spark of its own: %s",
                name,
                error.message,
            )
        self._start_own_spark()
        assert self._job is not None
        self._engine.start(self._job)
        return self._engine.ready(check)

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Run a wave on the standing driver, or on this run's own Spark, and return an outcome for each of its batches.

        :param wave: the batches, by lane
        :param check: called repeatedly while waiting; it raises an error if the run must stop
        """
        return self._engine.run(wave, check)

    def revive(self) -> bool:
        """Reset the engine after Spark was lost, so that :meth:`start` begins a Spark of this run's own.

        :return: False after :meth:`kill`: the engine must not be started again
        """
        if self._killed:
            return False
        if not self._is_standing:
            return self._engine.revive()
        self._start_own_spark()
        log.warning(
            "%s: the standing Spark driver was lost, so this run continues with a Spark of its own", self._pipeline.name
        )
        return True

    def kill(self) -> None:
        """Cancel the run's jobs in Spark within 2 s. May be called from a signal handler, and more than once."""
        self._killed = True
        self._engine.kill()

    def close(self) -> None:
        """End the run. A standing driver stays for other runs; a Spark of this run's own ends."""
        self._engine.close()

    @property
    def _is_standing(self) -> bool:
        return isinstance(self._engine, StandingEngine)

    def _start_own_spark(self) -> None:
        """Leave the standing driver, and replace its engine by an engine that starts a Spark for this run."""
        standing, self._engine = self._engine, SubmitEngine(self._pipeline, on_ready=self._on_ready)
        standing.close()
        if self._killed:  # kill() may have been called before the engine was replaced
            self._engine.kill()


class StandingEngine(RunDirectoryEngine):
    """Engine that runs waves on a standing driver, which it finds or starts.

    :param pipeline: the pipeline's declaration; its Spark properties decide which driver can serve it
    :param on_ready: called with the properties of Spark once the driver has accepted the run and checked its transform
    """

    def __init__(self, pipeline: Pipeline, on_ready: Callable[[EngineInfo], None] | None = None) -> None:
        super().__init__(pipeline, on_ready)
        self._left = False  # no Event or lock: a signal handler may set it while this thread does
        self._connections: list[socket.socket] = []  # at most one; the thread that pops it closes it
        self._finding: threading.Thread | None = None
        self._error: Exception | None = None

    def revive(self) -> bool:
        """Return False, since :class:`WarmEngine` continues with another engine instead."""
        return False

    def kill(self) -> None:
        """Have the driver cancel the run's Spark jobs, and wait up to 2 s until they have ended."""
        self._killed = True
        self._leave(_KILL_SECONDS)

    def close(self) -> None:
        """End the run; the driver stays for other runs."""
        self._leave(0)

    def _launch(self, directory: RunDirectory) -> None:
        self._finding = threading.Thread(target=self._find, args=(str(directory.path),), name="ckpt-warm", daemon=True)
        self._finding.start()

    def _find(self, directory: str) -> None:
        """Connect to a driver that accepts this run; start one if there is none.

        This runs in a thread of its own. It stores an error, which the thread that waits for the driver's replies
        raises.

        :param directory: path of the run directory, which the driver is to read
        """
        try:
            with StandingDrivers(create=True) as drivers:
                for _ in range(_TRIES):
                    if self._left:  # the run has ended meanwhile, so no driver is started
                        return
                    connection = connect_or_start(drivers, self._pipeline, is_stopped=lambda: self._left)
                    if self._is_accepted(connection, directory):
                        return
            raise EngineError(f"{_TRIES} standing Spark drivers ended or refused the run")
        except Exception as error:  # noqa: BLE001  # thread boundary: reported to the waiting thread
            self._error = error
        finally:
            self._finding = None

    def _is_accepted(self, connection: socket.socket, directory: str) -> bool:
        """Ask a driver to serve this run, and return whether it does.

        :param connection: connection to the driver; it is kept if the driver accepts the run, else closed
        :param directory: path of the run directory, which the driver is to read
        """
        connection.settimeout(_ACCEPT_SECONDS)
        try:
            standing_protocol.send_line(connection, {"run": directory, "idle": idle_seconds()})
            accepted = connection.recv(1) == standing_protocol.BELL
            if accepted:
                connection.sendall(standing_protocol.BELL)
        except OSError:
            accepted = False
        if accepted:
            connection.settimeout(None)
            self._connections.append(connection)
            if self._left:  # the run ended before _leave() could see this connection
                self._leave(0)
        else:
            connection.close()
        return accepted

    def _is_alive(self) -> bool:
        if self._error is not None:
            return False
        connection = self._connection
        if connection is None:
            return self._finding is not None or self._connection is not None
        try:
            return connection.recv(1 << 10, socket.MSG_DONTWAIT) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    @property
    def _connection(self) -> socket.socket | None:
        return next(iter(self._connections), None)

    def _wait(self) -> None:
        connection, finding = self._connection, self._finding
        if connection is not None:
            poll = select.poll()
            with suppress(OSError, ValueError):  # a kill has closed it meanwhile
                poll.register(connection, select.POLLIN)
                poll.poll(PAUSE * 1000)
        elif finding is not None:
            finding.join(PAUSE)

    def _notify(self) -> None:
        connection = self._connection
        if connection is not None:
            with suppress(OSError):  # the driver has ended; the wait for its reply reports that
                connection.sendall(standing_protocol.BELL)

    def _end_error(self) -> EngineError:
        if self._error is not None:
            reason = self._error.message if isinstance(self._error, EngineError) else repr(self._error)
        else:
            reason = "the standing Spark driver ended"
            with suppress(OSError, EngineError), StandingDrivers(create=False) as drivers:
                printed = drivers.last_error(driver_key(static_part(self._pipeline.spark_properties)))
                reason += f"; the last error it printed: {printed}" if printed else ""
        return EngineError(f"{reason}.", pipeline=self._pipeline.name, hint=NOTHING_LOST)

    def _leave(self, seconds: float) -> None:
        """Close the connection to the driver, which ends the run there, and remove the run directory.

        :param seconds: longest time to wait until the driver has cancelled the run's Spark jobs; 0 to not wait
        """
        self._left = True
        with suppress(IndexError):
            connection = self._connections.pop()
            with connection, suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(seconds or None)
                while seconds and connection.recv(1 << 10):
                    pass
        self._remove_directory()


def is_enabled(pipeline: Pipeline) -> bool:
    """Return whether a pipeline's runs may use a standing driver.

    True on Linux with a local master, unless ``[ckpt] warm_spark`` is off or this process runs in a Kubernetes pod for
    a single task.

    :param pipeline: the pipeline's declaration
    """
    from airflow.configuration import conf

    return (
        sys.platform == "linux"
        and conf.getboolean("ckpt", "warm_spark", fallback=True)
        and not os.environ.get("AIRFLOW_IS_K8S_EXECUTOR_POD")
        and pipeline.run.conf.get("spark.master", "local").startswith("local")
    )


def connect_or_start(
    drivers: StandingDrivers, pipeline: Pipeline, *, is_stopped: Callable[[], bool] = lambda: False
) -> socket.socket:
    """Return a socket connection to a standing driver that can serve a pipeline; start one if there is none.

    :param drivers: the standing drivers of this user
    :param pipeline: the pipeline's declaration
    :param is_stopped: function that returns whether to end the wait for a start, because the run was killed
    :raises EngineError: if no driver can be started
    """
    from airflow.configuration import conf

    def find_key() -> str:
        return driver_key(static_part(pipeline.spark_properties))

    found = drivers.connect(find_key())
    if found is not None:
        return found
    log.info("Starting a standing Spark driver for %s; later runs use it too", pipeline.name)
    limit = conf.getint("ckpt", "warm_spark_servers", fallback=2)
    return drivers.connect_or_start(find_key, pipeline, idle=idle_seconds(), limit=limit, is_stopped=is_stopped)


def idle_seconds() -> float:
    """Return the configured number of seconds without runs after which a standing driver ends."""
    from airflow.configuration import conf

    return conf.getfloat("ckpt", "warm_spark_idle", fallback=600.0)
