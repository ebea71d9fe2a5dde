"""Create many pipelines for one Airflow: one YAML file each, with source and target tables of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psycopg2

from tests.services import processes
from tests.services.airflow import AirflowServices
from tests.services.postgres import PostgresServer, sqlalchemy_url
from tests.services.tables import execute, scalar
from tests.services.warm_spark import WarmSpark

POOL = "replication"
_PIPELINE = """
name: {name}
source: {{type: postgres, connection: shop, table: {name}, cursor: id}}
{transform}
sink: {{type: postgres, connection: warehouse, table: {name}}}
commit_strategy: {{commit_interval: {batch}}}
delivery: exactly_once
dag: {{}}
"""
_TRANSFORM = "transform: {where: id > 0, select: {id: id, amount: amount, note: upper(note)}}"
_COLUMNS = "(id bigint PRIMARY KEY, amount numeric(12, 2) NOT NULL, note text NOT NULL)"
_ROWS = "SELECT i, i / 7.0, 'NOTE ' || md5(i::text || '{name}') FROM generate_series({first}, {last}) AS i"
_DAGS = """
from airflow_provider_ckpt.dag_factories.pipelines import pipeline_dags

for executor in {executors!r}:
    globals().update(pipeline_dags(__file__, executor, default_args={{"pool": {pool!r}, "executor": executor}}))
