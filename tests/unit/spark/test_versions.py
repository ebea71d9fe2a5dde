"""The Spark that is installed is examined by its files, since two packages share one folder."""

from __future__ import annotations

import base64
import hashlib
import logging
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.spark import versions


def modules(version: str) -> Mapping[str, str]:
    """The Python files of a version: one that differs from version to version, and one that never does."""
    return {
        "pyspark/__init__.py": "",
        "pyspark/version.py": f"__version__: str = '{version}'\n",
        "pyspark/worker.py": f"# {version}",
    }


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages, before all others."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    return tmp_path


def install(site: Path, package: str, version: str, names: tuple[str, ...] = tuple(modules(""))) -> None:
    """Install a package as pip does: its record, its files over those that are there, and jars if it has some.

    :param names: those of its Python files that nobody has overwritten since
    """
    info = site / f"{package.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    record = []
    for name, text in modules(version).items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record.append(f"{name},sha256={digest},{len(text)}")
        if name in names:
            (site / name).parent.mkdir(exist_ok=True)
            (site / name).write_text(text)
    (info / "RECORD").write_text("\n".join(record))
    if package == "pyspark":
        (site / "pyspark" / "jars").mkdir()
        (site / "pyspark" / "jars" / f"spark-core_2.13-{version}.jar").touch()


def test_pyspark_alone_or_over_an_older_client_is_what_it_says(site: Path) -> None:
    install(site, "pyspark-client", "4.2.0")
    install(site, "pyspark", "4.3.0")

    assert versions.installed_pyspark() == "4.3.0"
    versions.check_spark_home(str(site / "pyspark"))


def test_a_client_that_was_installed_over_pyspark_is_refused_with_the_command_that_repairs_it(site: Path) -> None:
    install(site, "pyspark", "4.3.0")
    install(site, "pyspark-client", "4.2.0")

    assert versions.installed_pyspark() == "4.2.0"  # good enough for a Spark Connect server
    with pytest.raises(
        ConfigError, match=r"are those of PySpark 4\.2\.0, and its jars are those of Spark 4\.3\.0"
    ) as got:
        versions.check_spark_home(str(site / "pyspark"))
    assert got.value.hint == "Run: pip install --force-reinstall --no-deps pyspark==4.3.0"


def test_files_of_both_packages_are_refused(site: Path) -> None:
    install(site, "pyspark", "4.3.0")
    install(site, "pyspark-client", "4.2.0", ("pyspark/worker.py",))

    with pytest.raises(ConfigError, match=r"are partly of pyspark 4\.3\.0 and partly of pyspark-client 4\.2\.0"):
        versions.installed_pyspark()


def test_a_folder_that_lost_its_python_files_is_refused(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "pyspark", "4.3.0")
    for name in modules(""):  # as `pip uninstall pyspark-client` does
        (site / name).unlink()
    monkeypatch.setattr(sys, "path", [str(site)])

    with pytest.raises(ConfigError, match="its files are incomplete"):
        versions.installed_pyspark()


@pytest.mark.parametrize(("version", "refused"), [("3.5.9", True), ("4.1.4", False), ("5.0.0", True)])
def test_another_spark_home_needs_a_supported_version(tmp_path: Path, version: str, refused: bool) -> None:
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / f"spark-core_2.13-{version}.jar").touch()

    if not refused:
        versions.check_spark_home(str(tmp_path))
        return
    with pytest.raises(ConfigError, match=rf"is {version}; this package needs 4\.0 or newer, below 5") as got:
        versions.check_spark_home(str(tmp_path))
    assert got.value.hint is not None
    assert got.value.hint.endswith("'pyspark>=4.0,<5'")


def test_a_server_of_another_minor_version_is_refused_and_another_patch_is_logged(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(site, "pyspark", "4.2.1")
    caplog.set_level(logging.WARNING)

    versions.check_server("4.2.1", "spark")
    assert caplog.messages == []
    versions.check_server("4.2.0", "spark")
    assert "is Spark 4.2.0, and PySpark here is 4.2.1" in caplog.text
    with pytest.raises(ConfigError, match=r"'spark' is Spark 4\.3\.0, and PySpark 4\.2\.1 is installed here") as got:
        versions.check_server("4.3.0", "spark")
    assert got.value.hint == "Run: pip install --force-reinstall --no-deps pyspark==4.3.0"
