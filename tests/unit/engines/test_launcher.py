"""The call of ``spark-submit`` for a run: the source of the Spark connection, and the properties file's content."""

from __future__ import annotations

import logging
import stat
from pathlib import Path
from typing import Any

import pytest
from airflow.models.connection import Connection

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.engines.launcher import Launcher
from airflow_provider_ckpt.engines.spark_log import SparkLog


def pipeline(**run: Any) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "numbers",
            "source": {"type": "files", "path": "/in"},
            "transform": {"decode": "json", "schema": "a bigint"},
            "sink": {"type": "delta", "path": "/out"},
            "run": run,
        }
    )


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> dict[str, Connection]:
    """The connections in Airflow's metadata database, which a task cannot read."""
    found: dict[str, Connection] = {}
    monkeypatch.setattr("airflow_provider_ckpt.ledger_location.find_connection", found.get)
    return found


def test_a_spark_connection_is_found_where_only_the_core_sees_it(tmp_path: Path, stored: dict[str, Connection]) -> None:
    stored["cluster"] = Connection("cluster", "spark", host="spark://master", port=7077)

    launcher = Launcher(pipeline(connection="cluster"), tmp_path)

    assert launcher._connection["master"] == "spark://master:7077"
    assert (tmp_path / "airflow_provider_ckpt.zip").exists()


def test_a_missing_spark_connection_is_an_error_and_never_yarn(tmp_path: Path, stored: dict[str, Connection]) -> None:
    assert stored == {}
    with pytest.raises(ConfigError, match="the connection 'cluster' is not defined"):
        Launcher(pipeline(connection="cluster"), tmp_path)


def test_cluster_mode_is_refused(tmp_path: Path, stored: dict[str, Connection]) -> None:
    stored["cluster"] = Connection("cluster", "spark", host="spark://m", extra='{"deploy-mode": "cluster"}')

    with pytest.raises(ConfigError, match="Set deploy-mode to client in Spark connection cluster"):
        Launcher(pipeline(connection="cluster"), tmp_path)


def test_without_a_connection_spark_is_local_and_leaves_nothing_outside_of_the_run_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Duser=own")

    launcher = Launcher(pipeline(), tmp_path)

    assert launcher._connection["master"] == "local[*]"
    assert (launcher._env or {})["SPARK_LOCAL_DIRS"] == str(tmp_path)
    assert (launcher._env or {})["SPARK_SUBMIT_OPTS"] == f'"-Djava.io.tmpdir={tmp_path}" -Duser=own'


def test_a_user_s_own_place_for_spark_s_files_counts(tmp_path: Path) -> None:
    launcher = Launcher(pipeline(conf={"spark.local.dir": "/fast"}), tmp_path)

    assert "SPARK_LOCAL_DIRS" not in (launcher._env or {})
    assert "spark.local.dir=/fast\n" in (tmp_path / "spark.properties").read_text()


def test_properties_are_for_their_owner_alone(tmp_path: Path) -> None:
    Launcher(pipeline(conf={"spark.hadoop.fs.s3a.secret.key": "hush\\1"}), tmp_path)
    file = tmp_path / "spark.properties"

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "spark.hadoop.fs.s3a.secret.key=hush\\\\1\n" in file.read_text()


def test_a_driver_s_jars_are_spark_s_too(tmp_path: Path) -> None:
    source = {"type": "jdbc", "connection": "shop", "table": "t", "cursor": "id", "jars": ["/opt/a.jar", "/opt/b.jar"]}
    document = pipeline().document() | {"source": source, "transform": {}}

    Launcher(Pipeline.model_validate(document), tmp_path)

    assert "spark.jars=/opt/a.jar,/opt/b.jar\n" in (tmp_path / "spark.properties").read_text()


def test_warnings_of_spark_arrive_as_warnings(tmp_path: Path) -> None:
    launcher = Launcher(pipeline(), tmp_path)
    levels: list[tuple[str, str]] = []
    launcher._log = SparkLog(Recorder(levels))

    launcher._process_spark_submit_log(
        iter(["26/11/23 04:00:00 WARN Utils: your hostname resolves to a loopback address\n", "plain\n"])
    )

    assert levels == [
        ("WARNING", "26/11/23 04:00:00 WARN Utils: your hostname resolves to a loopback address"),
        ("INFO", "plain"),
    ]
    (tmp_path / "other").mkdir()
    assert isinstance(Launcher(pipeline(), tmp_path / "other").log, SparkLog)


class Recorder:
    """A logger that notes levels and lines."""

    def __init__(self, told: list[tuple[str, str]]) -> None:
        self._told = told

    def log(self, level: int, line: str) -> None:
        self._told.append((logging.getLevelName(level), line))
