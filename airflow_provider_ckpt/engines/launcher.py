"""The apache-spark provider's hook for one run: which master, which properties, which interpreter.

Properties travel in a file of mode 0600 in the run directory, since a user may have put a key among them.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections import deque
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.engines import warm_start
from airflow_provider_ckpt.engines.spark_log import SparkLog
from airflow_provider_ckpt.engines.warm_start import HeadStart
from airflow_provider_ckpt.ledger_location import airflow_connection
from airflow_provider_ckpt.spark.driver.parent_death import tied

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_PROPERTIES = "spark.properties"
_REMEMBERED_LINES = 500
_PACKAGE = Path(__file__).resolve().parents[1]
_CONF = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.codegen.hugeMethodLimit": "8000",  # Java interprets what is longer, which takes ten times as long
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.variable.substitute": "false",  # or Spark would replace ${...} in a user's expression without a word
    "spark.speculation": "false",
}
_LOCAL_CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_LOCAL = {
    "master": "local[*]",
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


class Launcher(SparkSubmitHook):
    """Runs ``spark-submit`` in client mode; without a Spark connection on a local master, not on YARN.

    :param pipeline: its ``run`` part names the Spark connection and further properties
    :param directory: the run directory
    :raises ConfigError: if the Spark connection is not defined or asks for cluster mode
    """

    def __init__(self, pipeline: Pipeline, directory: Path) -> None:
        self._run = pipeline.run
        self._properties = directory / _PROPERTIES
        super().__init__(
            conn_id=pipeline.run.connection or "spark_default",
            name=f"ckpt {pipeline.name}",
            properties_file=str(self._properties),
            application_args=[str(directory)],
        )
        self._log = SparkLog(self.log)
        if self._connection["deploy_mode"] == "cluster":
            raise ConfigError(
                "the submit engine needs client mode, for the driver reads the run directory",
                pipeline=pipeline.name,
                hint=f"Set deploy-mode to client in Spark connection {pipeline.run.connection}.",
            )
        local = self._connection["master"].startswith("local")
        self._env = environment(self._connection["spark_binary"])
        if local:
            self._env |= _local_environment(directory, pipeline.run.conf)
        self._head_start = None
        if warm_start.enabled():
            self._head_start = HeadStart(pipeline, {**os.environ, **self._env}, local=local)
        if not local:
            self._py_files = shutil.make_archive(str(directory / _PACKAGE.name), "zip", _PACKAGE.parent, _PACKAGE.name)
        conf = _CONF | (_LOCAL_CONF if local else {}) | (self._head_start.properties if self._head_start else {})
        _write_properties(self._properties, conf | pipeline.properties)
        self._last_submit_log_lines = deque(maxlen=_REMEMBERED_LINES)  # the hook's 20 may all be a stack trace's frames

    def launch(self) -> None:
        """Run the driver to its end; it dies with the calling thread.

        :raises AirflowException: if it ends with another status than 0
        """
        if self._head_start:
            self._env = {**(self._env or {}), **self._head_start.environment}
        self.submit(str(_PACKAGE / "spark" / "driver" / "app.py"))
        if self._head_start:
            self._head_start.for_the_next()

    def forget_properties(self) -> None:
        """Remove the properties, once Spark has read them."""
        self._properties.unlink(missing_ok=True)

    def kill(self) -> bool:
        """End ``spark-submit``; says whether there was one to end, for it appears a moment after :meth:`launch`."""
        if self._submit_sp is None:
            return False
        self._submit_sp.kill()
        return True

    @property
    def status(self) -> int | None:
        """The exit status of ``spark-submit``, negative for a signal; None before its end."""
        return self._submit_sp.returncode if self._submit_sp else None

    @property
    def last_lines(self) -> list[str]:
        """What Spark printed last, free of passwords."""
        return [self._mask_cmd(line) for line in self._last_submit_log_lines]

    def _build_spark_submit_command(self, application: str) -> list[str]:
        command: list[str] = super()._build_spark_submit_command(application)
        if shutil.which(command[0], path=(self._env or os.environ).get("PATH")) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
        return tied(command)

    @classmethod
    def get_connection(cls, conn_id: str) -> Any:
        """The Spark connection, looked up where all others are; a missing one never means YARN."""
        return airflow_connection(conn_id)

    def _resolve_connection(self) -> dict[str, Any]:
        if self._run.connection:
            return super()._resolve_connection()
        return {**_LOCAL, "master": self._run.conf.get("spark.master", _LOCAL["master"])}


def environment(binary: str = "spark-submit") -> dict[str, str]:
    """The worker's interpreter drives, and ``spark-submit`` is found beside it, as are its Spark's jars.

    :param binary: the program
    """
    binaries = Path(sys.executable).parent
    found = {
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONSAFEPATH": "1",  # or Spark's ``python -m`` would import from the working directory
        "PATH": str(binaries) + os.pathsep + os.environ.get("PATH", ""),
    }
    pyspark = find_spec("pyspark")
    if "SPARK_HOME" in os.environ or pyspark is None or not pyspark.origin:
        return found
    home = Path(pyspark.origin).parent
    if (binaries / binary).exists() and (home / "jars").is_dir():
        found["SPARK_HOME"] = str(home)  # or a Python is started that finds it
    return found


def _local_environment(directory: Path, conf: Mapping[str, str]) -> dict[str, str]:
    """On a local master the worker's interpreter also executes, and what a killed Spark leaves is swept with the run's
    directory, unless the user decided otherwise."""
    environment = {}
    if "PYSPARK_PYTHON" not in os.environ:
        environment["PYSPARK_PYTHON"] = sys.executable
    if "SPARK_LOCAL_DIRS" not in os.environ and "spark.local.dir" not in conf:
        environment["SPARK_LOCAL_DIRS"] = str(directory)
    return environment


def _write_properties(path: Path, conf: dict[str, str]) -> None:
    with private_files.create(path) as file:
        for name, value in conf.items():
            escaped = str(value).replace("\\", "\\\\").replace("\n", "\\n")
            file.write(f"{name}={escaped}\n".encode())
