"""Run ``airflow ckpt ...`` as a user does: in a real process with its own AIRFLOW_HOME and connections."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.services.processes import TOKEN

_SETTINGS = {
    "AIRFLOW__CKPT__WARM_SPARK": "False",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
    "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
}


class CkptCommand:
    """Runs the command in an environment of its own.

    :param home: AIRFLOW_HOME; made if it is not there
    :param connections: Airflow connections by id, as URIs
    :param airflow: the program; by default a new Python that imports Airflow
    """

    def __init__(
        self, home: Path, connections: Mapping[str, str], *, airflow: Sequence[str] = (sys.executable, "-m", "airflow")
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        self.home = home
        self._airflow = airflow
        self.env = {
            **inherited,
            **_SETTINGS,
            "AIRFLOW_HOME": str(home),
            **{f"AIRFLOW_CONN_{name.upper()}": uri for name, uri in connections.items()},
        }

    def start(
        self, *arguments: str, token: str = "", out: IO[bytes] | int = subprocess.PIPE, log: IO[bytes] | int
    ) -> subprocess.Popen[bytes]:
        """Start ``airflow ckpt`` in a process group of its own.

        :param token: marks it and all that it starts (see ``processes.py``)
        :param out: where its result goes
        :param log: where its log goes
        """
        return subprocess.Popen(
            [*self._airflow, "ckpt", *arguments],
            env={**self.env, **({TOKEN: token} if token else {})},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            start_new_session=True,
        )

    def run(self, *arguments: str, seconds: float = 600) -> subprocess.CompletedProcess[str]:
        """Run ``airflow ckpt`` to its end.

        :param seconds: how long it may take
        """
        return subprocess.run(
            [*self._airflow, "ckpt", *arguments],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def migrate(self) -> None:
        """Make the ledger.

        :raises RuntimeError: if that fails
        """
        done = self.run("db", "migrate")
        if done.returncode:
            raise RuntimeError(f"airflow ckpt db migrate failed:\n{done.stderr}")


def write_pipeline(path: Path, document: Mapping[str, Any]) -> Path:
    """Write a declaration as YAML, and return where."""
    import yaml

    path.write_text(yaml.safe_dump(dict(document), sort_keys=False))
    return path
