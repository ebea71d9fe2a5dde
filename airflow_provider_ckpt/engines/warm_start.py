"""What has a run's Spark start sooner, as ``[ckpt] spark_head_start`` says. Nothing of it is needed, and users' own
settings win.

An archive for its JVM (``archive.py``), and on a local master a daemon for its Python workers (``spark/driver/python_daemon.py``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.registry import lane_modules
from airflow_provider_ckpt.engines.class_archive import CLASS_PATH, Archive
from airflow_provider_ckpt.spark.driver import python_daemon

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_PYTHON = "spark.pyspark.python"
_JVM = "SPARK_SUBMIT_OPTS"
_QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
"""That Java does not accept an archive is nothing to speak of."""


class HeadStart:
    """The head start of one run.

    :param environment: of ``spark-submit``
    :param local: whether the executors run here
    """

    def __init__(self, pipeline: Pipeline, environment: Mapping[str, str], *, local: bool) -> None:
        self._modules = lane_modules(pipeline)
        self._class_path = pipeline.properties.get(CLASS_PATH, "")
        self._archive = archive(environment, self._class_path)
        # Elsewhere this package may come as a zip, by which the daemon's module is not found.
        python = pipeline.properties.get(_PYTHON, environment.get("PYSPARK_PYTHON"))
        self._preloads = local and python == sys.executable

    @property
    def properties(self) -> dict[str, str]:
        """Spark's properties for it."""
        return python_daemon.properties(self._modules) if self._preloads else {}

    @property
    def environment(self) -> dict[str, str]:
        """The environment of ``spark-submit`` for it. The driver's own Java options come later, and so win."""
        found = self._archive.find() if self._archive is not None else None
        if found is None:
            return {}
        return {_JVM: f'"-XX:SharedArchiveFile={found}" {_QUIET} {os.environ.get(_JVM, "")}'.rstrip()}

    def for_the_next(self) -> None:
        """After Spark has ended in good order: have the archive made, if it is not there."""
        if self._archive is not None:
            self._archive.make_meanwhile(self._class_path)


def enabled() -> bool:
    """Whether runs shall have a head start."""
    from airflow.configuration import conf

    return conf.getboolean("ckpt", "spark_head_start", fallback=True)


def archive(environment: Mapping[str, str], class_path: str) -> Archive | None:
    """The archive of Spark's JVM, None if there can be none.

    :param environment: of ``spark-submit``
    :param class_path: the property ``spark.driver.extraClassPath``
    """
    directory = _directory()
    with suppress(OSError):
        return Archive.of(directory, environment, class_path) if directory.is_absolute() else None
    return None


def _directory() -> Path:
    """As configured, else in the user's cache; relative if nobody knows this user's home."""
    from airflow.configuration import conf

    configured = conf.get("ckpt", "spark_head_start_directory", fallback=None)
    if configured:
        return Path(configured)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  # which may raise
    return Path(cache, "airflow-provider-ckpt", "spark")
