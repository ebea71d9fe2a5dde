"""The ``submit`` engine: one Spark application for a run, started by the apache-spark provider's hook in client mode.

The driver executes waves that it finds in a run directory of mode 0700 (``spark/exchange.py``). Driver and
``spark-submit`` die with the process that started them, so a killed task leaves no Spark behind.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.core.errors import CkptError, ConfigError, EngineError, ErrorInfo, ErrorType
from airflow_provider_ckpt.core.wave import Outcome, Wave
from airflow_provider_ckpt.replication.engine import Check, Ready, WaveLostError
from airflow_provider_ckpt.spark.exchange import ControlSide
from airflow_provider_ckpt.spark.lifeline import die_with_parent

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.spark.job import Job

log = logging.getLogger(__name__)

_PAUSE = 0.03
_STOP_SECONDS = 20.0
_LAUNCH_SECONDS = 2.0
_TELLING = re.compile(r"(Error|Exception|ERROR)\b.*: ")
_LOCAL_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_CONF = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.variable.substitute": "false",  # or Spark would replace ${...} in a user's expression without a word
    "spark.speculation": "false",
}


class SubmitEngine:
    """Starts Spark for one run and hands it waves.

    :param pipeline: its ``run`` part says which Spark connection and properties to use; without a connection the master
        is ``local[*]``
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._directory: Path | None = None
        self._side: ControlSide | None = None
        self._hook: SparkSubmitHook | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._ready: Ready | None = None
        self.started = False

    def start(self, job: Job) -> None:
        """Launch ``spark-submit`` and return at once."""
        self.started = True
        self._directory = Path(tempfile.mkdtemp(prefix="ckpt-run-"))
        self._side = ControlSide(self._directory)
        self._side.offer(job)
        self._hook = _hook(self._pipeline, self._directory)
        self._thread = threading.Thread(target=self._submit, name="ckpt-spark-submit", daemon=True)
        self._thread.start()
        log.info("Starting Spark for %s", self._pipeline.name)

    def ready(self, check: Check) -> Ready:
        """Wait until Spark is up."""
        while self._ready is None:
            for reply in self._replies(check):
                if "ready" in reply:
                    self._ready = Ready(reply["ready"], [(name, kind) for name, kind in reply["columns"]])
                else:
                    raise _final(ErrorInfo.from_json(reply["error"]), self._pipeline.name)
        return self._ready

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Work a wave off."""
        assert self._side is not None
        self._side.send(wave)
        while True:
            for reply in self._replies(check):
                if reply.get("wave") != wave.number:
                    continue
                if "outcomes" in reply:
                    return [Outcome.from_json(item) for item in reply["outcomes"]]
                error = ErrorInfo.from_json(reply["error"])
                raise _final(error, self._pipeline.name) if reply["final"] else WaveLostError(error)

    def kill(self) -> None:
        """End ``spark-submit``; the driver dies with it. A second time nothing happens."""
        deadline = time.monotonic() + _LAUNCH_SECONDS
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < deadline:
            process = getattr(self._hook, "_submit_sp", None)  # appears a moment after the thread has started
            if process is not None:
                process.kill()
                break
            time.sleep(_PAUSE)
        self._clean()

    def close(self) -> None:
        """Ask the driver to end, and make it end if it does not."""
        if self._directory is not None and self._side is not None and self._thread is not None:
            self._side.stop()
            self._thread.join(_STOP_SECONDS)
        self.kill()

    def _submit(self) -> None:
        assert self._hook is not None
        try:
            self._hook.submit(str(_driver()), preexec_fn=die_with_parent)
        except BaseException as error:  # noqa: BLE001  # the thread's boundary: told to whoever waits
            self._error = error

    def _replies(self, check: Check) -> list[dict[str, Any]]:
        """What the driver says next; waits for it.

        :raises EngineError: if Spark has ended
        """
        assert self._side is not None
        assert self._thread is not None
        while True:
            check()
            alive = self._thread.is_alive()
            replies = self._side.replies()
            if replies:
                return replies
            if not alive:
                raise EngineError(
                    f"Spark ended unexpectedly: {_reason(self._error, self._hook)}",
                    pipeline=self._pipeline.name,
                    hint="Nothing is lost: the next run finds out from the receipts what was delivered.",
                )
            time.sleep(_PAUSE)

    def _clean(self) -> None:
        if self._side is not None:
            self._side.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


def _hook(pipeline: Pipeline, directory: Path) -> SparkSubmitHook:
    """The provider's hook, with our properties in a file of mode 0600 and the worker's interpreter."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    class Hook(SparkSubmitHook):
        """Falls back to a local master, not to YARN, where the pipeline names no Spark connection."""

        def _resolve_connection(self) -> dict[str, Any]:
            if pipeline.run.connection:
                return super()._resolve_connection()
            return {
                "master": pipeline.run.conf.get("spark.master", "local[*]"),
                "queue": None,
                "deploy_mode": "client",
                "spark_binary": "spark-submit",
                "namespace": None,
                "principal": None,
                "keytab": None,
                "rest_scheme": "http",
                "rest_port": 6066,
                "rest_endpoint": None,
            }

    properties = directory / "spark.properties"
    hook = Hook(
        conn_id=pipeline.run.connection or "spark_default",
        name=f"ckpt {pipeline.name}",
        properties_file=str(properties),
        application_args=[str(directory)],
    )
    master = hook._connection["master"]
    if hook._connection["deploy_mode"] == "cluster":
        raise ConfigError(
            "the submit engine needs client mode, for the driver reads the run directory",
            pipeline=pipeline.name,
            hint=f"Set deploy-mode to client in Spark connection {pipeline.run.connection}.",
        )
    local = master.startswith("local")
    hook._env = _environment(local)
    if not local:
        hook._py_files = str(_package(directory))
    _write_properties(properties, {**_CONF, **(_LOCAL_CONF if local else {}), **pipeline.run.conf})
    return hook


def _environment(local: bool) -> dict[str, str]:
    """The worker's interpreter drives, and on a local master also executes; ``spark-submit`` is found beside it."""
    binaries = str(Path(sys.executable).parent)
    environment = {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PATH": binaries + os.pathsep + os.environ.get("PATH", ""),
    }
    if local and "PYSPARK_PYTHON" not in os.environ:
        environment["PYSPARK_PYTHON"] = sys.executable
    return environment


def _write_properties(path: Path, conf: dict[str, str]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        for name, value in conf.items():
            escaped = str(value).replace("\\", "\\\\").replace("\n", "\\n")
            file.write(f"{name}={escaped}\n")


def _package(directory: Path) -> Path:
    """This package as a zip, for executors that do not have it."""
    root = Path(__file__).resolve().parents[1]
    archive = shutil.make_archive(str(directory / "airflow_provider_ckpt"), "zip", root.parent, root.name)
    return Path(archive)


def _driver() -> Path:
    return Path(__file__).resolve().parents[1] / "spark" / "driver.py"


def _reason(error: BaseException | None, hook: SparkSubmitHook | None) -> str:
    """Why Spark ended: what it printed last, on one line."""
    lines = [str(line).strip(" :") for line in getattr(hook, "_last_submit_log_lines", ())]
    telling = [line for line in lines if _TELLING.search(line) and not line.startswith("at ")] or lines[-1:]
    if telling:
        return telling[-1]
    return str(error).splitlines()[0] if error else "it said nothing"


def _final(error: ErrorInfo, pipeline: str) -> CkptError:
    """An error of the job itself, such as an expression that does not parse."""
    known = {ErrorType.CONFIG: ConfigError}
    return known.get(error.type, EngineError)(error.message, pipeline=pipeline)
