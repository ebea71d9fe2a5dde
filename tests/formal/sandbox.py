"""Copy of the package and its tests to which mutants are applied, one at a time; the work tree is never changed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PARTS = ("airflow_provider_ckpt", "tests", "docs", "pyproject.toml")
_SECONDS = 240
"""Nothing that runs here takes longer, unless it hangs."""


class SandboxError(Exception):
    """The harness itself failed: a search or a test could not be run."""


class Sandbox:
    """One copy, with the documentation, whose tables tests read.

    :param place: an empty directory
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        ignored = shutil.ignore_patterns("__pycache__", "_build", "node_modules")
        for name in _PARTS:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, place / name, ignore=ignored)
            else:
                shutil.copy(source, place / name)

    @property
    def package(self) -> Path:
        """Directory of the copied package."""
        return self.place / "airflow_provider_ckpt"

    @contextmanager
    def holding(self, file: str, text: str) -> Iterator[None]:
        """Give a file another text for a while.

        :param file: below the package
        """
        path = self.package / file
        before = path.read_text("utf-8")
        try:
            self._write(path, text)
            yield
        finally:
            self._write(path, before)

    def search(self, configuration: str) -> list[str]:
        """Search a small configuration; the properties that break."""
        done = self._run("search", configuration)
        if done.returncode != 0:
            raise SandboxError(f"the search of {configuration!r} did not end well: {done.stderr[-2000:]}")
        broken: list[str] = json.loads(done.stdout.splitlines()[-1])
        return broken

    def fails(self, tests: Sequence[str]) -> bool:
        """Return whether one of these tests fails.

        :raises SandboxError: if they could not be run
        """
        done = self._run("test", *tests)
        if done.returncode not in (0, 1):
            raise SandboxError(f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
        return done.returncode == 1

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        variables = os.environ | {"PYTHONPATH": str(self.place)}
        command = [sys.executable, "-m", "tests.formal.inside", str(self.place), *arguments]
        return subprocess.run(
            command, cwd=self.place, env=variables, capture_output=True, text=True, timeout=_SECONDS, check=False
        )

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, "utf-8")
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()
