"""Tests of the modules that a daemon imports before it forks."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pyspark
import pytest

from airflow_provider_ckpt.spark.driver.preload import prefer_installed_pyspark, preload


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of modules."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_module_that_cannot_be_imported_keeps_no_other_from_it(modules: Path) -> None:
    (modules / "breaks_at_once.py").write_text("raise RuntimeError('no')")
    (modules / "imports_fine.py").write_text("")

    preload(["is_not_there", "breaks_at_once", "imports_fine"])

    assert "imports_fine" in sys.modules
    assert "breaks_at_once" not in sys.modules


def test_only_the_zips_of_the_installed_pyspark_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lib = Path(pyspark.__file__).parent / "python" / "lib"
    own, other, mine = str(lib / "pyspark.zip"), "/opt/spark/python/lib/pyspark.zip", "/opt/mine.zip"
    monkeypatch.setattr(sys, "path", [own, other, mine, *sys.path])

    prefer_installed_pyspark()

    assert sys.path[:2] == [other, mine]
    assert own not in sys.path


def test_caches_of_imports_are_cleared_without_reading_the_jar_of_sparks_core(monkeypatch: pytest.MonkeyPatch) -> None:
    core = str(next((Path(pyspark.__file__).parent / "jars").glob("spark-core_*.jar")))
    with_python_code = "/opt/graphframes.jar"
    monkeypatch.setattr(sys, "path", [core, with_python_code, *sys.path])
    assert PathFinder.find_spec("is_not_there") is None
    assert core in sys.path_importer_cache

    prefer_installed_pyspark()

    assert core not in {*sys.path, *sys.path_importer_cache}
    assert with_python_code in sys.path


def test_where_pyspark_is_nowhere_else_its_zips_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    zips = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-0-src.zip"]
    monkeypatch.setattr(sys, "path", list(zips))

    prefer_installed_pyspark()

    assert sys.path == zips
