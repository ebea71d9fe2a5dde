"""Compute the key of a standing driver: a digest of the software, environment and Spark properties of its runs.

A running Spark cannot change any of these. So only runs with the same key can use the same driver.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from airflow_provider_ckpt.engines.spark_environment import environment

_DIGITS = 16
_PACKAGE = Path(__file__).resolve().parents[1]
_OF_PROCESS = re.compile(
    r"_|_{0,2}AIRFLOW_.*|_MP_FORK_.*|__PYVENV_LAUNCHER__|CELERY_.*|celery_dummy_proxy|COLUMNS|CKPT_TEST_TOKEN|DBUS_.*"
    r"|DISPLAY|INVOCATION_ID|JOURNAL_STREAM|LESS.*|LINES|LS_COLORS|MAIL|MEMORY_PRESSURE_.*|OLDPWD|PWD|PYTEST_.*|SHLVL"
    r"|SSH_.*|STY|SUDO_.*|TERM.*|TMUX.*|TRACE(PARENT|STATE)|WINDOWID|XDG_SESSION_.*"
)
"""Pattern of the names of environment variables that differ from process to process and do not affect lanes."""

_CREDENTIALS = ("Uid", "Gid", "Groups", "Umask")
_NAMESPACES = ("mnt", "net", "pid")


def driver_key(static: Mapping[str, str]) -> str:
    """Return the key of the standing driver that can serve runs of this process with the given Spark properties.

    It is a digest of the code of this package, the installed packages, Python, Java, Spark, the environment and user of
    this process, and the properties.

    :param static: those Spark properties that can only be set when Spark starts
    """
    variables = {**os.environ, **environment()}
    parts = [
        sys.executable,
        sys.version,
        sorted(_code()),
        [_version(directory) for directory in _installed()],
        _java(variables),
        _version(f"{variables.get('SPARK_HOME', '')}/jars"),
        sorted(item for item in variables.items() if not _OF_PROCESS.fullmatch(item[0])),
        _process(),
        sorted(static.items()),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:_DIGITS]


def _code() -> Iterator[str]:
    """Yield path, size and modification time of each Python file of this package, as text.

    With an editable installation these files may change at any time.
    """
    for folder, _, files in os.walk(_PACKAGE):
        yield from (_version(f"{folder}/{name}") for name in files if name.endswith(".py"))


def _installed() -> list[str]:
    """Return the directories of installed packages.

    A directory's modification time changes when a package in it is added, upgraded or removed.
    """
    paths = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    paths += [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    return sorted(set(paths))


def _java(variables: Mapping[str, str]) -> str:
    """Return path, size and modification time of the Java program that Spark uses, as text; empty if there is none.

    :param variables: environment variables of ``spark-submit``
    """
    home = variables.get("JAVA_HOME")
    program = shutil.which(f"{home}/bin/java" if home else "java", path=variables.get("PATH"))
    return _version(os.path.realpath(program)) if program else ""


def _process() -> list[str]:
    """Return working directory, user, groups, umask and namespaces of this process, as texts.

    These values are part of the key, since a standing driver cannot adopt those of another process.
    """
    found = [str(Path.cwd())]
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        found += [line for line in lines if line.partition(":")[0] in _CREDENTIALS]
        found += [str(Path(f"/proc/self/ns/{name}").readlink()) for name in _NAMESPACES]
    return found


def _version(path: str) -> str:
    """Return path, size and modification time of a file or directory, as text; only the path if it does not exist."""
    try:
        found = Path(path).stat()
    except OSError:
        return path
    return f"{path} {found.st_size} {found.st_mtime_ns}"
