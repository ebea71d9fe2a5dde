"""Call ``airflow ckpt ...`` in the test's own process, with Airflow's parser and a real SQLite ledger."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import pytest
import sqlalchemy as sa
import yaml
from airflow.cli.cli_parser import get_parser

from airflow_provider_ckpt.__main__ import add_commands
from airflow_provider_ckpt.ledger.store.database import create_engine, parse_url
from tests.services.restored_logging import restored_logging


def damage(statement: sa.Executable) -> None:
    """Change the tables of the ledger that ``airflow ckpt`` finds, behind its back."""
    engine = create_engine(parse_url(os.environ["AIRFLOW__CKPT__SQL_ALCHEMY_CONN"]))
    with engine.begin() as connection:
        connection.execute(statement)
    engine.dispose()


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    status: int
    out: str
    err: str


class Ckpt:
    """Calls commands and takes what they write.

    :param capfd: the test's own
    """

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        add_commands()
        self._capfd = capfd

    def run(self, *arguments: str) -> Done:
        """Run one command to its end."""
        self._capfd.readouterr()
        status = 0
        with restored_logging():
            try:
                args = get_parser().parse_args(["ckpt", *arguments])
                args.func(args)
            except SystemExit as ended:
                status = int(ended.code or 0)
        out, err = self._capfd.readouterr()
        return Done(status, out, err)

    def json(self, *arguments: str) -> Any:
        """The document of a command that succeeds."""
        done = self.run(*arguments, "-o", "json")
        assert done.status == 0, done.err
        return json.loads(done.out)

    def yaml(self, *arguments: str) -> Any:
        """The same, as YAML."""
        done = self.run(*arguments, "-o", "yaml")
        assert done.status == 0, done.err
        return yaml.safe_load(done.out)

    def table(self, *arguments: str) -> str:
        """Run a command that succeeds, and return its output."""
        done = self.run(*arguments)
        assert done.status == 0, done.err
        return done.out

    def refused(self, *arguments: str) -> str:
        """The line of a command that is refused and has no result."""
        done = self.run(*arguments, "-o", "json")
        assert (done.status, done.out) == (1, "")
        assert "Traceback" not in done.err
        last = done.err.splitlines()[-1]
        assert last.startswith("error: ")
        return last

    def failed(self, *arguments: str) -> tuple[Any, str]:
        """The document and the line of a command whose result is not good enough."""
        done = self.run(*arguments, "-o", "json")
        assert done.status == 1
        return json.loads(done.out), done.err.splitlines()[-1]
