"""Machine as a user has it: an AIRFLOW_HOME with a ledger, databases and files, and the commands that run on it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.services.command import CkptCommand, write_pipeline
from tests.services.database_server import PASSWORD
from tests.services.warm_airflow import airflow_in
from tests.services.warm_spark import WarmSpark


class Machine:
    """An AIRFLOW_HOME with a ledger, two databases, and a directory for files.

    :param here: the directory
    :param databases: a dsn by connection id
    :param command: ``airflow ckpt`` with these databases as connections
    """

    def __init__(self, here: Path, databases: Mapping[str, str], command: CkptCommand) -> None:
        self.here = here
        self.databases = databases
        self.command = command

    def run(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """One run that ends well; its summary, of which the sum is checked."""
        return self.succeeded(self.command.run("run", str(self.write(document)), "-o", "json"))

    def succeeded(self, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
        """The summary that a command printed, of which the sum is checked."""
        assert done.returncode == 0, done.stderr
        summary: dict[str, Any] = json.loads(done.stdout)
        records = summary["records"]
        assert records["read"] == records["delivered"] + records["filtered"] + records["dead_lettered"]
        assert all(line.split(" ")[0].count(":") == 2 for line in done.stderr.splitlines()), done.stderr
        return summary

    def refused(self, document: Mapping[str, Any]) -> str:
        """One run that cannot work; its one line."""
        return failed(self.command.run("run", str(self.write(document)), "-o", "json"))

    def write(self, document: Mapping[str, Any]) -> Path:
        """The declaration as a file."""
        return write_pipeline(self.here / f"{document['name']}.yaml", document)

    def status(self, pipeline: str) -> dict[str, Any]:
        """Return the ledger's status of a pipeline."""
        done = self.command.run("status", pipeline, "-o", "json")
        assert done.returncode == 0, done.stderr
        status: dict[str, Any] = json.loads(done.stdout)
        return status


@contextmanager
def machine_at(here: Path, databases: Mapping[str, str]) -> Iterator[Machine]:
    """Set up a machine on which the command's runs share a warm Spark, as they do by default.

    :param here: the directory
    :param databases: a dsn by connection id
    """
    connections = {**databases, "locked": databases["shop"].replace(PASSWORD, "not-it")}
    command = CkptCommand(here / "home", connections, airflow=[str(here / "airflow")])
    with WarmSpark(here / "runtime") as spark, airflow_in(here, command.env):
        command.env |= spark.environment
        command.migrate()
        yield Machine(here, databases, command)


def failed(done: subprocess.CompletedProcess[str]) -> str:
    """The one line of a command that failed."""
    assert (done.returncode, done.stdout) == (1, ""), done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert lines == done.stderr.splitlines()[-1:], done.stderr
    assert "Traceback" not in done.stderr
    assert PASSWORD not in done.stderr
    return lines[0]


def events(name: str, source: Path, target: Path) -> dict[str, Any]:
    """A pipeline of JSON lines into Delta."""
    return {
        "name": name,
        "source": {"type": "files", "path": str(source)},
        "transform": {"decode": "json", "schema": "id bigint, note string"},
        "sink": {"type": "delta", "path": str(target)},
    }
