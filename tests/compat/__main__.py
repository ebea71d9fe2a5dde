"""``python -m tests.compat [--small] [ENVIRONMENT…]``: run a part of the tests with other versions of dependencies.

Writes ``build/compat/summary.json``; the exit status is 1 if an environment fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from tests.compat.environments import ENVIRONMENTS, Environment
from tests.compat.install import BUILD, ROOT, install
from tests.compat.selection import SELECTION, SMALL
from tests.services.processes import TOKEN, gone, kill, new_token

_MINUTES = 15
_SECONDS_TO_END = 30.0


def run(environment: Environment, selection: Sequence[str]) -> Mapping[str, Any]:
    """Run tests in one environment, and look whether all names exist there that the package imports.

    :param selection: node ids of pytest
    :return: name, versions, seconds, and number of tests by outcome; ``failed`` lists those that failed, ``missing``
        names that do not exist, and ``left`` processes that outlived the tests
    """
    started = time.monotonic()
    python, versions = install(environment)
    installed = time.monotonic()
    report, log = BUILD / f"{environment.name}.xml", BUILD / f"{environment.name}.log"
    report.unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    missing = _call(log, python, "-m", "tests.compat.imports")
    tests = ["-m", "pytest", "--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--quiet"]
    tested = _call(log, python, *tests, f"--junitxml={report}", "-p", "no:cacheprovider", *selection)
    return {
        "name": environment.name,
        "versions": versions,
        "seconds": {"install": round(installed - started), "tests": round(time.monotonic() - installed)},
        "status": tested.status or missing.status,
        "missing": missing.out.split(),
        "left": [*missing.left, *tested.left],
        **outcomes(report),
    }


@dataclass(frozen=True)
class _Called:
    """The end of a command: its status, its output, and the processes of it that had to be killed."""

    status: int
    out: str
    left: Sequence[str]


def _call(log: Path, *command: str | Path) -> _Called:
    """Call a command, and afterwards kill what it has started and that still lives.

    :param log: where its output is appended
    """
    token = new_token()
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", TOKEN: token}
    with tempfile.TemporaryFile("w+") as out, log.open("ab") as errors:
        try:
            status = subprocess.run(
                command, cwd=ROOT, env=variables, stdout=out, stderr=errors, timeout=_MINUTES * 60, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            status = -1
        left = gone(token, 0.0 if status == -1 else _SECONDS_TO_END)
        kill(left)
        out.seek(0)
        said = out.read()
        errors.write(said.encode())
    return _Called(status, said, [" ".join(process.command) for process in left])


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


def main(*arguments: str) -> int:
    """Run the tests in the environments of these names, or in all, with a line for each; 1 if any fails."""
    known = {environment.name: environment for environment in ENVIRONMENTS}
    names = [argument for argument in arguments if argument != "--small"]
    selection = SMALL if "--small" in arguments else SELECTION
    if unknown := set(names) - set(known):
        print(f"no such environment: {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    BUILD.mkdir(parents=True, exist_ok=True)
    results = []
    for name in names or known:
        found = run(known[name], selection)
        results.append(found)
        (BUILD / "summary.json").write_text(json.dumps({"environments": results}, indent=2) + "\n")
        print(_line(found), flush=True)
    return int(any(_is_bad(found) for found in results))


def _is_bad(found: Mapping[str, Any]) -> bool:
    """Return whether anything but passed tests came out; a test that is skipped has shown nothing."""
    return any(found[name] for name in ("status", "failed", "missing", "left", "skipped")) or not found["passed"]


def _line(found: Mapping[str, Any]) -> str:
    versions = found["versions"]
    text = (
        f"{'FAILED' if _is_bad(found) else 'passed'}: {found['name']} (Airflow {versions['apache-airflow']}, PySpark "
        f"{versions['pyspark']}, Python {versions['python']}), {found['passed']} tests in {found['seconds']['tests']} s"
    )
    if not _is_bad(found):
        return text
    wrong = [f"{name} does not exist" for name in found["missing"]]
    wrong += [f"still ran after the tests: {command}" for command in found["left"]]
    return "\n  ".join([text, *wrong, *found["failed"], f"see {BUILD / found['name']}.log"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
