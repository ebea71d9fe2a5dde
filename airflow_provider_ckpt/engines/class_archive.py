"""Archive the classes that Spark's JVM loads (AppCDS), so that later JVMs need not find, parse and verify them.

An archive is valid for one Java, one Spark and one class path; its file name contains a hash of these. After a first
run, a process in the background creates the archive (``class_archive_training.py``); later runs use it. Without an
archive, Spark only starts more slowly.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import secrets
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_ckpt.core import private_files

log = logging.getLogger(__name__)

CLASS_PATH = "spark.driver.extraClassPath"
"""Spark property that extends the class path of Spark's JVM."""

_CLASS_PATH_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
_TRAINING_MODULE = "airflow_provider_ckpt.engines.class_archive_training"
_MAX_ARCHIVES = 4
"""Number of archives that are kept, the newest first; the size of each is about 150 MB."""
_RETRY_SECONDS = 3600.0
"""Seconds after a failed creation of an archive before the creation is tried again."""
_DIGITS = 16
_PROCESS_TOKEN = secrets.token_hex(8)
"""Random part of the names of files that this process writes."""


@dataclass(frozen=True)
class ClassArchive:
    """Archive of loaded Java classes (class data sharing), with which Spark's JVM starts faster.

    An archive is valid for one Java, one Spark and one class path. The object exists even if the file was not created
    yet.

    :param directory: directory that contains the files of all archives
    :param key: hash of Java, Spark and class path, with which the name of the file begins
    """

    directory: Path
    key: str

    @classmethod
    def of(cls, directory: Path, environment: Mapping[str, str], extra_class_path: str = "") -> ClassArchive | None:
        """Return the archive for the JVM that ``spark-submit`` starts.

        :param directory: directory that contains the files of all archives
        :param environment: environment variables of ``spark-submit``
        :param extra_class_path: value of the Spark property :data:`CLASS_PATH`
        :return: None if there is no Java or no ``SPARK_HOME``, or if Java could not create an archive: if this Java has
            no archive of the JDK's classes, on which others build, or if the class path has a directory that is not
            empty, such as a Hadoop configuration
        """
        java, spark = _java(environment), environment.get("SPARK_HOME")
        if java is None or not spark:
            return None
        named = [extra_class_path, *(environment.get(name, "") for name in _CLASS_PATH_VARIABLES)]
        entries = [entry for text in named for entry in text.split(os.pathsep) if entry]
        entries = [environment.get("SPARK_CONF_DIR") or f"{spark}/conf", *entries, f"{spark}/jars/*"]
        if any(_holds_something(Path(entry)) for entry in entries):
            return None
        files = [*_jvm(java), *(file for entry in entries for file in _files_of(entry))]
        inputs = [str(java), *entries, *(f"{file} {_version(file)}" for file in files)]
        return cls(directory, hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:_DIGITS])

    def find(self) -> Path | None:
        """Return the path of the archive's file; None if the file does not exist or must not be used.

        A file is not used if other users may write to its directory. A damaged file is removed, since Java would crash
        with it.
        """
        if not self._is_trusted():
            return None
        for path in self._files():
            with suppress(OSError):
                if path.stem.partition("-")[2] == _digest(path):
                    return path
                log.warning("%s is damaged and is removed", path)
                path.unlink()
        return None

    def create_in_background(self, extra_class_path: str = "") -> None:
        """Start a process that creates the archive's file, and that goes on after the end of this process.

        Nothing is started if the file exists, or if its creation was tried within the last hour. Errors are only
        logged.

        :param extra_class_path: value of the Spark property :data:`CLASS_PATH`
        """
        try:
            private_files.make_directories(self.directory)
            if self._was_tried_lately():
                return
            if not self._is_trusted():
                raise PermissionError(f"other users may write to {self.directory}")
            training = [sys.executable, "-P", "-m", _TRAINING_MODULE, "--class-path", extra_class_path]
            with private_files.append(self._log) as output:
                subprocess.run(  # noqa: S603  # our own module, by our own interpreter
                    ["/bin/sh", "-c", '"$@" &', "sh", *training],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    cwd=self.directory,  # the training leaves files in its working directory
                    check=True,
                )
            log.info("Creating an archive of Spark's classes in the background, so that later runs start sooner")
        except (OSError, subprocess.SubprocessError) as error:
            log.warning("Spark starts without an archive of its classes, since none can be created: %s", error)

    @contextmanager
    def creation_lock(self) -> Iterator[bool]:
        """Lock the creation of the archive's file; yield True, or False if another process holds the lock.

        Temporary files that killed processes left are removed.
        """
        private_files.make_directories(self.directory)
        with private_files.append(self._log) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            os.utime(self._log)
            for left in self.directory.glob(f"{self.key}.*.tmp"):
                left.unlink()
            yield True

    @property
    def unfinished_path(self) -> Path:
        """Path of the temporary file to which this process has Java write the archive."""
        return self.directory / f"{self.key}.{_PROCESS_TOKEN}.tmp"

    def publish(self) -> Path:
        """Rename the complete file at :attr:`unfinished_path` to its final name, which contains the file's digest.

        All archives but the newest four are removed.

        :return: path of the renamed file
        """
        complete = self.unfinished_path
        with complete.open("rb") as file:
            os.fchmod(file.fileno(), 0o600)
            os.fsync(file.fileno())
        path = self.directory / f"{self.key}-{_digest(complete)}.jsa"
        complete.rename(path)
        found = sorted(self.directory.glob("*.jsa"), key=_modified, reverse=True)
        for old in found[_MAX_ARCHIVES:]:
            old.unlink(missing_ok=True)
        return path

    @property
    def _log(self) -> Path:
        return self.directory / f"{self.key}.log"

    def _files(self) -> list[Path]:
        return sorted(self.directory.glob(f"{self.key}-*.jsa"))

    def _was_tried_lately(self) -> bool:
        if self._files():
            return True
        try:
            return time.time() - self._log.stat().st_mtime < _RETRY_SECONDS
        except FileNotFoundError:
            return False

    def _is_trusted(self) -> bool:
        """Return whether only this user (or root) can write to the directory.

        Others could otherwise run code in Spark, since Java does not check the content of an archive.
        """
        try:
            found = self.directory.stat()
        except OSError:
            return False
        return found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _java(environment: Mapping[str, str]) -> Path | None:
    """Return the home directory of the Java that Spark's scripts choose.

    The result is None if there is no Java, or if it has no archive of the JDK's classes, on which Spark's archive
    builds.

    :param environment: environment variables of ``spark-submit``
    """
    java_home = environment.get("JAVA_HOME")
    program = shutil.which(f"{java_home}/bin/java" if java_home else "java", path=environment.get("PATH"))
    java = Path(program).resolve().parents[1] if program else None
    return java if java is not None and all(file.exists() for file in _jvm(java)) else None


def _jvm(java: Path) -> list[Path]:
    """Return the paths of the JVM's library and of the archive of the JDK's classes.

    :param java: home directory of Java
    """
    return [java / "lib" / "server" / name for name in ("libjvm.so", "classes.jsa")]


def _holds_something(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _files_of(entry: str) -> list[Path]:
    """Return the jar files for an entry of a class path.

    :param entry: path of a jar file, or ``/opt/jars/*`` for all jar files of a directory
    """
    path = Path(entry)
    return sorted(path.parent.glob("*.jar")) if path.name == "*" else [path] if path.is_file() else []


def _version(file: Path) -> str:
    """Return the size and the modification time of a file, as text."""
    found = file.stat()
    return f"{found.st_size} {found.st_mtime_ns}"


def _modified(path: Path) -> float:
    """Return the modification time of a file; 0 if another process has removed the file."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _digest(path: Path) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:_DIGITS]
