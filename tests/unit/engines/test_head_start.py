"""Tests of the settings that shorten the start of Spark, and of users' own settings beside them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.engines import head_start
from airflow_provider_ckpt.engines.class_archive import ClassArchive
from airflow_provider_ckpt.engines.head_start import HeadStart
from airflow_provider_ckpt.engines.launcher import Launcher

_DAEMON = "spark.python.daemon.module"


def pipeline(**conf: str) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "numbers",
            "source": {"type": "files", "path": "/in"},
            "transform": {"decode": "json", "schema": "a bigint"},
            "sink": {"type": "delta", "path": "/out"},
            "run": {"conf": conf},
        }
    )


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The archive that every run finds."""
    found = ClassArchive(tmp_path, "key")
    found.unfinished_path.write_text("classes")
    monkeypatch.setattr(head_start, "spark_class_archive", lambda *_: found)
    return found.publish()


def properties(folder: Path) -> dict[str, str]:
    lines = (folder / "spark.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def launched(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The environment that ``spark-submit`` gets."""
    monkeypatch.setattr(Launcher, "submit", lambda *_, **__: None)
    launcher.launch()
    return launcher._env or {}


def test_spark_is_given_the_archive_before_a_user_s_own_options(
    tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Duser=own")

    options = launched(Launcher(pipeline(), tmp_path), monkeypatch)["SPARK_SUBMIT_OPTS"]

    assert options.startswith(f'"-XX:SharedArchiveFile={archive}" -Xshare:auto ')
    assert options.endswith(f' "-Djava.io.tmpdir={tmp_path}" -Duser=own')


def test_lanes_are_forked_by_a_daemon_that_knows_what_they_need(tmp_path: Path, archive: Path) -> None:
    Launcher(pipeline(), tmp_path)

    found = properties(tmp_path)
    assert found[_DAEMON] == "airflow_provider_ckpt.spark.driver.python_daemon"
    modules = found["spark.executorEnv.CKPT_PRELOADED_MODULES"].split()
    assert "airflow_provider_ckpt.connectors.delta.writer" in modules
    assert "deltalake" in modules
    assert not [name for name in modules if "kafka" in name]


def test_a_user_s_own_daemon_counts(tmp_path: Path, archive: Path) -> None:
    Launcher(pipeline(**{_DAEMON: "pyspark.daemon"}), tmp_path)

    assert properties(tmp_path)[_DAEMON] == "pyspark.daemon"


@pytest.mark.parametrize("local", [True, False])
def test_another_python_and_other_machines_have_pyspark_s_daemon(archive: Path, *, local: bool) -> None:
    ours, other = {"PYSPARK_PYTHON": sys.executable}, {"PYSPARK_PYTHON": "/usr/bin/python3"}

    assert bool(HeadStart(pipeline(), ours, local=local).properties) is local
    assert HeadStart(pipeline(), other, local=local).properties == {}
    assert HeadStart(pipeline(**{"spark.pyspark.python": "python3"}), ours, local=local).properties == {}


def test_without_a_head_start_nothing_is_set(tmp_path: Path, archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CKPT__SPARK_HEAD_START", "False")
    environment = launched(Launcher(pipeline(), tmp_path), monkeypatch)

    assert "-XX:SharedArchiveFile" not in environment["SPARK_SUBMIT_OPTS"]
    assert _DAEMON not in properties(tmp_path)


def test_archives_are_in_the_user_s_cache_or_where_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert head_start._directory() == Path("/home/somebody/.cache/airflow-provider-ckpt/spark")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert head_start._directory() == Path("/cache/airflow-provider-ckpt/spark")
    monkeypatch.setenv("AIRFLOW__CKPT__SPARK_HEAD_START_DIRECTORY", "/archives")
    assert head_start._directory() == Path("/archives")


def test_a_user_without_a_home_has_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassArchive, "of", lambda directory, *_: ClassArchive(directory, "key"))
    monkeypatch.setattr(head_start, "_directory", lambda: Path("~/.cache"))
    assert head_start.spark_class_archive({}, "") is None
    monkeypatch.setattr(head_start, "_directory", lambda: Path("/cache"))
    assert head_start.spark_class_archive({}, "") is not None
