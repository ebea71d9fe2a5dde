"""Commands with which ``peers.py`` runs Sling and dlt, each as a process that ends when its load has ended."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_EXTENSION = Path("extensions/v1.4.4/linux_amd64/httpfs.duckdb_extension")
"""Extension that Sling's DuckDB needs to write Parquet; its version is that of ``duckdb-cli`` in ``peers.lock``."""

LINES = "lines"


def run(command: Sequence[str | Path], env: Mapping[str, str]) -> str:
    """Run a process to its end and return what it printed.

    :raises RuntimeError: if it fails, with the last lines of its output
    """
    done = subprocess.run(command, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    said = done.stdout.decode(errors="replace")
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{said[-3000:]}")
    return said


@dataclass(frozen=True)
class Peers:
    """The environment with both tools.

    :param environment: path of the virtual environment
    :param home: directory for the state of both, which is empty at the start
    :param dsn: libpq URL of the database with sources and targets
    """

    environment: Path
    home: Path
    dsn: str

    def __post_init__(self) -> None:
        """Put DuckDB's extension where DuckDB looks for it."""
        if sys.platform != "linux" or platform.machine() != "x86_64":
            raise RuntimeError("the tools of peers.lock are those of Linux on x86-64")
        (self.home / ".duckdb" / _EXTENSION.parent).mkdir(parents=True)
        shutil.copy(self._packages / "duckdb_ext" / _EXTENSION, self.home / ".duckdb" / _EXTENSION)

    def sling_tables(self, sources: Mapping[str, str], key: str) -> None:
        """Copy the new rows of tables by Sling.

        :param sources: name of the target of each source table
        :param key: the primary key, by which rows replace older ones in the target; empty to append them
        """
        streams = {f"public.{source}": {"object": f"public.{target}"} for source, target in sources.items()}
        replication = {
            "source": "SOURCE",
            "target": "TARGET",
            "defaults": {"mode": "incremental", "update_key": "id", **({"primary_key": key} if key else {})},
            "streams": streams,
        }
        self._sling_replication(replication)

    def sling_schema(self, schema: str, target: str) -> None:
        """Copy the new rows of all tables of a schema by Sling, by their primary key.

        :param schema: schema of the source tables
        :param target: schema of the targets, whose names are those of the sources
        """
        replication = {
            "source": "SOURCE",
            "target": "TARGET",
            "defaults": {"mode": "incremental", "update_key": "id", "primary_key": "id"},
            "streams": {f"{schema}.*": {"object": f"{target}.{{stream_table}}"}},
        }
        self._sling_replication(replication)

    def sling_lines(self, source: Path, target: Path) -> None:
        """Write JSON lines to a Parquet file by Sling.

        :param source: directory of the files
        :param target: directory to write to
        """
        streams = ["--src-stream", f"file://{source}/*.jsonl", "--src-options", '{"flatten": true}']
        run([self._sling, "run", *streams, "--tgt-object", f"file://{target}/lines.parquet"], self._sling_env())

    def dlt_tables(self, sources: Sequence[str], dataset: str) -> None:
        """Copy the new rows of tables by dlt.

        :param sources: the source tables
        :param dataset: schema of the targets, whose names are those of the sources
        """
        at = self.dsn.replace("postgresql://", "postgresql+psycopg2://", 1)
        self._dlt(["tables", *sources], at, self.dsn, dataset)

    def dlt_schema(self, schema: str, sources: Sequence[str], dataset: str) -> None:
        """Copy the new rows of all tables of a schema by dlt.

        :param schema: schema of the source tables
        :param sources: their names
        :param dataset: schema of the targets, whose names are those of the sources
        """
        at = self.dsn.replace("postgresql://", "postgresql+psycopg2://", 1)
        self._dlt(["tables", *sources], at, self.dsn, dataset, {"SOURCE_SCHEMA": schema})

    def dlt_lines(self, source: Path, target: Path) -> None:
        """Write JSON lines to Parquet files by dlt.

        :param source: directory of the files
        :param target: directory to write to; the files are in ``lines/lines``
        """
        self._dlt([LINES], source.as_uri(), target.as_uri(), LINES)

    def forget(self, dataset: str) -> None:
        """Delete dlt's state of a dataset."""
        shutil.rmtree(self.home / dataset, ignore_errors=True)

    @property
    def _packages(self) -> Path:
        return next(self.environment.glob("lib/python3*/site-packages"))

    @property
    def _sling(self) -> Path:
        # Not the script of that name, which starts itself again.
        return self._packages / "sling_linux_amd64/bin/sling-linux-amd64"

    def _sling_env(self) -> dict[str, str]:
        at = f"{self.dsn}?sslmode=disable"
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "SLING_HOME_DIR": str(self.home / "sling"),
            "SLING_DISABLE_TELEMETRY": "true",
            "SLING_THREADS": str(os.cpu_count()),
            "DUCKDB_PATH": str(self.environment / "bin/duckdb"),
            "DUCKDB_USE_INSTALLED_EXTENSIONS": "true",
            "SOURCE": at,
            "TARGET": at,
        }

    def _sling_replication(self, replication: Mapping[str, object]) -> None:
        file = self.home / "replication.json"
        file.write_text(json.dumps(replication))
        run([self._sling, "run", "-r", file], self._sling_env())

    def _dlt(
        self,
        arguments: Sequence[str],
        source: str,
        target: str,
        dataset: str,
        more: Mapping[str, str] | None = None,
    ) -> None:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "RUNTIME__DLTHUB_TELEMETRY": "false",
            # One table after the other: in turn, all tables would have a connection at once.
            "EXTRACT__NEXT_ITEM_MODE": "fifo",
            "SOURCE": source,
            "TARGET": target,
            "DATASET": dataset,
            "STATE": str(self.home / dataset),
            **(more or {}),
        }
        run([self.environment / "bin/python", Path(__file__).with_name("peers_dlt.py"), *arguments], env)
