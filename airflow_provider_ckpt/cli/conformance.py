"""Run the conformance suite of sinks beside a pipeline's target, for ``airflow ckpt validate --conformance``.

The suite is a set of tests that every sink must pass. It uses tables of its own in the target's database.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_FILE = "AIRFLOW_CKPT_CONFORMANCE_FILE"
_PLUGIN = "airflow_provider_ckpt.testing.plugin"
_FAILED = re.compile(r"^(?:FAILED|ERROR) \S*?::(.*)$", re.MULTILINE)
_COLLECTED = re.compile(r"(?:collecting \.\.\. )?collected (\d+) item")
_PASSED = re.compile(r" PASSED +\[ *\d+%\]$")
_PROGRESS_SECONDS = 3.0


def find_nonconformities(file: str, pipeline: Pipeline) -> list[str]:
    """Run the conformance suite of sinks in a separate process, show its progress on stderr, and return what fails.

    :param file: path of the pipeline's file, from which the suite loads the pipeline again
    :param pipeline: the pipeline, whose type of sink chooses the suite
    :return: one sentence for each test that fails, or a single sentence if the suite cannot run; empty if all tests
        pass
    """
    from airflow_provider_ckpt.connectors import registry

    tests = registry.conformance_tests(pipeline)
    if tests is None:
        return [f"--conformance: there is no suite for a sink of type {pipeline.sink.type} that runs beside its target"]
    if find_spec("pytest") is None:
        return ["--conformance needs pytest: install the extra testing of airflow-provider-ckpt"]
    command = [sys.executable, "-m", "pytest", "-v", "--tb=line", "-p", "no:cacheprovider", "-p", _PLUGIN]
    with (
        TemporaryDirectory(prefix="ckpt-conformance-") as empty,  # a folder without a configuration of pytest
        TemporaryFile("w+") as errors,
        subprocess.Popen(  # noqa: S603
            [*command, f"--rootdir={empty}", "--pyargs", tests],
            cwd=empty,
            env={**os.environ, _FILE: str(Path(file).resolve())},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as suite,
    ):
        assert suite.stdout is not None
        output = "".join(_showing_progress(suite.stdout))
        code = suite.wait()
        errors.seek(0)
        error = errors.read()
    failed = [f"the sink does not conform: {name}" for name in _FAILED.findall(output)]
    if code and not failed:
        last = (error or output).strip().rpartition("\n")[2]
        return [f"the conformance suite could not run: {last}"]
    return failed


def _showing_progress(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines that pytest prints, and every few seconds write the number of passed tests to stderr.

    :param lines: the lines that pytest prints
    """
    count = passed = 0
    shown = monotonic()
    for line in lines:
        yield line
        found = _COLLECTED.match(line)
        count = int(found[1]) if found else count
        passed += bool(_PASSED.search(line))
        if found or (count and monotonic() - shown >= _PROGRESS_SECONDS):
            shown = monotonic()
            sys.stderr.write(f"conformance suite: {passed} of {count} tests have passed\n")
