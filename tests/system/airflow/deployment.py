"""Support for the tests of one Airflow: pipelines from files into PostgreSQL, gates that stop a run, and the trace.

Each test has a pipeline, a DAG and a target table of the same name. A trigger of the target waits for the table's gate.
So a test can stop a run while it writes rows, and knows how far it has come.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil
import psycopg2
from airflow.sdk import exceptions

from airflow_provider_ckpt.config.load import load
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from airflow_provider_ckpt.replication.setup import PipelineContext
from tests.services import processes
from tests.services.airflow import AirflowServices
from tests.services.postgres import sqlalchemy_url
from tests.services.processes import Process
from tests.services.replication import connection_to
from tests.services.tables import execute, scalar

_PIPELINE = """
name: {name}
source: {{type: files, path: "{data}/in/{name}"}}
transform: {{decode: json, schema: id int}}
sink: {{type: postgres, connection: store, table: {name}}}
lease: {{ttl: {ttl}s, on_busy: wait}}
retry: {{max_attempts: 1, rounds: 2, initial_delay_ms: {delay}, max_delay_ms: {delay}, jitter: 0, on_exhausted: hold}}
recovery: {{settle_lag: 0s}}
run: {{engine: {engine}, conf: {{spark.master: "local[{cores}]"}}}}
"""
PATIENCE = 300
"""Seconds in which what a test waits for happens even while others run beside it on a busy machine."""

_AT_ONCE = 3
"""Lanes of the standing driver: one that waits at a gate does not hold up the runs of other tests."""

_GATE = """
CREATE OR REPLACE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtext(TG_TABLE_NAME));
    RETURN NULL;
END $$
"""
_BUSY = """
CREATE OR REPLACE FUNCTION busy() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'come back later' USING ERRCODE = '40001';
END $$
"""
_WAITING = """
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid::int8 = hashtext(%s)::oid::int8
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class Kind(StrEnum):
    """The form of a pipeline's DAG; see ``replication.py``."""

    GROUPED = "grouped"
    FOLLOWED = "followed"
    DEFERRED = "deferred"
    SINGLE = "single"
    DAILY = "daily"


@dataclass(frozen=True)
class Declared:
    """One pipeline of the tests.

    :param ttl: of its lease, in seconds
    :param delay: before its second round, in milliseconds
    :param cold: whether each run starts a Spark of its own, which a test can find below the worker and kill
    """

    name: str
    kind: Kind
    ttl: int = 60
    delay: int = 500
    cold: bool = False


@dataclass(frozen=True)
class Trace:
    """The database's view of a pipeline after a test.

    :param ids: what the target holds
    :param held: whether somebody holds the lease
    :param events: kinds of events in the audit log, in order
    """

    ids: list[int]
    held: bool
    epoch: int
    events: list[str]


