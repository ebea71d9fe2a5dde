"""Create the virtual environment of an :class:`~.environments.Environment` in ``build/compat`` from its lock file.

``python -m tests.compat.install`` writes the lock files again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.compat.environments import ENVIRONMENTS, Environment

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "compat"
_LOCKS = Path(__file__).parent
_SUPPORTED = ("3.13", "3.12", "3.11")
_VERSIONS = """
import json, platform
from importlib.metadata import version
from airflow_provider_ckpt.spark.versions import installed_pyspark
names = ["apache-airflow", "apache-airflow-providers-apache-spark", "deltalake", "pandas", "pyarrow", "pyiceberg"]
found = {"python": platform.python_version(), "pyspark": installed_pyspark()}
print(json.dumps({**found, **{name: version(name) for name in names}}))
"""


def lock_file(environment: Environment) -> Path:
    """Return the path of an environment's lock file: one package and its version a line."""
    return _LOCKS / f"{environment.name}.txt"


def lock(environment: Environment) -> None:
    """Write an environment's lock file again, with the newest versions that its constraints allow."""
    constraints = [
        f"apache-airflow=={environment.airflow}",
        f"pyspark=={environment.pyspark}",
        *environment.constraints,
    ]
    command = [
        "pip",
        "compile",
        "pyproject.toml",
        "--universal",
        "--python-version",
        "3.11",
        "--extra",
        "all",
        "--group",
        "test",
    ]
    command += ["--group", "build", "--upgrade", "--quiet", "--no-header", "--no-annotate", "--no-emit-index-url"]
    command += ["--resolution", "lowest-direct" if environment.lowest else "highest"]
    command += ["--constraint", "-", "--output-file", str(lock_file(environment))]
    subprocess.run([_uv(), *command], input="\n".join(constraints), text=True, cwd=ROOT, check=True)


def install(environment: Environment) -> tuple[Path, Mapping[str, str]]:
    """Make an environment, unless it is there and its lock file has not changed, and install this package into it.

    :return: its interpreter, and the versions of what is installed
    :raises RuntimeError: if Airflow or PySpark are not of the environment's versions
    """
    home = BUILD / environment.name
    content = f"{_interpreter(environment)}\n{lock_file(environment).read_text()}"
    digest, mark = hashlib.sha256(content.encode()).hexdigest(), home / ".ready"
    if not mark.exists() or mark.read_text() != digest:
        _make(environment, home)
        mark.write_text(digest)
    _uv_in(home, "pip", "install", "--no-deps", "--no-build-isolation", "--editable", ".")
    python = home / "bin" / "python"
    found = json.loads(subprocess.run([python, "-c", _VERSIONS], capture_output=True, text=True, check=True).stdout)
    for name, wanted in {"apache-airflow": environment.airflow, "pyspark": environment.pyspark}.items():
        if found[name] != wanted:
            raise RuntimeError(f"{environment.name} has {name} {found[name]} instead of {wanted}")
    return python, found


def _make(environment: Environment, home: Path) -> None:
    _uv_in(home, "venv", "--clear", "--python", _interpreter(environment), str(home))
    _uv_in(home, "pip", "sync", str(lock_file(environment)))
    # Last, as the install page says, since pyspark-client may be of another version and shares its folder.
    # uv's --reinstall would download it again.
    _uv_in(home, "pip", "uninstall", "pyspark")
    _uv_in(home, "pip", "install", "--no-deps", f"pyspark=={environment.pyspark}")


def _uv_in(home: Path, *arguments: str) -> None:
    """Run uv for an environment."""
    subprocess.run([_uv(), *arguments, "--quiet"], env={**os.environ, "VIRTUAL_ENV": str(home)}, cwd=ROOT, check=True)


def _interpreter(environment: Environment) -> str:
    """Return the path of the environment's Python, or of another supported one.

    :raises RuntimeError: if there is none
    """
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for wanted in (environment.python, *_SUPPORTED):
        for found in (*sorted(versions.glob(f"{wanted}.*/bin/python")), shutil.which(f"python{wanted}")):
            if found is not None:
                return str(found)
    raise RuntimeError(f"make compat needs Python {', '.join(_SUPPORTED)}, one of them")


def _uv() -> str:
    return shutil.which("uv") or str(Path(sys.executable).parent / "uv")


if __name__ == "__main__":
    for each in ENVIRONMENTS:
        lock(each)
