"""Two runs of one pipeline at once: the second waits or is refused, and a suspended first run is fenced."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.errors import CkptError, ErrorType, LeaseBusyError, StaleEpochError
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.summary import RunSummary
from tests.chaos.evidence import gather, judge, sink_receipts
from tests.services.command import CkptCommand, write_pipeline
from tests.services.ledgers import new_ledger_database
from tests.services.postgres import PostgresServer, sqlalchemy_url
from tests.services.processes import Process, Role, gone, kill, marked, new_token
from tests.services.replication import Replication, connection_to, orders_pipeline
from tests.services.tables import execute, make_source, make_target, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, BATCHES = 4000, 40


def test_a_second_run_is_refused_when_told_to_fail(orders: Replication) -> None:
    with acquire(orders.setup("first")) as first:
        with pytest.raises(LeaseBusyError, match="first"):
            orders.changed(lease={"on_busy": "fail"}).run()
        assert orders.ledger.failed_runs("orders") == {}
        first.finish()

    assert orders.run().records == Counts(1000, 1000, 0, 0)


def test_a_second_run_waits_and_then_finds_nothing_left_to_do(orders: Replication) -> None:
    summaries: dict[str, RunSummary] = {}
    with acquire(orders.setup("first")) as first:
        second = threading.Thread(target=lambda: summaries.update(second=orders.run()))
        second.start()
        second.join(1.5)
        assert second.is_alive()
        assert summaries == {}
        first.finish()
    second.join(60)

    assert summaries["second"].records == Counts(1000, 1000, 0, 0)
    assert summaries["second"].epoch == first.epoch + 1


def test_a_second_run_that_waited_in_vain_is_refused(orders: Replication) -> None:
    with acquire(orders.setup("first")) as first, pytest.raises(LeaseBusyError):
        orders.changed(lease={"wait": "1s"}).run()
    orders.ledger.release(first.lease)


def test_an_expired_lease_is_taken_over_and_its_run_stores_nothing_more(orders: Replication) -> None:
    setup = orders.setup("first")
    lease = orders.ledger.acquire("orders", "first", timedelta(milliseconds=1))
    time.sleep(0.05)

    summary = orders.run()

    assert summary.epoch == lease.epoch + 1
    assert summary.records == Counts(1000, 1000, 0, 0)
    with pytest.raises(StaleEpochError, match=f"epoch {lease.epoch}"):
        setup.ledger.renew(lease)


def test_the_sink_refuses_the_transactions_of_an_older_epoch(orders: Replication) -> None:
    with acquire(orders.setup("first")) as first:
        first.plan()
        context = SinkContext(orders.ledger.id, "orders", first.epoch + 1)
        newer = registry.open_sink(orders.pipeline, connection_to(orders.dsn), context)
        newer.fence(first.epoch + 1)
        newer.close()

        with pytest.raises(CkptError, match=f"epoch {first.epoch + 1}") as refused:
            first.execute(SessionEngine(orders.spark), rounds=True)

        assert refused.value.type is ErrorType.FENCED
        orders.ledger.release(first.lease)
    assert scalar(orders.dsn, "SELECT count(*) FROM target") == 0
    assert sink_receipts(orders.dsn, "orders") == []

    assert orders.run().epoch == first.epoch + 2
    assert scalar(orders.dsn, "SELECT count(*) FROM target") == 1000


@dataclass
class Stage:
    """A pipeline of 4,000 rows in 40 batches, half a second a batch in one lane, with leases of 3 s.

    :param replication: runs it in this process
    :param command: runs it as a command
    :param file: its declaration
    """

    replication: Replication
    command: CkptCommand
    file: Path

    @property
    def dsn(self) -> str:
        """Return the dsn of source and target."""
        return self.replication.dsn

    @property
    def ledger(self) -> Ledger:
        """Return the ledger."""
        return self.replication.ledger

    def start(self, token: str, log: Path) -> subprocess.Popen[bytes]:
        """Start a run as a command."""
        with log.open("wb") as file:
            return self.command.start("run", str(self.file), token=token, out=subprocess.DEVNULL, log=file)

    def receipts(self) -> int:
        """Return the number of committed batches."""
        found = execute(self.dsn, "SELECT to_regclass('ckpt_sink_receipt')")
        return 0 if found[0][0] is None else len(sink_receipts(self.dsn, "orders"))

    def hurry(self) -> None:
        """Stop slowing the target down."""
        execute(self.dsn, "UPDATE pace SET seconds = 0")


@pytest.fixture
def stage(spark: SparkSession, postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Stage]:
    """Tables, a ledger and a command."""
    dsn, ledger_dsn = postgres_server.new_database(), new_ledger_database(postgres_server)
    make_source(dsn, "orders", ROWS)
    make_target(dsn, "target")
    execute(
        dsn,
        "CREATE TABLE pace AS SELECT 0.5 AS seconds",
        """
        CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM pg_sleep(seconds) FROM pace;
            RETURN NULL;
        END $$
        """,
        "CREATE TRIGGER slow BEFORE INSERT ON target FOR EACH STATEMENT EXECUTE FUNCTION slow()",
    )
    document = {
        **orders_pipeline(),
        "commit_strategy": {"commit_interval": ROWS // BATCHES},
        "consumer": {"lanes": 1},
        "lease": {"ttl": "3s"},
        "run": {"conf": {"spark.master": "local[2]"}},
    }
    with Ledger.open(sqlalchemy_url(ledger_dsn)) as ledger:
        command = CkptCommand(tmp_path / "home", {"orders_db": dsn, "ckpt_default": ledger_dsn})
        replication = Replication(spark, ledger, dsn, document)
        yield Stage(replication, command, write_pipeline(tmp_path / "pipeline.yaml", document))


def _task_alone(token: str) -> list[Process]:
    return [process for process in marked(token) if process.role is Role.TASK]


@pytest.mark.parametrize("paused", [_task_alone, marked], ids=["the command alone", "the command and all of Spark"])
def test_a_run_paused_past_its_lease_is_fenced_and_the_second_completes(
    stage: Stage, paused: Callable[[str], list[Process]], tmp_path: Path
) -> None:
    token, log = new_token(), tmp_path / "first.log"
    first = stage.start(token, log)
    try:
        _until(lambda: stage.receipts() >= 3, first, log)
        stopped = paused(token)
        kill(stopped, signal.SIGSTOP)
        before = stage.receipts()

        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(stage.replication.run)
            _until(lambda: _epoch(stage) == 2 or second.done(), first, log)
            stage.hurry()
            assert second.result(120).route == ["done"]
        assert first.poll() is None

        kill(stopped, signal.SIGCONT)
        assert first.wait(60) == 1
        assert gone(token, 10) == []
    finally:
        kill(marked(token), signal.SIGKILL)
        first.wait(10)

    said = log.read_text().strip().splitlines()[-1]
    assert said.startswith("error: "), said
    assert "epoch 1" in said, said
    assert "[StaleEpoch]" in said or "[Fenced]" in said, said
    assert before < BATCHES
    assert judge(gather(stage.dsn, stage.ledger, "orders", "orders", "target")).faults == []
    assert stage.receipts() == BATCHES
    assert scalar(stage.dsn, _COMMITTED_BEHIND_THE_FENCE) == 0


_COMMITTED_BEHIND_THE_FENCE = """
    SELECT count(*) FROM ckpt_sink_receipt r JOIN ckpt_sink_fence f USING (ledger, pipeline)
    WHERE r.epoch < f.epoch AND r.at > f.at
"""


def _epoch(stage: Stage) -> int:
    epoch: int = stage.ledger.status("orders")["lease"]["epoch"]
    return epoch


def _until(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(log.read_text())
        time.sleep(0.1)  # each look at the database takes a connection
