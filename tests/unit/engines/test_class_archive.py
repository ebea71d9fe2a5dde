"""Files of class archives: which is valid for a JVM, which is complete, and which process may create one."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_provider_ckpt.engines.class_archive import ClassArchive
from airflow_provider_ckpt.engines.spark_environment import environment as environment_of

_NOBODY = 65534


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a ``spark-submit`` whose Java and Spark have the files by which they are recognised."""
    java, spark = tmp_path / "java", tmp_path / "spark"
    for file in (
        java / "bin/java",
        java / "lib/server/libjvm.so",
        java / "lib/server/classes.jsa",
        spark / "jars/a.jar",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1")
    (java / "bin/java").chmod(0o755)
    return {"JAVA_HOME": str(java), "SPARK_HOME": str(spark)}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the directory of the archives."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def archive(directory: Path) -> ClassArchive:
    """An archive that is not there yet."""
    return ClassArchive(directory, "key")


def written(archive: ClassArchive, content: bytes = b"classes") -> Path:
    archive.unfinished_path.write_bytes(content)
    return archive.publish()


def test_an_archive_belongs_to_one_java_spark_and_class_path(
    tmp_path: Path, directory: Path, environment: dict[str, str]
) -> None:
    extra = tmp_path / "extra.jar"
    extra.write_text("1")

    def key(class_path: str = "", **others: str) -> str:
        found = ClassArchive.of(directory, environment | others, class_path)
        assert found is not None
        return found.key

    first = key()
    assert key() == first
    assert key(str(extra)) != first
    assert key(SPARK_DIST_CLASSPATH=f"{tmp_path}/*") not in (first, key(str(extra)))
    with_extra = key(str(extra))
    extra.write_text("12")
    assert key(str(extra)) != with_extra
    for file in ("java/lib/server/libjvm.so", "java/lib/server/classes.jsa", "spark/jars/a.jar"):
        before = key()
        (tmp_path / file).write_text("another")
        assert key() != before, file
    (tmp_path / "spark/jars/b.jar").write_text("1")
    assert key() != before


def test_java_archives_nothing_with_a_directory_on_the_class_path(tmp_path: Path, environment: dict[str, str]) -> None:
    conf = tmp_path / "hadoop"
    conf.mkdir()

    assert ClassArchive.of(tmp_path, environment | {"HADOOP_CONF_DIR": str(conf)}) is not None
    (conf / "core-site.xml").touch()
    assert ClassArchive.of(tmp_path, environment | {"HADOOP_CONF_DIR": str(conf)}) is None
    assert ClassArchive.of(tmp_path, environment | {"SPARK_CONF_DIR": str(conf)}) is None
    assert ClassArchive.of(tmp_path, environment, str(conf)) is None


def test_without_a_java_that_has_an_archive_of_its_own_there_is_none(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (tmp_path / "java/lib/server/classes.jsa").unlink()

    assert ClassArchive.of(tmp_path, environment) is None
    assert ClassArchive.of(tmp_path, {"SPARK_HOME": environment["SPARK_HOME"], "PATH": str(tmp_path)}) is None


def test_what_was_kept_is_found(archive: ClassArchive) -> None:
    assert archive.find() is None

    path = written(archive)

    assert archive.find() == path
    assert ClassArchive(archive.directory, "other").find() is None
    assert not archive.unfinished_path.exists()


@pytest.mark.parametrize("damaged", [b"", b"class", b"clasSes", b"classes and more"])
def test_a_damaged_archive_is_removed_and_not_used(
    archive: ClassArchive, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(archive)
    path.write_bytes(damaged)

    assert archive.find() is None
    assert not path.exists()
    assert [record.getMessage() for record in caplog.records] == [f"{path} is damaged and is removed"]


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_an_archive_where_others_may_write_is_not_believed(
    archive: ClassArchive, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(archive)
    archive.directory.chmod(mode)

    assert archive.find() is None
    path.unlink()
    archive.create_in_background()

    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"other users may write to {archive.directory}" in caplog.text


def test_one_of_two_makes_it_and_clears_what_a_killed_one_left(archive: ClassArchive) -> None:
    left = archive.directory / "key.4000000.tmp"
    left.write_text("half")

    with archive.creation_lock() as first, archive.creation_lock() as second:
        assert (first, second) == (True, False)
        assert not left.exists()
    with archive.creation_lock() as third:
        assert third


def test_the_newest_stay(directory: Path) -> None:
    for number in range(6):
        path = written(ClassArchive(directory, f"key{number}"))
        os.utime(path, (number, number))

    written(ClassArchive(directory, "last"))

    kept = sorted(path.name.partition("-")[0] for path in directory.glob("*.jsa"))
    assert kept == ["key3", "key4", "key5", "last"]


def test_an_attempt_that_came_to_nothing_is_repeated_an_hour_later(
    archive: ClassArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: started.append(command))
    log = archive.directory / "key.log"

    archive.create_in_background()
    archive.create_in_background()
    assert len(started) == 1
    os.utime(log, (time.time() - 3700,) * 2)
    archive.create_in_background()
    assert len(started) == 2
    os.utime(log, (0, 0))
    written(archive)
    archive.create_in_background()
    assert len(started) == 2


def test_nothing_is_imported_from_the_working_directory(
    archive: ClassArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap, started, run = tmp_path / "trap", [], subprocess.run
    trap.mkdir()
    for name in ("argparse", "json", "airflow_provider_ckpt"):
        (trap / f"{name}.py").write_text("raise SystemExit('imported from the working directory')")
    monkeypatch.chdir(trap)
    monkeypatch.setattr(subprocess, "run", lambda command, **more: started.append((command, more)))

    archive.create_in_background()

    ((command, more),) = started
    training = command[command.index("sh", 1) + 1 :]
    told = run([*training, "--help"], cwd=trap, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert "spark.driver.extraClassPath" in told.stdout
    assert more["cwd"] == archive.directory


def test_spark_s_python_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "trap.py").touch()
    looked = "import importlib.util, sys; sys.exit(importlib.util.find_spec('trap') is not None)"

    done = subprocess.run(
        [sys.executable, "-c", looked], cwd=tmp_path, env={**os.environ, **environment_of()}, check=False
    )

    assert done.returncode == 0


def test_a_place_that_cannot_be_made_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    archive = ClassArchive(tmp_path / "file" / "cache", "key")

    assert archive.find() is None
    archive.create_in_background()

    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "Spark starts without an archive of its classes" in caplog.text


@pytest.fixture
def not_root() -> Iterator[None]:
    """Whoever runs the tests, file permissions count: root becomes nobody for a while."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(_NOBODY)
    yield
    os.seteuid(user)


@pytest.fixture
def read_only() -> Iterator[ClassArchive]:
    """An archive in a directory that can only be read."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        archive = ClassArchive(Path(name, "cache"), "key")
        archive.directory.mkdir(mode=0o755)
        written(archive).chmod(0o644)
        Path(name).chmod(0o755)
        archive.directory.chmod(0o555)
        yield archive
        archive.directory.chmod(0o755)


def test_a_read_only_directory_is_read_and_nothing_more(
    read_only: ClassArchive, not_root: None, caplog: pytest.LogCaptureFixture
) -> None:
    found = read_only.find()
    read_only.create_in_background()
    assert found is not None
    assert caplog.records == []

    other = ClassArchive(read_only.directory, "other")
    assert other.find() is None
    other.create_in_background()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "Permission denied" in caplog.text
    assert list(read_only.directory.iterdir()) == [found]


def test_an_archive_that_another_process_removes_meanwhile_is_in_nobody_s_way(tmp_path: Path) -> None:
    (tmp_path / "removed.jsa").symlink_to("nowhere")
    archive = ClassArchive(tmp_path, "key")
    archive.unfinished_path.write_text("classes")

    assert archive.publish().exists()
