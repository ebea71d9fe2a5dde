"""``python -m tests.compat [ENVIRONMENT…]``: run part of the suite with other versions of Airflow, PySpark and Python.

Writes ``build/compat/summary.json`` and ends with 1 if an environment fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from tests.compat.environments import ENVIRONMENTS, Environment
from tests.compat.install import BUILD, ROOT, install
from tests.compat.selection import SELECTION

_MINUTES = 15


def run(environment: Environment) -> Mapping[str, Any]:
    """Run the tests in one environment.

    :return: name, versions, seconds, and number of tests by outcome; ``failed`` lists those that failed
    """
    started = time.monotonic()
    python, versions = install(environment)
    installed = time.monotonic()
    report = BUILD / f"{environment.name}.xml"
    report.unlink(missing_ok=True)
    command = [str(python), "-m", "pytest", "--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    command += ["--quiet", f"--junitxml={report}", "-p", "no:cacheprovider", *SELECTION]
    with (BUILD / f"{environment.name}.log").open("wb") as log:
        try:
            variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
            status = subprocess.run(
                command, cwd=ROOT, env=variables, stdout=log, stderr=log, timeout=_MINUTES * 60, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            status = -1
    return {
        "name": environment.name,
        "versions": versions,
        "seconds": {"install": round(installed - started), "tests": round(time.monotonic() - installed)},
        "status": status,
        **outcomes(report),
    }


def outcomes(report: Path) -> Mapping[str, Any]:
    """Return the numbers of tests that passed and were skipped, and the names of those that failed.

    :param report: file that pytest has written; without it nothing passed
    """
    passed, skipped, failed = 0, 0, []
    cases = ET.parse(report).iter("testcase") if report.exists() else ()
    for case in cases:
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        elif "skipped" in kinds:
            skipped += 1
        else:
            passed += 1
    return {"passed": passed, "skipped": skipped, "failed": sorted(set(failed))}


def main(*names: str) -> int:
    """Run the tests in the environments of these names, or in all, with a line for each; 1 if any fails."""
    known = {environment.name: environment for environment in ENVIRONMENTS}
    if unknown := set(names) - set(known):
        print(f"no such environment: {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    BUILD.mkdir(parents=True, exist_ok=True)
    results = []
    for name in names or known:
        found = run(known[name])
        results.append(found)
        (BUILD / "summary.json").write_text(json.dumps({"environments": results}, indent=2) + "\n")
        print(_line(found), flush=True)
    return int(any(_is_bad(found) for found in results))


def _is_bad(found: Mapping[str, Any]) -> bool:
    """Return whether anything but passed tests came out; a test that is skipped has shown nothing."""
    return found["status"] != 0 or bool(found["failed"]) or bool(found["skipped"]) or not found["passed"]


def _line(found: Mapping[str, Any]) -> str:
    versions = found["versions"]
    text = (
        f"{'FAILED' if _is_bad(found) else 'passed'}: {found['name']} (Airflow {versions['apache-airflow']}, PySpark "
        f"{versions['pyspark']}, Python {versions['python']}), {found['passed']} tests in {found['seconds']['tests']} s"
    )
    if not _is_bad(found):
        return text
    return "\n  ".join([text, *found["failed"], f"see {BUILD / found['name']}.log"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
