"""Tests of ``make compat``: the install page lists the tested versions, and every failure is reported."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.compat import __main__ as compat
from tests.compat.environments import ENVIRONMENTS
from tests.compat.imports import exists, imported
from tests.compat.install import lock_file

ROOT = Path(__file__).parents[3]
INSTALL = (ROOT / "docs" / "install.rst").read_text("utf-8")
_ROW = re.compile(r"^   \* - (\d+\.\d+\.\d+)\n     - (.+)\n     - (.+)\n     - (.+)\n", re.MULTILINE)


def test_the_install_page_lists_the_tested_versions() -> None:
    assert _ROW.findall(INSTALL) == [environment.documented for environment in ENVIRONMENTS]


def test_each_supported_minor_version_is_tested() -> None:
    minor = {(e.airflow.rpartition(".")[0], e.pyspark.rpartition(".")[0]) for e in ENVIRONMENTS}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert {airflow for airflow, _ in minor} == {"3.1", "3.2", "3.3"}
    assert {pyspark for _, pyspark in minor} == {"4.0", "4.1", "4.2", "4.3"}
    assert {"apache-airflow>=3.1", "pyspark>=4.0,<5"} <= set(project["dependencies"])


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda e: e.name)
def test_a_lock_file_has_the_versions_of_its_environment(environment: Any) -> None:
    locked = lock_file(environment).read_text().splitlines()

    assert f"apache-airflow=={environment.airflow}" in locked
    assert f"pyspark=={environment.pyspark}" in locked


@pytest.mark.parametrize(
    ("cases", "wrong", "code"),
    [
        ('<testcase name="a"/>', {}, 0),
        ('<testcase name="a"/><testcase name="b"><failure/></testcase>', {"status": 1}, 1),
        ('<testcase name="a"/><testcase name="b"><failure/></testcase>', {}, 1),
        ('<testcase name="a"/><testcase name="b"><skipped/></testcase>', {}, 1),
        ("", {}, 1),
        ('<testcase name="a"/>', {"status": -1}, 1),
        ('<testcase name="a"/>', {"missing": ["airflow.sdk.nothing"]}, 1),
        ('<testcase name="a"/>', {"left": ["java"]}, 1),
    ],
)
def test_only_tests_that_all_passed_and_left_nothing_count(
    cases: str, wrong: dict[str, Any], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    versions = {"apache-airflow": "3.1.8", "pyspark": "4.0.5", "python": "3.11.7"}
    found = {"name": "oldest", "versions": versions, "seconds": {"install": 0, "tests": 0}, "status": 0}
    found |= {"missing": [], "left": [], **compat.outcomes(report), **wrong}
    monkeypatch.setattr(compat, "run", lambda *_: found)
    monkeypatch.setattr(compat, "BUILD", tmp_path)

    assert compat.main("oldest") == code
    assert json.loads((tmp_path / "summary.json").read_text())["environments"][0]["name"] == "oldest"


def test_a_name_that_a_version_lacks_is_found_also_in_a_function() -> None:
    source = """
if TYPE_CHECKING:
    from pathlib import Pathless
try:
    from pathlib import Pathway
except ImportError:
    pass
def late():
    import json
    from airflow_provider_ckpt.core import nothing
    from xml.etree import ElementTree
    from yaml import safe_lode
    from yaml import safe_load, reader
"""
    found = list(imported(ast.parse(source)))

    assert found == [("yaml", "safe_lode"), ("yaml", "safe_load"), ("yaml", "reader")]
    assert [exists(*each) for each in found] == [False, True, True]


def test_what_outlives_a_command_is_killed_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "_SECONDS_TO_END", 0.0)
    script = "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)"

    assert compat._call(tmp_path / "log", sys.executable, "-c", script).left == ["sleep 600"]
    assert compat._call(tmp_path / "log", sys.executable, "-c", "print('done')").left == []


def test_an_unknown_environment_is_refused() -> None:
    assert compat.main("ancient") == 2


@pytest.mark.parametrize("page", ["README.md", "docs/install.rst", "docs/tutorial.rst", "docs/tutorial-database.rst"])
def test_the_commands_that_install_the_package_name_equal_versions_of_both_packages_of_pyspark(page: str) -> None:
    """The newest ``pyspark`` and the newest ``pyspark-client`` often differ, and runs are then refused."""
    commands = re.findall(r"pip install [^\n`]*airflow-provider-ckpt[^\n`]*", (ROOT / page).read_text("utf-8"))
    locked = dict(
        re.findall(r"^(pyspark|pyspark-client)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    )

    assert commands
    for command in commands:
        assert dict(re.findall(r"(pyspark|pyspark-client)==(\S+)", command)) == locked, command
