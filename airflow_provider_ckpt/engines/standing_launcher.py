"""Start a standing driver as a process of its own, which goes on after the end of the task that starts it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ckpt.core import private_files
from airflow_provider_ckpt.engines.launcher import Launcher
from airflow_provider_ckpt.spark.driver.session_conf import static_part
from airflow_provider_ckpt.spark.driver.standing_protocol import LOG

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_CONF = {
    "spark.scheduler.mode": "FAIR",
    "spark.authenticate": "true",  # the driver's ports stay open between runs; Spark generates a secret
    "spark.python.task.killTimeout": "200ms",  # frees the slots of a cancelled run for other runs
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
    "spark.sql.ui.retainedExecutions": "20",
}
_OF_TASK = re.compile(r"_?AIRFLOW_CTX_.*|_AIRFLOW_.*")
"""Pattern of environment variables that belong to one task. The driver does not inherit them."""


class StandingLauncher(Launcher):
    """Launcher of a standing driver.

    :param pipeline: declaration of the pipeline whose run needs the driver, with the Spark properties of the driver
    :param home: path of the driver's own directory, with its socket and its output
    :param idle: seconds without runs after which the driver ends
    """

    application = "standing.py"

    def __init__(self, pipeline: Pipeline, home: Path, idle: float) -> None:
        self._home = home
        properties = {**_CONF, **static_part(pipeline.spark_properties)}
        super().__init__(pipeline, home, name="ckpt standing driver", arguments=[str(idle)], properties=properties)

    def start(self) -> int:
        """Start the driver in a process session of its own, detached from this process.

        :return: pid of ``spark-submit``
        """
        given = self._head_start.environment if self._head_start else {}
        inherited = {name: value for name, value in os.environ.items() if not _OF_TASK.fullmatch(name)}
        with private_files.append(self._home / LOG) as output:
            started = subprocess.run(  # noqa: S603  # spark-submit, as the apache-spark provider builds its command
                ["/bin/sh", "-c", '"$@" >&2 & echo $!', "sh", *self._command(self._application_path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                env={**inherited, **(self._env or {}), **given},
                start_new_session=True,
                check=True,
            )
        return int(started.stdout)
