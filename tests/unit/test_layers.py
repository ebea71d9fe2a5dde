"""The package keeps its import contracts in ``pyproject.toml``, and a forbidden import violates them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "airflow_provider_ckpt"


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the package in a folder; its lines are not wrapped."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--no-logo"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "300"})


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of the package and its contracts."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(ROOT / PACKAGE, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_the_contracts_are_kept() -> None:
    done = lint_imports(ROOT)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("importer", "imported", "contract"),
    [
        pytest.param("ledger/store/batches.py", "ledger.commands.plan", "Layers of ledger/", id="store-commands"),
        pytest.param("connectors/kafka/sink.py", "connectors.postgres.client", "Connectors are", id="kafka-postgres"),
        pytest.param("core/ranges.py", "config.pipeline", "Layers: an import only points down", id="core-config"),
        pytest.param("replication/run/plan.py", "replication.actions", "Layers of replication/", id="run-action"),
        pytest.param("core/errors.py", "pydantic", "core/ imports the standard library alone", id="core-pydantic"),
        pytest.param("core/ranges.py", "core.partition", "No circle of imports", id="circle-of-modules"),
        pytest.param("connectors/storage/filesystem.py", "connectors.json_encoding", None, id="allowed"),
    ],
)
def test_a_forbidden_import_breaks_a_contract(copied: Path, importer: str, imported: str, contract: str | None) -> None:
    path = copied / PACKAGE / importer
    whole = path.read_text("utf-8")
    name = f"{PACKAGE}.{imported}" if "." in imported else imported
    path.write_text(f"{whole}\nimport {name}\n", "utf-8")
    try:
        done = lint_imports(copied)
    finally:
        path.write_text(whole, "utf-8")

    broken = [line for line in done.stdout.splitlines() if " BROKEN" in line]
    if contract is None:
        assert (done.returncode, broken) == (0, []), done.stdout
    else:
        assert done.returncode == 1, done.stdout
        assert [line for line in broken if line.startswith(contract)], done.stdout
