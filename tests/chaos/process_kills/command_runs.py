"""Environment of a crash test: a PostgreSQL server, a source table, and a target and a pipeline for each kill.

The target has no key constraint, so that a duplicate would show. A statement-level trigger on the target sleeps 30 ms
for each batch. Without it, 200,000 rows are delivered in about a second, and few kills would hit the middle of a run.
The trigger changes nothing else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.ledger.ledger import Ledger
from tests.chaos.process_kills.kill_times import KillTime
from tests.services.command import CkptCommand, write_pipeline
from tests.services.postgres import PostgresServer, sqlalchemy_url
from tests.services.tables import execute, make_source, make_target, scalar

ROWS = 200_000
BATCHES = 100
SOURCE = "orders"
_SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.03); RETURN NULL; END $$
"""


class CommandRuns:
    """The server, the source, and a folder for everything that a moment writes.

    :param server: running
    :param folder: made if it is not there
    """

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.folder = folder
        self.dsn = server.new_database()
        self._ledger_dsn = server.new_database()
        make_source(self.dsn, SOURCE, ROWS)
        execute(self.dsn, _SLOW)

    def command_run(self, kill_time: KillTime) -> CommandRun:
        """A target, pipeline, and ledger for a moment: odd ones keep the ledger in PostgreSQL, even ones in SQLite."""
        name = f"crash-{kill_time.number}-{os.urandom(2).hex()}"
        target = f'"{name}"'
        make_target(self.dsn, target)
        execute(
            self.dsn,
            f"CREATE TRIGGER slow BEFORE INSERT ON {target} FOR EACH STATEMENT EXECUTE FUNCTION slow()",
        )
        home = self.folder / name
        sqlite = f"sqlite:///{home / 'ledger.db'}"
        url = sqlalchemy_url(self._ledger_dsn) if kill_time.number % 2 else sqlite
        command = CkptCommand(
            home,
            {
                "orders_db": self.dsn,
                "ckpt_default": self._ledger_dsn if kill_time.number % 2 else f"ckpt://{home / 'ledger.db'}",
            },
        )
        _migrate(url)
        file = write_pipeline(home / "pipeline.yaml", _pipeline(name, target, kill_time.waves))
        return CommandRun(name, target, file, command, self.dsn, url)


@dataclass(frozen=True, slots=True)
class CommandRun:
    """The pipeline, data and services of one moment.

    :param file: the pipeline's declaration
    :param ledger_url: for SQLAlchemy
    """

    pipeline: str
    target: str
    file: Path
    command: CkptCommand
    dsn: str
    ledger_url: str

    @contextmanager
    def ledger(self) -> Iterator[Ledger]:
        """The ledger, open."""
        with Ledger.open(self.ledger_url) as ledger:
            yield ledger

    def receipts(self) -> int:
        """Return the number of receipts in the sink."""
        if scalar(self.dsn, "SELECT to_regclass('ckpt_sink_receipt')") is None:
            return 0
        statement = "SELECT count(*) FROM ckpt_sink_receipt WHERE pipeline = %s"
        return int(scalar(self.dsn, statement, [self.pipeline]))

    def epoch(self, ledger: Ledger) -> int:
        """The epoch that the ledger granted last, 0 if none."""
        try:
            granted: int = ledger.status(self.pipeline)["lease"]["epoch"]
        except CkptError:
            return 0
        return granted

    def committed(self, ledger: Ledger) -> int:
        """Return the checkpoint."""
        return min((record.partition.committed for record in ledger.partitions(self.pipeline).values()), default=0)


_migrating = threading.Lock()
"""Moments run in threads, and Alembic knows one migration a process at a time."""


def _migrate(url: str) -> None:
    from airflow_provider_ckpt.ledger.store import migrate

    with _migrating:
        migrate.upgrade(url, create=True)


def _pipeline(name: str, target: str, waves: bool) -> dict[str, Any]:
    commit = {"commit_interval": ROWS // BATCHES} | ({"commit_interval_ms": 400} if waves else {})
    return {
        "name": name,
        "source": {"type": "postgres", "connection": "orders_db", "table": SOURCE, "cursor": "id"},
        "sink": {"type": "postgres", "connection": "orders_db", "table": target},
        "delivery": "exactly_once",
        "commit_strategy": commit,
        "consumer": {"lanes": 2},
        "run": {"conf": {"spark.master": "local[2]", "spark.driver.memory": "1g"}},
    }
