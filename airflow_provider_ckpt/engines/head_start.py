"""Shorten the start of Spark for a run, if the option ``[ckpt] spark_head_start`` is on.

The JVM gets an archive of Spark's classes (``class_archive.py``). On a local master, a daemon also preloads modules for
Python workers (``spark/driver/python_daemon.py``). Both are optional, and users' own settings take precedence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.registry import lane_modules
from airflow_provider_ckpt.engines.class_archive import CLASS_PATH, ClassArchive
from airflow_provider_ckpt.spark.driver import python_daemon

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Name of the environment variable with options of the driver's Java; those in Spark's properties override them."""

_PYTHON = "spark.pyspark.python"
_QUIET = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
"""Java options that keep Java from reporting a class archive that it does not accept."""


class HeadStart:
    """Spark properties and environment variables that shorten the start of Spark for one run.

    :param pipeline: the pipeline's declaration; its connectors name the modules to preload
    :param environment: environment variables of ``spark-submit``
    :param local: whether the master is local, so that executors run on this machine
    """

    def __init__(self, pipeline: Pipeline, environment: Mapping[str, str], *, local: bool) -> None:
        self._modules = lane_modules(pipeline)
        self._class_path = pipeline.spark_properties.get(CLASS_PATH, "")
        self._archive = spark_class_archive(environment, self._class_path)
        self._java_options = environment.get(JAVA_OPTIONS, "")
        # On a cluster this package may be in a zip, where the daemon's module is not found.
        python = pipeline.spark_properties.get(_PYTHON, environment.get("PYSPARK_PYTHON"))
        self._preloads = local and python == sys.executable

    @property
    def properties(self) -> dict[str, str]:
        """Spark properties that select the daemon which preloads modules; empty if this daemon cannot be used."""
        return python_daemon.properties(self._modules) if self._preloads else {}

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of ``spark-submit`` that select the class archive; empty if it does not exist.

        Java options of the driver in Spark's properties override them.
        """
        found = self._archive.find() if self._archive is not None else None
        if found is None:
            return {}
        return {JAVA_OPTIONS: f'"-XX:SharedArchiveFile={found}" {_QUIET} {self._java_options}'.rstrip()}

    def prepare_next_start(self) -> None:
        """Have the class archive created in the background if it does not exist.

        Call this after Spark has worked without errors.
        """
        if self._archive is not None:
            self._archive.create_in_background(self._class_path)


def enabled() -> bool:
    """Return whether the option ``[ckpt] spark_head_start`` is on."""
    from airflow.configuration import conf

    return conf.getboolean("ckpt", "spark_head_start", fallback=True)


def spark_class_archive(environment: Mapping[str, str], class_path: str) -> ClassArchive | None:
    """Return the class archive for Spark's JVM, whether or not its file exists; None if no archive is possible.

    No archive is possible if the directory of the archives is not known, if a file from which the archive's name is
    computed cannot be read, or in the cases that :meth:`.ClassArchive.of` names, for example without ``SPARK_HOME``.

    :param environment: environment variables of ``spark-submit``
    :param class_path: value of the Spark property ``spark.driver.extraClassPath``
    """
    directory = _directory()
    with suppress(OSError):
        return ClassArchive.of(directory, environment, class_path) if directory.is_absolute() else None
    return None


def _directory() -> Path:
    """Return the directory of the class archives: ``[ckpt] spark_head_start_directory``, else one in the user's cache.

    The path is relative, and must not be used, if the user's home directory is unknown.
    """
    from airflow.configuration import conf

    configured = conf.get("ckpt", "spark_head_start_directory", fallback=None)
    if configured:
        return Path(configured)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  # Path.expanduser may raise
    return Path(cache, "airflow-provider-ckpt", "spark")
