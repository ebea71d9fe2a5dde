"""``submit`` engine: one Spark application for each run, started by the apache-spark provider's hook in client mode.

The driver and ``spark-submit`` are killed when the process that started them ends, so a killed task leaves no Spark
behind.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core.errors import EngineError
from airflow_provider_ckpt.engines import exit_reason
from airflow_provider_ckpt.engines.run_directory_engine import NOTHING_LOST, PAUSE, RunDirectoryEngine
from airflow_provider_ckpt.replication.run.engine_protocol import EngineInfo

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.engines.launcher import Launcher
    from airflow_provider_ckpt.engines.run_directory import RunDirectory

log = logging.getLogger(__name__)

_STOP_SECONDS = 20.0
_KILL_SECONDS = 2.0


class SubmitEngine(RunDirectoryEngine):
    """Engine that starts Spark for one run and sends it the run's waves.

    :param pipeline: the pipeline's declaration; its ``run`` part names the Spark connection and properties; without a
        connection the master is ``local[*]``
    :param on_ready: called with the properties of Spark once Spark has started
    :param stop_seconds: seconds that Spark may take to end by itself after the last wave, before it is killed
    :param parent: directory in which the run directory is created; None for the temporary folder
    :ivar error: exception with which ``spark-submit`` ended; None while it runs, and if it ended without an error
    """

    loss_blames_batch = True

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        on_ready: Callable[[EngineInfo], None] | None = None,
        stop_seconds: float = _STOP_SECONDS,
        parent: Path | None = None,
    ) -> None:
        super().__init__(pipeline, on_ready, parent)
        self._stop_seconds = stop_seconds
        self._launcher: Launcher | None = None
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None

    def revive(self) -> bool:
        """Reset the engine after Spark ended by itself, so that it can be started again.

        :return: True if the engine can be started again; False after :meth:`kill`, when it must not be
        """
        if self._killed:
            return False
        self._remove_directory()
        self._protocol = self._launcher = self._thread = self.error = self._ready = None
        self.started = False
        return True

    def kill(self) -> None:
        """Kill ``spark-submit`` within 2 s; the driver dies with it.

        May be called from a signal handler, and more than once.
        """
        self._killed = True
        deadline = time.monotonic() + _KILL_SECONDS
        if self._thread is not None and self._launcher is not None:
            while self._thread.is_alive() and time.monotonic() < deadline and not self._launcher.kill():
                time.sleep(PAUSE)
            self._thread.join(max(0.0, deadline - time.monotonic()))
        self._remove_directory()

    def close(self) -> None:
        """Tell the driver that the run has ended, and kill it if it does not end within ``stop_seconds``."""
        if self._directory is not None and self._protocol is not None and self._thread is not None:
            with suppress(FileNotFoundError):  # a kill has removed the directory meanwhile
                self._protocol.stop()
            self._thread.join(self._stop_seconds)
        self.kill()

    def _launch(self, directory: RunDirectory) -> None:
        from airflow_provider_ckpt.engines.launcher import Launcher

        self._launcher = Launcher(self._pipeline, directory.path)
        self._thread = threading.Thread(target=self._work, name="ckpt-spark-submit", daemon=True)
        self._thread.start()
        log.info("Starting Spark for %s", self._pipeline.name)

    def _work(self) -> None:
        """Run ``spark-submit`` to its end, and store its error in :attr:`error`; runs in the engine's thread."""
        assert self._launcher is not None
        assert self._protocol is not None
        try:
            self._launcher.launch()
        except BaseException as error:  # noqa: BLE001  # thread boundary: reported to the waiting thread
            self.error = error
        finally:
            self._protocol.delete_job()

    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _notify(self) -> None:
        """Send nothing, since the driver reads the file of waves again every 20 ms."""

    def _end_error(self) -> EngineError:
        assert self._launcher is not None
        reason = exit_reason.explain(self._launcher.status, self._launcher.last_lines, self.error)
        return EngineError(f"Spark ended unexpectedly: {reason}.", pipeline=self._pipeline.name, hint=NOTHING_LOST)
