"""Type the commands of a documentation page, on a machine in the state that the page assumes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import airflow_provider_ckpt
from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.integration.docs.printed import elsewhere
from tests.services.database_server import PASSWORD, USER
from tests.services.docs import blocks_of
from tests.services.postgres import PostgresServer
from tests.services.tables import execute
from tests.services.terminal import Terminal

EXAMPLES = Path(airflow_provider_ckpt.__file__).parent / "example_dags"

Preparation = Callable[[], Mapping[str, str] | None]
"""Does what the text above a block supposes; texts that are others on this machine."""


def environment(home: Path) -> dict[str, str]:
    """The environment without a setting of Airflow's but these."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PG"))}
    return {
        **inherited,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES),
        "AIRFLOW__CKPT__WARM_SPARK": "False",  # it would stay when the page has been read
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
    }


@dataclass(frozen=True)
class Reader:
    """A shell in a directory.

    :param server: where ``psql`` leads to; connections ``shop`` and ``warehouse`` are databases of it
    """

    here: Path
    server: PostgresServer
    terminal: Terminal

    @staticmethod
    def settings(here: Path, server: PostgresServer) -> dict[str, str]:
        """Return the environment variables for server, connections and ledger."""
        return {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(server.port),
            "PGUSER": USER,
            "PGPASSWORD": PASSWORD,
            "AIRFLOW_CONN_SHOP": server.database_dsn("shop"),
            "AIRFLOW_CONN_WAREHOUSE": server.database_dsn("warehouse"),
            "AIRFLOW__CKPT__SQL_ALCHEMY_CONN": f"sqlite:///{here}/ledger.db",
        }

    def database(self, name: str, *statements: str) -> str:
        """Make a database anew, with these statements; its dsn."""
        execute(self.server.dsn, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        execute(self.server.dsn, f"CREATE DATABASE {name}")
        execute(self.server.database_dsn(name), *statements)
        return self.server.database_dsn(name)

    def ledger(self) -> Ledger:
        """The ledger that the commands work on; the caller closes it."""
        return Ledger.open(f"sqlite:///{self.here}/ledger.db")

    def airflow(self, arguments: str) -> str:
        """Run ``airflow`` with them, which must succeed; what it wrote."""
        status, output = self.terminal.type(f"airflow {arguments}")
        assert status == 0, f"airflow {arguments}:\n{output}"
        return output

    def follow(
        self, page: str, replacing: Mapping[str, str] | None = None, before: Mapping[str, Preparation] | None = None
    ) -> None:
        """Type every console block of a page, from the top.

        :param replacing: texts that are others on this machine
        :param before: what to do before the block that holds a text
        """
        others, waiting = dict(replacing or {}), dict(before or {})
        for block in blocks_of(page):
            if block.language != "console" or elsewhere(block):
                continue
            for text in [text for text in waiting if text in block.text]:
                others |= waiting.pop(text)() or {}
            self.terminal.follow(block.replacing(others))
        assert not waiting, f"{page}: no block holds {', '.join(waiting)}"
