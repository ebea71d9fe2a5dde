"""Run ``spark-submit`` by the apache-spark provider's hook, with the master, the properties and the Python of one run.

Properties are passed in a file of mode 0600 in the run directory, since users may set secrets in them.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.engines import head_start
from airflow_provider_ckpt.engines.head_start import JAVA_OPTIONS, HeadStart
from airflow_provider_ckpt.engines.spark_environment import environment
from airflow_provider_ckpt.engines.spark_log import SparkLog
from airflow_provider_ckpt.ledger_location import airflow_connection
from airflow_provider_ckpt.spark.driver.parent_death import killed_with_caller
from airflow_provider_ckpt.spark.driver.run_directory_protocol import PROPERTIES
from airflow_provider_ckpt.spark.versions import check_spark_home

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_REMEMBERED_LINES = 500
_PACKAGE = Path(__file__).resolve().parents[1]
_CONF = {
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.codegen.hugeMethodLimit": "8000",  # Java interprets longer methods, which takes ten times as long
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.variable.substitute": "false",  # else Spark silently replaces ${...} in a user's expression
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
    """Hook that runs ``spark-submit`` in client mode, with the Spark connection and the properties of a pipeline.

    Without a Spark connection the master is local, whereas the provider's hook would use YARN.

    :param pipeline: the pipeline's declaration; its ``run`` part names the Spark connection and further properties
    :param directory: the run directory, by which the run and the driver exchange files; first argument of the
        application
    :param name: name of the Spark application; by default it contains the name of the pipeline
    :param arguments: further arguments of the application
    :param properties: Spark properties to use in place of the pipeline's; None for the pipeline's
    :raises ConfigError: if the Spark connection is not defined or sets cluster mode, or the installed Spark cannot be
        used
    """

    application = "app.py"
    """Name of the program in ``spark/driver`` that Spark runs as its application."""

    def __init__(
        self,
        pipeline: Pipeline,
        directory: Path,
        *,
        name: str | None = None,
        arguments: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self._run = pipeline.run
        self._properties = directory / PROPERTIES
        super().__init__(
            conn_id=pipeline.run.connection or "spark_default",
            name=name or f"ckpt {pipeline.name}",
            properties_file=str(self._properties),
            application_args=[str(directory), *arguments],
        )
        self._log = SparkLog(self.log)
        if self._connection["deploy_mode"] == "cluster":
            raise ConfigError(
                "the submit engine needs client mode, because the driver reads the run directory",
                pipeline=pipeline.name,
                hint=f"Set deploy-mode to client in Spark connection {pipeline.run.connection}.",
            )
        local = self._connection["master"].startswith("local")
        self._env = environment(self._connection["spark_binary"])
        check_spark_home(self._env.get("SPARK_HOME") or os.environ.get("SPARK_HOME"))
        if local:
            self._env |= _local_environment(directory, pipeline.run.conf)
        self._head_start = None
        if head_start.enabled():
            self._head_start = HeadStart(pipeline, {**os.environ, **self._env}, local=local)
        if not local:
            self._py_files = shutil.make_archive(str(directory / _PACKAGE.name), "zip", _PACKAGE.parent, _PACKAGE.name)
        conf = _CONF | (_LOCAL_CONF if local else {}) | (self._head_start.properties if self._head_start else {})
        own = pipeline.spark_properties if properties is None else properties
        _write_properties(self._properties, conf | dict(own))
        # The hook's own 20 lines may all be frames of a stack trace.
        self._last_submit_log_lines = deque(maxlen=_REMEMBERED_LINES)

    def launch(self) -> None:
        """Run ``spark-submit`` and the driver, and wait until both end. The kernel kills them if the calling thread
        ends.

        :raises AirflowException: if the exit status is not 0
        """
        if self._head_start:
            self._env = {**(self._env or {}), **self._head_start.environment}
        self.submit(self._application_path)
        self.prepare_next_start()

    def prepare_next_start(self) -> None:
        """Have an archive of Spark's classes created in the background for faster starts, if it does not exist yet."""
        if self._head_start:
            self._head_start.prepare_next_start()

    def kill(self) -> bool:
        """Kill ``spark-submit``.

        :return: False if there was no process, because :meth:`launch` was not called or has not started it yet
        """
        if self._submit_sp is None:
            return False
        self._submit_sp.kill()
        return True

    @property
    def status(self) -> int | None:
        """Exit status of ``spark-submit``, negative for a signal; None before its end."""
        return self._submit_sp.returncode if self._submit_sp else None

    @property
    def last_lines(self) -> list[str]:
        """Last lines of Spark's output, at most 500, with passwords masked."""
        return [self._mask_cmd(line) for line in self._last_submit_log_lines]

    def _build_spark_submit_command(self, application: str) -> list[str]:
        return killed_with_caller(self._command(application))

    def _command(self, application: str) -> list[str]:
        command: list[str] = super()._build_spark_submit_command(application)
        if shutil.which(command[0], path=(self._env or os.environ).get("PATH")) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
        return command

    @property
    def _application_path(self) -> str:
        return str(_PACKAGE / "spark" / "driver" / self.application)

    @classmethod
    def get_connection(cls, conn_id: str) -> Any:
        """Return the Airflow connection with the given id; unlike the provider's hook, raise an error if it is missing.

        :param conn_id: id of the connection
        :raises ConfigError: if the connection is not defined
        """
        return airflow_connection(conn_id)

    def _resolve_connection(self) -> dict[str, Any]:
        if self._run.connection:
            return super()._resolve_connection()
        return {**_LOCAL, "master": self._run.conf.get("spark.master", _LOCAL["master"])}


def _local_environment(directory: Path, conf: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables with which to start Spark on a local master, in addition to those of this process.

    Executors then use the Python of this process, and temporary files of Spark and Java are in the run directory, to be
    removed with it even if Spark is killed. A variable is left out if this process has it already, or if ``conf`` has
    the Spark property of the same meaning.

    :param directory: the run directory
    :param conf: Spark properties of the run, by name
    """
    environment = {JAVA_OPTIONS: f'"-Djava.io.tmpdir={directory}" {os.environ.get(JAVA_OPTIONS, "")}'.rstrip()}
    if "PYSPARK_PYTHON" not in os.environ:
        environment["PYSPARK_PYTHON"] = sys.executable
    if "SPARK_LOCAL_DIRS" not in os.environ and "spark.local.dir" not in conf:
        environment["SPARK_LOCAL_DIRS"] = str(directory)
    return environment


def _write_properties(path: Path, conf: dict[str, str]) -> None:
    """Write Spark properties to a new file that only this user can read.

    :param path: path of the file
    :param conf: the properties, by name
    """
    with private_files.create(path) as file:
        for name, value in conf.items():
            escaped = str(value).replace("\\", "\\\\").replace("\n", "\\n")
            file.write(f"{name}={escaped}\n".encode())
