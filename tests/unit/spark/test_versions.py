"""The installed Spark is examined by its files, since two packages install into one folder."""

from __future__ import annotations

import base64
import hashlib
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


def test_pyspark_alone_is_what_it_says(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "pyspark", "4.3.0")
    monkeypatch.setattr(sys, "path", [str(site)])

    assert versions.installed_pyspark() == "4.3.0"
    versions.check_spark_home(str(site / "pyspark"))


@pytest.mark.parametrize("client", ["4.2.0", "4.3.0"])
def test_pyspark_over_a_client_is_what_it_says(site: Path, client: str) -> None:
    install(site, "pyspark-client", client)
    install(site, "pyspark", "4.3.0")
    (site / "pyspark" / "__init__.py").write_text("# in both the same, and patched here\n")

    assert versions.installed_pyspark() == "4.3.0"
    versions.check_spark_home(str(site / "pyspark"))


@pytest.mark.parametrize(("pyspark", "client"), [("4.3.0", "4.2.0"), ("4.2.1", "4.2.0")])
def test_a_client_that_was_installed_over_pyspark_is_refused_with_the_command_that_repairs_it(
    site: Path, pyspark: str, client: str
) -> None:
    install(site, "pyspark", pyspark)
    install(site, "pyspark-client", client)

    assert versions.installed_pyspark() == client  # good enough for a Spark Connect server
    with pytest.raises(
        ConfigError, match=rf"are those of PySpark {client}, and its jars are those of Spark {pyspark}"
    ) as got:
        versions.check_spark_home(str(site / "pyspark"))
    assert got.value.hint == f"Run: pip install --force-reinstall --no-deps pyspark=={pyspark}"


@pytest.mark.parametrize("found", ["that of the client", "that of neither", None])
def test_files_of_both_packages_are_refused(site: Path, found: str | None) -> None:
    install(site, "pyspark", "4.3.0")
    install(site, "pyspark-client", "4.2.0", ("pyspark/worker.py",))
    if found is None:
        (site / "pyspark" / "worker.py").unlink()
    elif found == "that of neither":
        (site / "pyspark" / "worker.py").write_text("# 4.1.0")

    with pytest.raises(ConfigError, match=r"are partly of pyspark 4\.3\.0 and partly of pyspark-client 4\.2\.0") as got:
        versions.installed_pyspark()
    assert got.value.hint == "Run: pip install --force-reinstall --no-deps pyspark==4.3.0"


def test_a_copy_that_no_package_describes_is_what_it_says(site: Path) -> None:
    install(site, "pyspark", "4.3.0")
    install(site, "pyspark-client", "4.2.0")
    (site / "pyspark" / "version.py").write_text("__version__ = '4.1.0'\n")

    assert versions.installed_pyspark() == "4.1.0"


@pytest.mark.parametrize("lost", [tuple(modules("")), ("pyspark/version.py",)])
def test_a_folder_that_lost_its_python_files_is_refused(
    site: Path, lost: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "pyspark", "4.3.0")
    for name in lost:  # `pip uninstall pyspark-client` removes all
        (site / name).unlink()
    monkeypatch.setattr(sys, "path", [str(site)])

    with pytest.raises(ConfigError, match="incomplete"):
        versions.installed_pyspark()
    with pytest.raises(ConfigError, match="incomplete"):
        versions.check_spark_home(str(site / "pyspark"))


def test_a_file_of_the_version_without_a_version_is_refused(site: Path) -> None:
    install(site, "pyspark", "4.3.0")
    (site / "pyspark" / "version.py").write_text("")

    with pytest.raises(ConfigError, match="are incomplete"):
        versions.installed_pyspark()


def test_no_pyspark_is_refused(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(site)])

    with pytest.raises(ConfigError, match="PySpark is not installed"):
        versions.installed_pyspark()


@pytest.mark.parametrize(
    ("version", "refused"), [("3.5.9", True), ("4.0.5", False), ("4.1.4", False), ("5.0.0", True), (None, False)]
)
def test_another_spark_home_needs_a_supported_version_if_it_tells_one(
    tmp_path: Path, version: str | None, refused: bool
) -> None:
    (tmp_path / "jars").mkdir()
    if version:
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


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SimpleNamespace(getGrpcStatusCode=lambda: SimpleNamespace(name="UNAVAILABLE")), "UNAVAILABLE"),
        ("<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n", "UNAVAILABLE"),
        ("no status", "UNKNOWN"),
    ],
)
def test_the_status_of_a_call_is_known_also_where_only_the_text_has_it(error: Any, status: str) -> None:
    assert versions.grpc_status(error) == status