class Deployment:
    """One Airflow, its ledger, and the data that flows.

    :param store: the dsn of the targets' database
    :param ledger_dsn: the dsn of the ledger's
    :param metadata: the dsn of Airflow's own
    """

    def __init__(
        self, airflow: AirflowServices, data: Path, dags: Path, *, store: str, ledger_dsn: str, metadata: str
    ) -> None:
        self.airflow = airflow
        self.data = data
        self.dags = dags
        self.store = store
        self.ledger_dsn = ledger_dsn
        self.metadata = metadata
        self.declarations: dict[str, Path] = {}

    def declare(self, pipelines: list[Declared]) -> None:
        """Write declarations, and make sources and targets; the gates are open."""
        execute(self.store, _GATE, _BUSY)
        for item in pipelines:
            (self.data / "in" / item.name).mkdir(parents=True)
            engine, cores = ("submit", 1) if item.cold else ("warm", _AT_ONCE)
            values = {"data": self.data, "ttl": item.ttl, "delay": item.delay, "engine": engine, "cores": cores}
            text = _PIPELINE.format(name=item.name, **values)
            self.declarations[item.name] = self.dags / item.kind / f"{item.name}.yaml"
            self.declarations[item.name].parent.mkdir(exist_ok=True)
            self.declarations[item.name].write_text(text)
            execute(
                self.store,
                f"CREATE TABLE {item.name} (id int)",
                f"CREATE TRIGGER gate BEFORE INSERT ON {item.name} FOR EACH STATEMENT EXECUTE FUNCTION gate()",
            )

    def write(self, name: str, ids: range, damaged: int = 0) -> None:
        """A file of JSON lines that appears all at once, some of them no JSON."""
        aside = self.data / f"{name}.aside"
        aside.write_text("".join(json.dumps({"id": number}) + "\n" for number in ids) + "no JSON\n" * damaged)
        aside.rename(self.data / "in" / name / f"{ids.start:06}.jsonl")

    def refuse(self, name: str, *, whether: bool) -> None:
        """Have the target refuse rows as a busy server does, or no longer."""
        execute(self.store, f"DROP TRIGGER IF EXISTS busy ON {name}")
        if whether:
            execute(
                self.store, f"CREATE TRIGGER busy BEFORE INSERT ON {name} FOR EACH STATEMENT EXECUTE FUNCTION busy()"
            )

    @contextmanager
    def closed(self, name: str) -> Iterator[None]:
        """Inside the block nothing is written to the target; whoever tries waits."""
        connection = psycopg2.connect(self.store)
        connection.autocommit = True
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_lock(hashtext(%s))", [name])
            yield
        finally:
            connection.close()

    @contextmanager
    def locked(self, dsn: str) -> Iterator[Callable[[str, list[str]], None]]:
        """Gives a function that runs statements in one transaction, which is open until the block's end."""
        connection = psycopg2.connect(dsn)
        try:
            with connection.cursor() as cursor:
                yield cursor.execute
        finally:
            connection.close()

    def at_gate(self, name: str, writers: int = 1) -> None:
        """Wait until so many writers wait at the target's closed gate."""
        self.airflow.until(
            lambda: int(scalar(self.store, _WAITING, [name])) == writers, PATIENCE, f"nobody came to the gate of {name}"
        )

    # Airflow's services

    def kill(self, service: str) -> None:
        """Kill a service as its machine's death would, after which PostgreSQL ends its sessions.

        Here the executor's workers live on with the connections that they inherited from the scheduler, which would
        keep the locks of its last transaction for ever.
        """
        process = psutil.Process(self.airflow.pid(service))
        ports = [item.laddr.port for item in process.net_connections() if item.status == psutil.CONN_ESTABLISHED]
        self.airflow.kill(service)
        execute(
            self.metadata,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE client_port = ANY(%s)",
            parameters=[ports],
        )

    def scheduler_job(self) -> int:
        """The job, as Airflow calls it, of the scheduler that was started last."""
        return int(scalar(self.metadata, "SELECT max(id) FROM job WHERE job_type = 'SchedulerJob'"))

    def unheard_of(self, job: int) -> None:
        """Have a dead scheduler's last heartbeat be long ago."""
        statement = "UPDATE job SET latest_heartbeat = latest_heartbeat - interval '1 hour' WHERE id = %s RETURNING id"
        assert execute(self.metadata, statement, parameters=[job])

    # Runs

    def begin(self, name: str) -> str:
        """Trigger the DAG; its run's id."""
        return self.airflow.trigger(name)

    def run(self, name: str) -> str:
        """Run the DAG to its end, which must be a success; the run's id."""
        run_id = self.begin(name)
        self.succeeds(name, run_id)
        return run_id

    def succeeds(self, name: str, run_id: str) -> None:
        """Wait for the end of a DAG run, which must be a success."""
        state = self.airflow.wait(name, run_id, PATIENCE)
        assert state == "success", self.story(name, run_id)

    def story(self, name: str, run_id: str) -> str:
        """Describe the end of a DAG run for a failed assertion."""
        states = self.airflow.task_states(name, run_id)
        logs = [self.airflow.task_log(name, run_id, task) for task, at in states.items() if at not in (None, "skipped")]
        return f"{states}\n" + "\n".join(log[-3000:] for log in logs)

    def task(self, name: str, run_id: str, task: str) -> dict[str, Any]:
        """A task instance, as the API shows it."""
        path = f"/dags/{name}/dagRuns/{run_id.replace('+', '%2B')}/taskInstances/{task}"
        found: dict[str, Any] = self.airflow.api("GET", path)
        return found

    def reaches(self, name: str, run_id: str, task: str, state: str) -> None:
        """Wait until a task is in a state."""
        self.airflow.until(
            lambda: self.task(name, run_id, task)["state"] == state, PATIENCE, f"{name}: {task} did not become {state}"
        )

    def asks(self, name: str, run_id: str, task: str) -> None:
        """Wait until a task waits for a person's answer, and the scheduler has heard that its worker has ended.

        Airflow takes a task for killed that runs again before that (apache/airflow issue 72716). Before Airflow 3.3 a
        trigger waits for the answer.
        """
        if not hasattr(exceptions, "TaskAwaitingInput"):
            self.reaches(name, run_id, task, "deferred")
            return
        self.reaches(name, run_id, task, "awaiting_input")
        key = f"state success for task instance TaskInstanceKey(dag_id='{name}', task_id='{task}', run_id='{run_id}'"
        log = self.airflow.home / "scheduler.log"
        self.airflow.until(lambda: key in log.read_text(errors="replace"), PATIENCE, f"{name}: {task} was not reported")

    def clear(self, name: str, run_id: str) -> None:
        """Clear all tasks of a DAG run, as a person does."""
        body = {"dry_run": False, "only_failed": False}
        self.airflow.api("POST", f"/dags/{name}/dagRuns/{run_id.replace('+', '%2B')}/clear", body)

    def let_go(self, name: str) -> None:
        """Wait until nobody holds the pipeline's lease."""
        statement = "SELECT owner IS NULL OR expires_at < now() FROM ckpt_lease WHERE pipeline = %s"
        self.airflow.until(
            lambda: bool(scalar(self.ledger_dsn, statement, [name])), PATIENCE, f"the lease of {name} is still held"
        )

    def happens(self, name: str, kind: str) -> None:
        """Wait until the audit log has an event of a kind."""
        self.airflow.until(lambda: bool(self.events(name, kind)), PATIENCE, f"{name}: nothing was {kind}")

    def worker(self, name: str, run_id: str, task: str) -> list[Process]:
        """The executor's worker that runs a task and all that it has started, Spark included; the worker first."""
        found = processes.titled(self.task(name, run_id, task)["id"])
        assert found is not None, f"no worker runs {name}.{task}"
        return [found, *processes.below(found.pid)]

    # Looking

    def ledger(self) -> Ledger:
        """The ledger; the caller closes it."""
        return Ledger.open(sqlalchemy_url(self.ledger_dsn))

    def status(self, name: str) -> dict[str, Any]:
        """Return the output of ``airflow ckpt status``."""
        found: dict[str, Any] = json.loads(self.airflow.cli("ckpt", "status", name, "-o", "json").stdout)
        return found

    def checkpoint(self, name: str) -> int:
        """Return the checkpoint of the pipeline's only source partition, 0 before its first run."""
        found = scalar(
            self.ledger_dsn, "SELECT coalesce(sum(committed), 0) FROM ckpt_partition WHERE pipeline = %s", [name]
        )
        return int(found)

    def epoch(self, name: str) -> int:
        """The epoch that was granted last."""
        return int(scalar(self.ledger_dsn, "SELECT epoch FROM ckpt_lease WHERE pipeline = %s", [name]))

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        """The audit log's events of one kind, oldest first."""
        with self.ledger() as ledger:
            return [event for event in ledger.events(name, 1000) if event["kind"] == kind]

    def trace(self, name: str) -> Trace:
        """Read the databases; ledger, receipts, dead letters and target must agree with each other."""
        with self.ledger() as ledger:
            audit = ledger.audit(name)
            assert audit["ok"], audit["violations"]
            setup = PipelineContext(
                load(self.declarations[name]), ledger, lambda _: connection_to(self.store, "store"), "test"
            )
            agreement = audit_sink(setup, lambda _: None)
            assert agreement["agrees"], agreement["differences"]
            lease = ledger.status(name)["lease"]
            kinds = [event["kind"] for event in ledger.events(name, 1000)]
        rows = execute(self.store, f"SELECT id FROM {name} ORDER BY id")
        return Trace([row[0] for row in rows], lease["held"], lease["epoch"], kinds)
