"""Run pipelines on each engine, in this process or in one that may be killed.

Run as a script, the module is that process: it executes the run that a file describes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg2

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.engines.factory import make_engine
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.process_lease_owner import of_this_process
from airflow_provider_ckpt.replication.run.engine_protocol import Engine
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.run.summary import RunSummary
from airflow_provider_ckpt.replication.setup import PipelineContext
from airflow_provider_ckpt.spark.transform.python_function import pack
from tests.services.postgres import sqlalchemy_url
from tests.services.replication import connection_to, orders_pipeline
from tests.services.tables import execute, make_source, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONNECTION = "the_server"
"""Id of the Airflow connection to a Spark Connect server."""


class Kind(StrEnum):
    """The place where a run's lanes run."""

    WARM = "warm"
    SUBMIT = "submit"
    STANDALONE = "standalone"
    CONNECT = "connect"


@dataclass
class EngineSetup:
    """An engine, a ledger and a database.

    :param run_part: ``run`` of a declaration, which chooses the engine
    :param ledger_dsn: where the ledger is
    :param dsn: of the database that holds source and target
    :param session: returns the Spark session of the tests
    :param others: further connections, by id
    """

    kind: Kind
    run_part: Mapping[str, Any]
    ledger: Ledger
    ledger_dsn: str
    dsn: str
    session: Callable[[], SparkSession]
    others: dict[str, Connection] = field(default_factory=dict)

    def pipeline(self, document: Mapping[str, Any]) -> Pipeline:
        """The declaration as a model, on this engine."""
        return build({**document, "run": {**document.get("run", {}), **self.run_part}})

    def run(
        self,
        document: Mapping[str, Any],
        *,
        engine: Engine | None = None,
        function: Callable[..., Any] | None = None,
        owner: str = "test",
    ) -> RunSummary:
        """One whole run.

        :param engine: this pipeline's, which the test wants to hold
        :param function: the transform's own
        """
        pipeline = self.pipeline(document)
        packed = pack(function) if function else None
        setup = PipelineContext(pipeline, self.ledger, self._connection, owner, function=packed)
        return replicate(setup, engine or make_engine(pipeline))

    def run_again(self, document: Mapping[str, Any]) -> RunSummary:
        """One more run; a Spark of its own, of which a test has seen one, is replaced by the session of the tests."""
        if self.kind is Kind.SUBMIT:
            return self.run(document, engine=SessionEngine(self.session()))
        return self.run(document)

    def _connection(self, name: str) -> Connection:
        return self.others.get(name) or connection_to(self.dsn, name)

    @contextmanager
    def running(self, document: Mapping[str, Any], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
        """The same run as a process of its own."""
        file = folder / "run.json"
        declared = {**document, "run": {**document.get("run", {}), **self.run_part}}
        file.write_text(json.dumps({"document": declared, "ledger": sqlalchemy_url(self.ledger_dsn), "dsn": self.dsn}))
        with (folder / "run.log").open("wb") as log:
            process = subprocess.Popen([sys.executable, "-m", __name__, file], stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def slow_orders(engine_setup: EngineSetup, rows: int, *, seconds: float = 0.1) -> dict[str, Any]:
    """A pipeline whose target takes its time for every batch: it leaves out what was returned and divides by zero once.

    :returns: its declaration, in batches of 100
    """
    slow = f"BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END"
    make_source(engine_setup.dsn, "orders", rows)
    execute(
        engine_setup.dsn,
        "CREATE TABLE target (id bigint, share bigint)",
        f"CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ {slow} $$",
        "CREATE TRIGGER slow AFTER INSERT ON target FOR EACH STATEMENT EXECUTE FUNCTION slow()",
    )
    return orders_pipeline() | {
        "consumer": {"strategy": "round_robin", "lanes": 2},
        "commit_strategy": {"commit_interval": 100},
        "transform": {"where": "status <> 'returned'", "select": {"id": "id", "share": "1000 div (id - 8)"}},
        "dead_letter_queue": {"include_stack_trace": True},
    }


def hurry(engine_setup: EngineSetup) -> None:
    """From now on the target of :func:`slow_orders` takes no time; whoever has begun a batch is not waited for."""
    execute(
        engine_setup.dsn,
        "CREATE OR REPLACE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
    )


def expected(engine_setup: EngineSetup) -> tuple[int, int]:
    """Return the expected numbers of rows of :func:`slow_orders` in the target: all, and distinct ones."""
    kept = scalar(engine_setup.dsn, "SELECT count(*) FROM orders WHERE status <> 'returned' AND id <> 8")
    return kept, kept


def delivered(engine_setup: EngineSetup) -> tuple[int, int]:
    """Return the numbers of rows in the target: all, and distinct ones."""
    (found,) = execute(engine_setup.dsn, "SELECT count(*), count(DISTINCT id) FROM target")
    return found[0], found[1]


def await_rows(engine_setup: EngineSetup, seconds: float = 120.0) -> None:
    """Wait until something was delivered."""
    deadline = time.monotonic() + seconds
    with closing(psycopg2.connect(engine_setup.dsn)) as connection, connection.cursor() as cursor:
        connection.autocommit = True
        while not cursor.rowcount > 0:
            assert time.monotonic() < deadline, "nothing was delivered"
            time.sleep(0.02)
            cursor.execute("SELECT FROM target LIMIT 1")


def main(file: str) -> int:
    """Make the run that a file describes."""
    told = json.loads(Path(file).read_text())
    pipeline = build(told["document"])
    with Ledger.open(told["ledger"]) as ledger:
        setup = PipelineContext(pipeline, ledger, lambda name: connection_to(told["dsn"], name), of_this_process())
        replicate(setup, make_engine(pipeline))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
