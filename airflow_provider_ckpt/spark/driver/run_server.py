"""Server of a standing driver, a Spark application that stays up between runs.

It executes the runs of its clients, each run in a thread and Spark session of its own.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.spark.driver import standing_protocol
from airflow_provider_ckpt.spark.driver.memory import Memory
from airflow_provider_ckpt.spark.driver.run_directory_protocol import DriverSide
from airflow_provider_ckpt.spark.driver.served_run import ServedRun
from airflow_provider_ckpt.spark.driver.stopped import is_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_ckpt.spark.job import Job

log = logging.getLogger(__name__)

_CHECK_INTERVAL = 1.0
"""Seconds between two checks of whether the driver must end."""

_REQUEST_SECONDS = 5.0
"""Seconds that a client may take to send its request, and to confirm that it has seen the acceptance of its run."""

_CANCEL_PAUSE = 0.1
"""Seconds between two attempts to cancel the Spark jobs of a run whose client is gone."""

_MAX_RUNS = 1000
"""Number of runs after which the driver accepts no more, so that leaks in Spark or in a user's code are bounded."""

_MAX_LOG = 10 << 20
"""Size in bytes of the file of Spark's output above which the file is emptied."""


class RunServer:
    """Server that executes the runs of its clients in one Spark application, and ends after a time without runs.

    :param home: the driver's own directory, with its socket, lock and log
    :param spark: the session that Spark started with, from which each run's session is created
    :param idle: seconds without runs after which the driver ends; each run may change it
    """

    def __init__(self, home: Path, spark: SparkSession, idle: float) -> None:
        from airflow_provider_ckpt.spark.driver.sessions import Sessions

        self._home = home
        self._directory = standing_protocol.directory_of(home)
        self._spark = spark
        self._sessions = Sessions(spark)
        self._memory = Memory(spark)
        self._idle = idle
        self._lock = threading.Lock()
        self._clients = 0
        self._runs: dict[int, ServedRun] = {}
        self._accepted = 0
        self._served = 0
        self._draining = False
        self._ended = False
        self._started_at = time.time()
        self._used = time.monotonic()
        self._listener = self._listen()

    def serve(self) -> bool:
        """Accept connections, each in a thread of its own, until the driver ends.

        :return: False if the driver ends while runs are in progress, because it was asked to end now or Spark has
            stopped
        """
        with self._listener:
            while not self._must_end():
                if select.select([self._listener], [], [], _CHECK_INTERVAL)[0]:
                    connection, _ = self._listener.accept()
                    with self._lock:
                        self._clients += 1
                    threading.Thread(target=self._answer, args=(connection,), name="ckpt-client", daemon=True).start()
        return not self._runs

    def _listen(self) -> socket.socket:
        """Bind the socket under a temporary name; return it once it accepts connections as :data:`SOCKET`."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(standing_protocol.short_path(self._directory, "socket.new"))
        (self._home / "socket.new").chmod(0o600)
        listener.listen(128)
        (self._home / "socket.new").rename(self._home / standing_protocol.SOCKET)
        (self._home / standing_protocol.STARTING).unlink(missing_ok=True)
        return listener

    def _must_end(self) -> bool:
        """Stop accepting runs if the driver is idle, worn out or unreachable; return True if the driver must end now.

        The driver is worn out after :data:`_MAX_RUNS` runs or if its memory exceeds a limit, and unreachable if its
        socket was deleted.
        """
        self._shorten_log()
        stopped = is_stopped(self._spark)
        with self._lock:
            idle = not self._has_clients() and time.monotonic() - self._used > self._idle
            worn_out = self._served >= _MAX_RUNS or self._memory.has_grown
            unreachable = not self._draining and not (self._home / standing_protocol.SOCKET).exists()
            if idle or worn_out or unreachable:
                self._drain()
            return self._ended or stopped or (self._draining and not self._runs)

    def _has_clients(self) -> bool:
        """Return whether a client is connected, or waits for its connection to be accepted."""
        return self._clients > 0 or bool(select.select([self._listener], [], [], 0)[0])

    def _drain(self) -> None:
        """Accept no more runs, and rename the socket so that clients notice; runs in progress go on."""
        if not self._draining:
            self._draining = True
            with suppress(FileNotFoundError):
                (self._home / standing_protocol.SOCKET).rename(self._home / standing_protocol.DRAINING)

    def _shorten_log(self) -> None:
        """Empty the file of the driver's and Spark's output when it is larger than :data:`_MAX_LOG`."""
        path = self._home / standing_protocol.LOG
        with suppress(OSError):
            if path.stat().st_size > _MAX_LOG:
                os.truncate(path, 0)

    def _answer(self, connection: socket.socket) -> None:
        """Serve one connection, in a thread of its own; at the end, reduce the number of connected clients.

        :param connection: connection to the client
        """
        try:
            self._answer_request(connection)
        finally:
            with self._lock:
                self._clients -= 1

    def _answer_request(self, connection: socket.socket) -> None:
        """Read a client's request, carry it out, and close the connection.

        A client may ask to serve a run, to stop the driver, or for the driver's status. A client of another user gets
        no answer.

        :param connection: connection to the client
        """
        with connection:
            if not standing_protocol.is_same_user(connection):
                return
            connection.settimeout(_REQUEST_SECONDS)
            try:
                request = standing_protocol.read_line(connection)
                connection.settimeout(None)
                if "run" in request:
                    self._serve_run(connection, request)
                elif "stop" in request:
                    standing_protocol.send_line(connection, self._stop(request["stop"]))
                else:
                    standing_protocol.send_line(connection, self._status())
            except (OSError, ValueError, LookupError, TypeError) as error:
                log.warning("A connection ended: %s", error)

    def _stop(self, when: str) -> dict[str, Any]:
        """Accept no more runs, and return the number of runs in progress as ``{"runs": number}``.

        :param when: ``now`` ends the driver at once, with the runs in progress; ``after runs`` ends it when these have
            ended; ``if idle`` ends it only if there are none, and otherwise changes nothing
        """
        with self._lock:
            if not (when == "if idle" and self._runs):
                self._drain()
            self._ended = self._ended or when == "now"
            return {"runs": len(self._runs)}

    def _status(self) -> dict[str, Any]:
        """Return the state of the driver and its runs, JSON-ready, for the command ``airflow ckpt spark status``."""
        from importlib.metadata import version

        from pyspark import __version__ as spark_version

        with self._lock:
            runs = list(self._runs.values())
            served, draining = self._served, self._draining
        return {
            "pid": os.getpid(),
            "version": version("airflow-provider-ckpt"),
            "spark": spark_version,
            "python": sys.version.split()[0],
            "age_seconds": round(time.time() - self._started_at, 1),
            "idle_seconds": 0.0 if runs else round(time.monotonic() - self._used, 1),
            "ends_after_idle_seconds": self._idle,
            "runs_served": served,
            "memory_bytes": self._memory.total(),
            "sessions": self._sessions.count,
            "accepts_runs": not draining,
            "log": str(self._home / standing_protocol.LOG),
            "runs": [
                {"pipeline": run.pipeline, "epoch": run.epoch, "seconds": round(time.monotonic() - run.started, 1)}
                for run in runs
            ],
        }

    def _serve_run(self, connection: socket.socket, request: dict[str, Any]) -> None:
        """Serve a run until its client closes the connection; then cancel its Spark jobs in progress.

        The driver tells the client that it accepts the run, and reads the run directory only after the client has
        confirmed this. A client that does not confirm has given up waiting, and another driver may be using its run
        directory.

        :param connection: connection to the client
        :param request: the client's request: path of the run directory (``run``), and the seconds without runs after
            which the driver is to end (``idle``)
        """
        run = self._accept(connection, float(request["idle"]))
        if run is None:
            return
        try:
            connection.settimeout(_REQUEST_SECONDS)
            run.notify()
            if run.client_gone or connection.recv(1) != standing_protocol.BELL:
                return
            connection.settimeout(None)
            worker = threading.Thread(target=self._work, args=(run, str(request["run"])), name="ckpt-run", daemon=True)
            worker.start()
            with suppress(OSError):
                while connection.recv(64):
                    run.bell.set()
            run.client_gone = True
            run.bell.set()
            worker.join(_CANCEL_PAUSE)
            while worker.is_alive():  # repeatedly, since a job may be submitted just after its group was cancelled
                self._spark.sparkContext.cancelJobGroup(run.group)
                worker.join(_CANCEL_PAUSE)
            self._memory.measure()
        finally:
            with self._lock:
                del self._runs[run.slot]
                self._served += 1
                self._used = time.monotonic()

    def _accept(self, connection: socket.socket, idle: float) -> ServedRun | None:
        """Register a new run and return it; return None if the driver accepts no more runs.

        :param connection: connection to the run's client
        :param idle: seconds without runs after which the driver is to end, from now on
        """
        with self._lock:
            if self._draining:
                return None
            self._idle = idle
            slot = next(number for number in range(len(self._runs) + 1) if number not in self._runs)
            self._accepted += 1
            run = self._runs[slot] = ServedRun(self._accepted, slot, connection)
            return run

    def _work(self, run: ServedRun, directory: str) -> None:
        """Execute a run in the current thread, whose Spark jobs have a job group and a scheduler pool of their own.

        At the end the connection is shut down, by which the client notices that the run is no longer served.

        :param run: the run
        :param directory: path of the run directory
        """
        side = DriverSide(directory, wait=run.wait, notify=run.notify)
        try:
            job = side.job()
            run.pipeline, run.epoch = job.context.pipeline, job.context.epoch
            context = self._spark.sparkContext
            context.setJobGroup(run.group, f"{run.pipeline}, epoch {run.epoch}")
            context.setLocalProperty("spark.scheduler.pool", f"ckpt-{run.slot}")
            self._serve_job(side, job)
        except Exception:
            if not run.client_gone:
                log.exception("The run of %s failed", run.pipeline)
        finally:
            with suppress(OSError):  # the client may have closed it
                run.connection.shutdown(socket.SHUT_RDWR)

    def _serve_job(self, side: DriverSide, job: Job) -> None:
        """Execute a run's waves in a Spark session with the properties of the pipeline's declaration.

        If such a session cannot be created, the error is sent to the lease holder and nothing is executed.

        :param side: the driver's operations on the run directory
        :param job: description of the run
        """
        from airflow_provider_ckpt.core.errors import CkptError
        from airflow_provider_ckpt.spark.driver.serve import serve

        try:
            session = self._sessions.take(job)
        except CkptError as error:
            side.failed(0, error.info, final=True)
            return
        serve(session, side, job)
        self._sessions.give_back(job, session)
