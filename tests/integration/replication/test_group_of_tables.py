"""Runs of several tables in one process: their leases are renewed together, and one that is lost ends one run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
import sqlalchemy as sa

from airflow_provider_ckpt.core.errors import LeaseBusyError
from airflow_provider_ckpt.engines import several_runs
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.replication.setup import PipelineContext
from tests.services.replication import Replication, orders_pipeline
from tests.services.tables import execute, make_source, make_target, scalar

ROWS, BATCH = 400, 10
TTL = timedelta(seconds=2)


class Tables:
    """Some tables of one database, each of them a pipeline, whose rows can be slowed down.

    :param orders: database and Spark
    :param names: names of the tables
    """

    def __init__(self, orders: Replication, names: list[str]) -> None:
        self._orders = orders
        self.dsn, self.ledger = orders.dsn, orders.ledger
        self.names = names
        execute(self.dsn, "CREATE TABLE pace (seconds float8)", "INSERT INTO pace VALUES (0.5)")
        slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        execute(self.dsn, f"{slow} PERFORM pg_sleep((SELECT seconds FROM pace)); RETURN NULL; END $$")
        for name in names:
            make_source(self.dsn, f"{name}_source", ROWS)
            make_target(self.dsn, f"{name}_target")
            execute(
                self.dsn,
                f"CREATE TRIGGER slow AFTER INSERT ON {name}_target FOR EACH STATEMENT EXECUTE FUNCTION slow()",
            )

    def setups(self) -> dict[str, PipelineContext]:
        """Return the context of each table's run, with a lease of 2 s."""
        setups = {}
        for name in self.names:
            document = orders_pipeline(name, source=f"{name}_source", target=f"{name}_target")
            replication = replace(self._orders, document=document).changed(
                commit_strategy={"commit_interval": BATCH}, lease={"ttl": "2s"}
            )
            setups[name] = replication.setup(f"task:{name}")
        return setups

    def delivered(self, name: str) -> int:
        """Return the number of rows in a table's target."""
        found: int = scalar(self.dsn, f"SELECT count(*) FROM {name}_target")
        return found

    def hurry(self) -> None:
        """Stop slowing the targets down."""
        execute(self.dsn, "UPDATE pace SET seconds = 0")


@pytest.fixture
def tables(orders: Replication, monkeypatch: pytest.MonkeyPatch) -> Tables:
    """Two tables, whose runs share the test's Spark session."""
    monkeypatch.setattr(several_runs, "make_engine", lambda _: SessionEngine(orders.spark))
    monkeypatch.setattr(several_runs, "starts_own_spark", lambda _: False)
    return Tables(orders, ["a", "b"])


@pytest.fixture
def renewals(tables: Tables) -> Iterator[list[str]]:
    """Statements by which leases are renewed."""
    sent: list[str] = []

    def note(*args: object) -> None:
        if "SKIP LOCKED" in str(args[2]):
            sent.append(str(args[3]))

    sa.event.listen(tables.ledger._engine, "before_cursor_execute", note)
    yield sent
    sa.event.remove(tables.ledger._engine, "before_cursor_execute", note)


def await_(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_run_whose_lease_is_lost_stops_and_the_other_goes_on(tables: Tables, renewals: list[str]) -> None:
    ended: dict[str, several_runs.RunResult] = {}
    running = threading.Thread(target=lambda: ended.update(several_runs.run_several(tables.setups(), lanes_each=1)))
    running.start()
    await_(lambda: all(tables.delivered(name) > 0 for name in tables.names))
    await_(lambda: any(all(f'"{name}"' in sent for name in tables.names) for sent in renewals))
    time.sleep(TTL.total_seconds())
    for name in tables.names:
        with pytest.raises(LeaseBusyError):
            tables.ledger.acquire(name, "another", TTL)
    lost = tables.ledger.acquire("b", "another", timedelta(minutes=5), force=True)
    time.sleep(TTL.total_seconds())  # one more renewal tells the loss

    tables.hurry()
    running.join(60)

    assert {name: result.state for name, result in ended.items()} == {"a": "done", "b": "failed"}
    assert f"epoch {lost.epoch} was granted to another" in str(ended["b"].error)
    assert tables.delivered("a") == ROWS
    tables.ledger.release(lost)
    again = several_runs.run_several({"b": tables.setups()["b"]})
    assert again["b"].state == "done", again["b"].error
    assert scalar(tables.dsn, "SELECT count(*) FROM (SELECT * FROM b_source EXCEPT SELECT * FROM b_target) x") == 0
    assert tables.delivered("b") == ROWS
