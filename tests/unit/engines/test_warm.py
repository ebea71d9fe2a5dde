"""The warm engine without Spark: which runs use it, which driver they look for, and which files they trust."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.core.errors import EngineError
from airflow_provider_ckpt.engines.driver_key import driver_key
from airflow_provider_ckpt.engines.factory import make_engine
from airflow_provider_ckpt.engines.runtime_directory import open_runtime_directory
from airflow_provider_ckpt.engines.submit import SubmitEngine
from airflow_provider_ckpt.engines.warm import WarmEngine
from airflow_provider_ckpt.spark.driver.session_conf import session_part, static_part
from airflow_provider_ckpt.spark.driver.standing_protocol import peer, read_line, send_line, short_path

_PIPELINE = {
    "name": "numbers",
    "source": {"type": "files", "path": "/in"},
    "transform": {"decode": "json", "schema": "a bigint"},
    "sink": {"type": "delta", "path": "/out"},
}


def pipeline(**run: object) -> Pipeline:
    return Pipeline.model_validate({**_PIPELINE, "run": run})


@pytest.fixture(autouse=True)
def enabled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where users have set nothing."""
    monkeypatch.setenv("AIRFLOW__CKPT__WARM_SPARK", "True")


@pytest.mark.parametrize(
    ("run", "environment", "engine"),
    [
        ({}, {}, WarmEngine),
        ({"engine": "warm", "conf": {"spark.master": "local[1]"}}, {}, WarmEngine),
        ({"engine": "submit"}, {}, SubmitEngine),
        ({"connection": "cluster"}, {}, SubmitEngine),
        ({"conf": {"spark.master": "spark://host:7077"}}, {}, SubmitEngine),
        ({}, {"AIRFLOW__CKPT__WARM_SPARK": "False"}, SubmitEngine),
        ({}, {"AIRFLOW_IS_K8S_EXECUTOR_POD": "True"}, SubmitEngine),
    ],
)
def test_a_run_is_warm_by_default_where_spark_is_local_and_outlives_a_task(
    run: dict[str, object], environment: Mapping[str, str], engine: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert type(make_engine(pipeline(**run))) is engine


def test_the_task_imports_no_pyspark() -> None:
    import subprocess

    code = (
        "import sys; from airflow_provider_ckpt.engines import warm, standing_drivers, driver_key; "
        "driver_key.driver_key({}); print([name for name in sys.modules if name.startswith('pyspark')])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert told.stdout.strip() == "[]"


def test_the_runtime_directory_is_this_users_and_is_never_reached_through_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError):
        open_runtime_directory(create=False)

    path, descriptor = open_runtime_directory(create=True)
    os.close(descriptor)
    assert path == tmp_path / "ckpt-spark"
    assert path.stat().st_mode & 0o777 == 0o700

    path.chmod(0o750)
    with pytest.raises(EngineError, match=f"{path} is not .* with mode 0700 .* mode 0750.*set XDG_RUNTIME_DIR"):
        open_runtime_directory(create=True)

    path.rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(EngineError, match=f"{path} .*Not a directory"):
        open_runtime_directory(create=True)


def test_without_a_runtime_directory_of_the_session_it_is_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for unusable in ("", "relative", str(tmp_path / "missing")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", unusable)
        path, descriptor = open_runtime_directory(create=True)
        os.close(descriptor)
        assert path == tmp_path / f"ckpt-spark-{os.geteuid()}"


def test_a_socket_is_reached_however_long_its_path_is_and_its_peer_is_known(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    descriptor = os.open(deep, os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(short_path(descriptor, "socket"))
        listener.listen()
        client.connect(short_path(descriptor, "socket"))
        accepted, _ = listener.accept()
        with accepted:
            send_line(client, {"status": True})
            assert read_line(accepted) == {"status": True}
            assert peer(client) == peer(accepted) == (os.getpid(), os.geteuid())
            client.close()
            with pytest.raises(ConnectionError):
                read_line(accepted)
    os.close(descriptor)


def test_a_key_depends_on_what_a_running_spark_cannot_change(monkeypatch: pytest.MonkeyPatch) -> None:
    key = driver_key({})

    monkeypatch.setenv("AIRFLOW_CTX_DAG_RUN_ID", "another")
    monkeypatch.setenv("SHLVL", "7")
    monkeypatch.setenv("_MP_FORK_LOGLEVEL_", "20")  # Celery sets it for the processes of a worker
    monkeypatch.setenv("__AIRFLOW_SUPERVISOR_FD", "14")  # airflow dags test sets it for each task
    assert driver_key({}) == key
    assert driver_key({"spark.driver.memory": "2g"}) != key

    with monkeypatch.context() as patch:
        patch.setenv("AWS_PROFILE", "another")
        assert driver_key({}) != key
    with monkeypatch.context() as patch:
        patch.setattr("sys.version", "3.99")
        assert driver_key({}) != key
    before = os.umask(0o027)
    try:
        assert driver_key({}) != key
    finally:
        os.umask(before)
    assert driver_key({}) == key


def test_a_key_depends_on_the_code_and_on_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages, code = tmp_path / "site-packages", tmp_path / "code"
    packages.mkdir()
    code.mkdir()
    monkeypatch.setattr("airflow_provider_ckpt.engines.driver_key._PACKAGE", code)
    monkeypatch.syspath_prepend(str(packages))
    keys = [driver_key({})]

    (code / "module.py").write_text("A = 1")
    keys.append(driver_key({}))
    (packages / "other-1.0.dist-info").mkdir()
    keys.append(driver_key({}))

    assert len(set(keys)) == 3


def test_properties_of_a_session_are_those_that_a_running_spark_can_set() -> None:
    properties = {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": "/w",
        "spark.sql.catalog.lake": "x",
        "spark.jars": "a.jar",
    }

    assert session_part(properties) == {"spark.sql.shuffle.partitions": "1"}
    assert static_part(properties) == {name: properties[name] for name in properties if "shuffle" not in name}