"""
_DIFFERENT = (
    "SELECT count(*), coalesce(sum(id), 0), coalesce(sum(amount), 0), md5(string_agg(upper(note), '' ORDER BY id))"
)


class Fleet:
    """One Airflow with some pipelines for each of its executors; use it as a context manager.

    :param home: directory for all of it
    :param pipelines: number of pipelines by executor: ``LocalExecutor``, ``CeleryExecutor``
    :param slots: slots of the pool in which all tasks run
    :param broker: the address of Celery's broker
    :param env: further environment variables of Airflow's services
    """

    def __init__(
        self,
        home: Path,
        server: PostgresServer,
        pipelines: Mapping[str, int],
        *,
        slots: int,
        broker: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.pipelines = {
            executor: [f"{executor.removesuffix('Executor').lower()}_{number:03}" for number in range(count)]
            for executor, count in pipelines.items()
        }
        self.token = processes.new_token()
        self.shop, self.warehouse, self._ledger, metadata = (server.new_database() for _ in range(4))
        self._dags, self._slots = home / "dags", slots
        self.temporary = home / "tmp"
        for folder in (home, self._dags, self.temporary):
            folder.mkdir(exist_ok=True)
        self.warm = WarmSpark(home / "runtime")
        self.airflow = AirflowServices(
            home / "airflow",
            self._dags,
            {
                "AIRFLOW_CONN_SHOP": self.shop,
                "AIRFLOW_CONN_WAREHOUSE": self.warehouse,
                "AIRFLOW__CKPT__SQL_ALCHEMY_CONN": sqlalchemy_url(self._ledger),
                "AIRFLOW__CORE__EXECUTOR": ",".join(pipelines),
                "AIRFLOW__CORE__PARALLELISM": "16",
                "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
                "TMPDIR": str(self.temporary),
                processes.TOKEN: self.token,
                **self.warm.environment,
                **(env or {}),
            },
            metadata=sqlalchemy_url(metadata),
            broker=broker,
        )

    def __enter__(self) -> Self:
        """Declare the pipelines, and start Airflow."""
        for executor, names in self.pipelines.items():
            (self._dags / executor).mkdir()
            for number, name in enumerate(names):
                transform = _TRANSFORM if number % 2 else ""
                text = _PIPELINE.format(name=name, transform=transform, batch=500)
                (self._dags / executor / f"{name}.yaml").write_text(text)
        for dsn in (self.shop, self.warehouse):
            tables = [f"CREATE TABLE {name} {_COLUMNS}" for names in self.pipelines.values() for name in names]
            execute(dsn, "; ".join(tables))
        (self._dags / "dags.py").write_text(_DAGS.format(executors=list(self.pipelines), pool=POOL))
        try:
            self.airflow.start()
            self.airflow.api("POST", "/pools", {"name": POOL, "slots": self._slots, "include_deferred": False})
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the drivers and Airflow at once."""
        self.warm.stop()
        self.airflow.stop()

    # Runs

    def add_rows(self, names: Sequence[str], rows: int = 1000) -> None:
        """Give each source so many new rows, each at once."""
        statements = []
        for name in names:
            last = scalar(self.shop, f"SELECT coalesce(max(id), 0) FROM {name}")
            new = _ROWS.format(name=name, first=last + 1, last=last + rows)
            statements.append(f"INSERT INTO {name} {new}")
        execute(self.shop, "; ".join(statements))

    def begin(self, names: Sequence[str]) -> dict[str, str]:
        """Trigger the DAG of each pipeline; the runs' ids by pipeline."""
        return {name: self.airflow.trigger(name) for name in names}

    def await_end(self, runs: Mapping[str, str], seconds: float, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until all runs have succeeded.

        :param seconds: time after which they must have
        :param meanwhile: called again and again
        :raises AssertionError: if one has failed; shows the end of its log
        """
        waiting = set(runs)

        def ended() -> bool:
            meanwhile()
            for name in sorted(waiting):
                state = self.airflow.state(name, runs[name])
                assert state != "failed", f"{name}:\n{self.airflow.task_log(name, runs[name], 'replicate')[-3000:]}"
                if state != "success":
                    return False
                waiting.discard(name)
            return True

        self.airflow.until(ended, seconds, "not all runs ended")

    def seconds(self, runs: Mapping[str, str]) -> dict[str, list[float]]:
        """Seconds that the tasks took, and that they waited for a slot before, one number a run."""
        found: dict[str, list[float]] = {"task": [], "waiting": []}
        for name, run_id in runs.items():
            run = f"/dags/{name}/dagRuns/{quote(run_id)}"
            task = self.airflow.api("GET", f"{run}/taskInstances/replicate")
            queued, begun, ended = (
                datetime.fromisoformat(item)
                for item in (self.airflow.api("GET", run)["queued_at"], task["start_date"], task["end_date"])
            )
            found["task"].append((ended - begun).total_seconds())
            found["waiting"].append((begun - queued).total_seconds())
        return found

    def cold(self, runs: Mapping[str, str]) -> list[str]:
        """The runs that have started a Spark of their own."""
        return [
            name
            for name, run_id in runs.items()
            if "starts a Spark of its own" in (log := self.airflow.task_log(name, run_id, "replicate"))
            or "continues with a Spark of its own" in log
        ]

    def differences(self, names: Sequence[str]) -> list[str]:
        """The pipelines whose target is not what their source is."""
        ways = [
            {name: execute(dsn, f"{_DIFFERENT} FROM {name}") for name in names} for dsn in (self.shop, self.warehouse)
        ]
        return [name for name in names if ways[0][name] != ways[1][name]]

    # What happens in between

    @contextmanager
    def closed(self, name: str) -> Iterator[None]:
        """Inside the block nobody can write into the target of a pipeline; whoever tries waits."""
        connection = psycopg2.connect(self.warehouse)
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"LOCK TABLE {name} IN SHARE MODE")
            yield
        finally:
            connection.close()

    def waits(self, name: str) -> bool:
        """Return whether somebody waits to write into the target of a pipeline."""
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
        return bool(scalar(self.warehouse, waiting, [name]))

    def leave(self) -> list[str]:
        """End Airflow and the drivers in order; what is left: processes, directories of runs, or exit statuses."""
        left = []
        for service in self.airflow.services:
            if status := self.airflow.end(service).wait(60):
                left.append(f"{service} ended with {status}")
        self.warm.stop()
        self.airflow.stop()
        left += [" ".join(process.command) for process in processes.gone(self.token, 20)]
        left += [path.name for path in self.temporary.iterdir() if path.name.startswith("ckpt-")]
        shutil.rmtree(self.temporary, ignore_errors=True)
        return left


def summary_of(values: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum of some values."""
    ordered = sorted(values)
    at = [ordered[min(int(share * len(ordered)), len(ordered) - 1)] for share in (0.5, 0.99, 1.0)]
    return dict(zip(("p50", "p99", "max"), (round(value, 3) for value in at), strict=True))
