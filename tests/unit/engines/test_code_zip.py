"""The zip file for executors has all modules that lanes import, none of Airflow's side, and equal bytes everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_provider_ckpt.engines import code_zip
from airflow_provider_ckpt.engines.code_zip import CodeZip


def test_lanes_find_what_they_import_in_it_and_nothing_else_of_the_package(tmp_path: Path) -> None:
    path = tmp_path / "airflow_provider_ckpt.zip"
    CodeZip().write(path)

    tops = {name.split("/")[1] for name in zipfile.ZipFile(path).namelist()}
    lanes = "airflow_provider_ckpt.spark.lane.fast_path"
    code = f"import {lanes} as lane, airflow_provider_ckpt.spark.wave; print(lane.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(path)}
    told = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True)

    assert tops == {"__init__.py", "config", "connectors", "core", "spark"}
    assert told.stdout.decode().startswith(str(path)), told.stderr.decode()


def test_two_of_the_same_code_are_the_same_and_another_state_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "airflow_provider_ckpt"
    (package / "core").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(code_zip, "_PACKAGE", package)

    def made(content: str, name: str) -> tuple[str, bytes]:
        (package / "core" / "x.py").write_text(content)
        os.utime(package / "core" / "x.py", (len(name) * 1e8, len(name) * 1e8))
        made = CodeZip()
        made.write(tmp_path / name)
        return made.digest, (tmp_path / name).read_bytes()

    assert made("a = 1", "one") == made("a = 1", "other")
    assert made("a = 1", "one")[0] != made("a = 2", "other")[0]
