"""Imports of users' modules in a process that serves many runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from airflow_provider_ckpt.spark.transform import user_modules
from airflow_provider_ckpt.spark.transform.user_modules import imported_for


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a user's modules, first on the path, in a process that has served no run."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(user_modules, "_run", None)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    for name in ("of_a_user", "of_a_package", "of_a_package.part"):
        sys.modules.pop(name, None)


def test_a_module_is_imported_anew_for_each_run_and_once_for_all_lanes_of_one(folder: Path) -> None:
    (folder / "of_a_package").mkdir()
    (folder / "of_a_package" / "part.py").write_text("N = 1")
    (folder / "of_a_user.py").write_text("from of_a_package.part import N")

    def imported(run: int) -> int:
        with imported_for(run):
            found: int = import_module("of_a_user").N
            return found

    assert imported(1) == 1
    (folder / "of_a_package" / "part.py").write_text("N = 22")
    assert imported(1) == 1
    assert imported(2) == 22


def test_what_is_installed_or_belongs_to_this_package_stays(folder: Path) -> None:
    with imported_for(1):
        pass
    import pyarrow as pa

    from airflow_provider_ckpt.core import batch

    for name in ("pyarrow", "airflow_provider_ckpt.core.batch", "json.tool"):
        import_module(name)
    with imported_for(2):
        pass

    assert sys.modules["pyarrow"] is pa
    assert sys.modules["airflow_provider_ckpt.core.batch"] is batch
    assert "json.tool" in sys.modules


def test_a_package_with_an_extension_module_stays(folder: Path) -> None:
    (folder / "of_a_package").mkdir()
    (folder / "of_a_package" / "__init__.py").write_text("")
    with imported_for(1):
        package = import_module("of_a_package")
    compiled = type(sys)("of_a_package.part")
    compiled.__file__ = str(folder / "of_a_package" / "part.so")
    sys.modules["of_a_package.part"] = compiled
    with imported_for(2):
        pass

    assert sys.modules["of_a_package"] is package
