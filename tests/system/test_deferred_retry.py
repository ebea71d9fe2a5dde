"""A retry that waits in a real triggerer: the lease outlives its time to live, and a takeover ends the wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from airflow_provider_ckpt.core.errors import LeaseBusyError
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.records import Lease
from tests.services.airflow import AirflowServices
from tests.services.postgres import PostgresServer

_TTL = 15.0
_PIPELINE = f"""
name: people
source: {{{{type: files, path: "{{data}}/in"}}}}
transform: {{{{decode: json, schema: id int}}}}
sink: {{{{type: postgres, connection: store, table: people}}}}
lease: {{{{ttl: {_TTL:.0f}s}}}}
retry: {{{{max_attempts: 1, rounds: 2, initial_delay_ms: {{delay}}, max_delay_ms: {{delay}}, jitter: 0}}}}
"""
_DAG = """
from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider_ckpt.task_groups.replication import CkptReplicationTaskGroup

with DAG("people", schedule=None, default_args={"retries": 1, "retry_delay": timedelta(seconds=1)}):
    CkptReplicationTaskGroup("people", pipeline="people.yaml", deferrable=True)
"""
_TARGET = """
CREATE TABLE people (id int);
CREATE TABLE gate (open boolean);
INSERT INTO gate VALUES (false);
CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT (SELECT open FROM gate) THEN
        RAISE EXCEPTION 'come back later' USING ERRCODE = '40001';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER guard BEFORE INSERT ON people FOR EACH STATEMENT EXECUTE FUNCTION guard();
"""


@dataclass
class Scene:
    """An Airflow with a triggerer, and a target that refuses every batch until its gate is opened."""

    airflow: AirflowServices
    data: Path
    dags: Path
    dsn: str

    def declare(self, delay: int) -> None:
        (self.dags / "people.yaml").write_text(_PIPELINE.format(data=self.data, delay=delay * 1000))

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        connection = psycopg2.connect(self.dsn)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(text)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def ledger(self) -> Ledger:
        return Ledger.open(f"sqlite:///{self.data}/ledger.db")

    def deferred(self, run_id: str) -> None:
        """Wait until the retry task waits in the triggerer."""
        deadline = time.monotonic() + 240
        while (states := self.airflow.task_states("people", run_id))["people.retry"] != "deferred":
            assert time.monotonic() < deadline, states
            assert "failed" not in states.values(), states
            time.sleep(0.3)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[Scene]:
    """The ledger is named by a connection that only the metadata database holds."""
    data, dags = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("dags")
    (data / "in").mkdir()
    (dags / "people.py").write_text(_DAG)
    dsn = postgres_server.new_database()
    env = {"AIRFLOW_CONN_STORE": dsn, "TMPDIR": str(data)}
    with AirflowServices(tmp_path_factory.mktemp("home"), dags, env, triggerer=True) as services:
        services.cli("connections", "add", "ckpt_default", "--conn-uri", f"ckpt://{data}/ledger.db")
        services.cli("ckpt", "db", "migrate")
        made = Scene(services, data, dags, dsn)
        made.sql(_TARGET)
        yield made


def test_the_lease_is_renewed_while_the_retry_waits(scene: Scene) -> None:
    scene.declare(delay=60)
    (scene.data / "in" / "a.jsonl").write_text('{"id": 1}\n{"id": 2}\n')
    run_id = scene.airflow.trigger("people")
    scene.deferred(run_id)

    time.sleep(1.5 * _TTL)

    with scene.ledger() as ledger, pytest.raises(LeaseBusyError, match=f"dag:people/{run_id.replace('+', '.')}"):
        ledger.acquire("people", "a rival", timedelta(seconds=_TTL))
    scene.sql("UPDATE gate SET open = true")
    assert scene.airflow.wait("people", run_id) == "success"
    assert scene.sql("SELECT id FROM people ORDER BY id") == [(1,), (2,)]
    with scene.ledger() as ledger:
        assert ledger.status("people")["lease"]["held"] is False


def test_a_takeover_while_the_retry_waits_fails_it_without_another_try(scene: Scene) -> None:
    scene.declare(delay=600)
    scene.sql("UPDATE gate SET open = false")
    (scene.data / "in" / "b.jsonl").write_text('{"id": 3}\n')
    before = scene.sql("SELECT count(*) FROM people")
    run_id = scene.airflow.trigger("people")
    scene.deferred(run_id)

    with scene.ledger() as ledger:
        lease = ledger.status("people")["lease"]
        held = Lease("people", lease["owner"], lease["epoch"], timedelta(seconds=_TTL), datetime.now(UTC))
        ledger.release(held)
        ledger.acquire("people", "a rival", timedelta(minutes=5))

    assert scene.airflow.wait("people", run_id, timeout=120) == "failed"
    assert scene.airflow.task_states("people", run_id)["people.retry"] == "failed"
    log = scene.airflow.task_log("people", run_id, "people.retry")
    assert f"epoch {lease['epoch'] + 1} was granted to a rival" in log
    assert scene.sql("SELECT count(*) FROM people") == before
