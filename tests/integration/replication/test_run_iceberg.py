"""Runs from JSON lines to an Iceberg table: each record becomes one row, whatever is lost between runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_ckpt.connectors.iceberg.table_version import IcebergVersion
from airflow_provider_ckpt.connectors.two_phase.committer import TableCommitter
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from tests.integration.connectors.interruptions import Killed, after, kill
from tests.services.iceberg import IcebergService
from tests.services.ledgers import make_ledger
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "air.flights"
FILE_ROWS = 100
DAYS = 3


@dataclass
class Flights:
    """A directory of JSON lines, and the replication of it into a table."""

    files: Path
    lake: IcebergService
    replication: Replication

    def put(self, number: int, *bad: str) -> None:
        """A file of a hundred flights, and of lines that are none."""
        ids = range(number * FILE_ROWS, (number + 1) * FILE_ROWS)
        lines = [json.dumps({"id": i, "day": f"2013-01-0{1 + i % DAYS}", "tail": f"N{i}"}) for i in ids]
        (self.files / f"{number}.jsonl").write_text("\n".join([*lines, *bad]) + "\n")

    @property
    def ids(self) -> list[int]:
        """Return the delivered ids."""
        return sorted(self.lake.rows(TABLE)["id"].to_pylist())


@pytest.fixture
def flights(spark: SparkSession, postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Flights]:
    """An empty directory, a catalog on PostgreSQL, and a pipeline that cuts batches of thirty."""
    (tmp_path / "in").mkdir()
    dsn = postgres_server.new_database()
    lake = IcebergService(tmp_path / "lake", dsn)
    document = {
        "name": "flights",
        "source": {"type": "files", "path": str(tmp_path / "in")},
        "transform": {"decode": "json", "schema": "id bigint, day date, tail string", "where": "id <> 13"},
        "sink": {"type": "iceberg", "connection": "lake", "table": TABLE},
        "delivery": "exactly_once",
        "commit_strategy": {"commit_interval": 30},
    }
    with make_ledger(postgres_server) as ledger:
        yield Flights(tmp_path / "in", lake, Replication(spark, ledger, dsn, document, {"lake": lake.connection}))


def test_every_record_is_delivered_once_from_run_to_run(flights: Flights) -> None:
    flights.put(0, "no flight")
    flights.put(1)

    first = flights.replication.run()
    again = flights.replication.run()
    flights.put(2)
    third = flights.replication.run()

    assert first.records == Counts(201, 199, 1, 1)
    assert (first.route, first.target_rows) == (["dead_letters", "done"], 199)
    assert (again.records.read, again.spark_started) == (0, False)
    assert (third.records, third.target_rows) == (Counts(100, 100, 0, 0), 299)
    assert flights.ids == [i for i in range(300) if i != 13]


def test_files_of_the_table_that_are_missing_are_named_by_the_audit(flights: Flights) -> None:
    flights.put(0)
    flights.replication.run()
    assert audit_sink(flights.replication.setup(), lambda _: None)["differences"] == []
    lost = flights.lake.files(TABLE)[0]
    lost.unlink()

    (found,) = audit_sink(flights.replication.setup(), lambda _: None)["differences"]

    assert (found["kind"], str(lost) in found["message"]) == ("TargetFileDamaged", True)


def test_a_driver_that_dies_around_its_commit_neither_loses_nor_doubles(
    flights: Flights, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = ((IcebergVersion, "commit", False), (IcebergVersion, "commit", True), (TableCommitter, "commit", True))
    for number, (owner, name, done) in enumerate(steps):
        flights.put(number)
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, after(getattr(owner, name), kill) if done else kill)
            with pytest.raises(Killed):
                flights.replication.run()
    last = flights.replication.run()

    assert last.route == ["done"]
    assert flights.ids == [i for i in range(300) if i != 13]
