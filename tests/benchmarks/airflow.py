"""Measure a small run in a real Airflow: on a cold Spark, a standing driver, a server, and without new records.

``python -m tests.benchmarks.airflow [--rounds 5] [--pipelines 50]``. Airflow has a scheduler with the local executor;
PostgreSQL has metadata, ledger and targets. Each way is a separate DAG that replicates two new files, one micro-batch
each, through Spark SQL into a table. Each round runs all ways in turn; a first round for warming up is not counted.

- ``plain``: ``submit``, a cold Spark, without class archive and preloading daemon
- ``cold``: the same with both, as by default
- ``warm``: on a standing driver that an earlier run started, as by default
- ``copy``: the same without a transform, from a table
- ``connect``: on a Spark Connect server that has executed such a run before
- ``grouped``: ``warm`` as a task group
- ``empty``: ``warm`` once more, with nothing new

After the rounds, ``first`` measures ``warm`` when no standing driver is running, as after a start of the worker; it is
repeated as often as there were rounds. Then many pipelines (``many``) copy new rows from a table each, one after the
other. The first run of each pipeline on this Spark is not counted, the second is.

Durations are in seconds, from the start to the end of a task in Airflow's database; for ``grouped``, and for ``single``
(that is ``warm``), of the DAG run. ``empty_run_seconds`` is the duration inside the task: lease, ledger, source and
sink. Writes ``build/bench/airflow.json``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tests.assurance import is_whole
from tests.benchmarks.rounds import Rounds, publish, say, task_seconds
from tests.services.airflow import AirflowServices
from tests.services.postgres import LARGE_WAL, PostgresServer, sqlalchemy_url
from tests.services.spark_connect import SparkConnectServer
from tests.services.tables import execute, scalar
from tests.services.warm_spark import WarmSpark, train_class_archive

RESULT = Path("build/bench/airflow.json")
SHOWN = (
    "empty_run_seconds",
    "warm_micro_run_seconds",
    "warm_copy_seconds",
    "warm_vs_cold",
    "first_vs_cold",
    "many_pipelines_seconds",
    "pipelines",
    "cold_vs_plain",
    "task_group_overhead_seconds",
    "seconds",
)
PLAIN, COLD, WARM, COPY, CONNECT = "plain", "cold", "warm", "copy", "connect"
GROUP, EMPTY, SINGLE, FIRST, MANY = "grouped", "empty", "single", "first", "many"
ROWS, BATCHES = 500, 2
_PIPELINE = """
name: {name}
source: {{type: files, path: "{data}/{name}"}}
transform:
  decode: json
  schema: id bigint, amount double, status string
  where: status <> 'draft'
  select: {{id: id, amount: "cast(amount as decimal(12, 2))", status: upper(status)}}
sink: {{type: postgres, connection: store, table: {name}}}
commit_strategy: {{commit_interval: {rows}}}
delivery: exactly_once
run: {run}
"""
_COPY = """
name: {name}
source: {{type: postgres, connection: store, table: {name}_source, cursor: id}}
sink: {{type: postgres, connection: store, table: {name}}}
commit_strategy: {{commit_interval: {rows}}}
delivery: exactly_once
"""
_COLUMNS = "(id bigint PRIMARY KEY, amount numeric(12, 2), status text)"
_SUBMIT, _SERVER = "{engine: submit}", "{engine: connect, connection: connect}"


@dataclass
class Bench:
    """An Airflow, its databases, and what was measured.

    :param data: where the sources' files are
    :param pipelines: number of pipelines that run one after the other
    """

    airflow: AirflowServices
    data: Path
    store: str
    pipelines: int
    rounds: Rounds = field(default_factory=Rounds)
    _numbers: count[int] = field(default_factory=count)

    def declare(self, dags: Path) -> None:
        """Write the declarations, and make sources and targets."""
        for name, run in ((PLAIN, _SUBMIT), (COLD, _SUBMIT), (WARM, "{}"), (CONNECT, _SERVER), (GROUP, "{}")):
            (self.data / name).mkdir()
            text = _PIPELINE.format(name=name, data=self.data, rows=ROWS, run=run)
            (dags / f"{name}.yaml").write_text(text)
            execute(self.store, f"CREATE TABLE {name} {_COLUMNS}")
        for name in (COPY, *self._many):
            (dags / f"{name}.yaml").write_text(_COPY.format(name=name, rows=ROWS))
            execute(self.store, f"CREATE TABLE {name} {_COLUMNS}", f"CREATE TABLE {name}_source {_COLUMNS}")

    @property
    def _many(self) -> list[str]:
        return [f"{MANY}_{number}" for number in range(self.pipelines)]

    def first(self, warm: WarmSpark) -> None:
        """Measure a run that has to start the Spark that stays.

        :param warm: the drivers, which are stopped before
        """
        warm.stop()
        self._write(WARM)
        self._run(WARM, BATCHES, FIRST)

    def many(self) -> None:
        """Measure the second runs of many pipelines."""
        for self.rounds.counted in (False, True):
            for at, name in enumerate(self._many, 1):
                say(f"pipeline {at} of {self.pipelines}")
                self._write(name)
                self._run(name, BATCHES, MANY)

    def round(self) -> None:
        """Measure every way once."""
        for way in (PLAIN, COLD, WARM, COPY, CONNECT, GROUP):
            self._write(way)
            self._run(way, BATCHES)
        self._run(WARM, 0, EMPTY)

    def _write(self, name: str) -> None:
        """Two new files, each there at once; or as many rows."""
        if not (self.data / name).exists():
            last = scalar(self.store, f"SELECT coalesce(max(id), 0) FROM {name}_source")
            rows = f"SELECT i, i / 7.0, 'shipped' FROM generate_series({last + 1}, {last + BATCHES * ROWS}) AS i"
            execute(self.store, f"INSERT INTO {name}_source {rows}")
            return
        for _ in range(BATCHES):
            number = next(self._numbers)
            aside = self.data / "aside"
            ids = range(number * ROWS, (number + 1) * ROWS)
            aside.write_text("".join(f"{json.dumps(_record(item))}\n" for item in ids))
            aside.rename(self.data / name / f"{number:06}.jsonl")

    def _run(self, name: str, batches: int, way: str | None = None) -> None:
        """One DAG run, whose seconds count for a way."""
        before = scalar(self.store, f"SELECT count(*) FROM {name}")
        run_id = self.airflow.trigger(name)
        if self.airflow.wait(name, run_id) != "success":
            raise RuntimeError(f"{name} failed: {self.airflow.task_states(name, run_id)}")
        moved = scalar(self.store, f"SELECT count(*) FROM {name}") - before
        if moved != batches * ROWS:
            raise RuntimeError(f"{name} moved {moved} rows in {batches} batches")
        whole = task_seconds(self.airflow, name, run_id)
        if name == GROUP:
            self.rounds.took(GROUP, whole)
            return
        summary = self.airflow.xcom(name, run_id, "replicate")
        if summary["spark_started"] != bool(batches) or summary["batches"] != batches:
            raise RuntimeError(f"not a run of {batches} batches: {summary}")
        self.rounds.note(way or name, summary["seconds_by_step"])
        self.rounds.took(way or name, task_seconds(self.airflow, name, run_id, "replicate"))
        self.rounds.took(f"{way or name}_inside", self.airflow.xcom(name, run_id, "replicate", "seconds"))
        if way is None and name == WARM:
            self.rounds.took(SINGLE, whole)

    def result(self, rounds: int) -> dict[str, Any]:
        """Medians and what they say of each other."""
        seconds = self.rounds.medians
        return {
            "empty_run_seconds": seconds["empty_inside"],
            "warm_micro_run_seconds": seconds[WARM],
            "warm_copy_seconds": seconds[COPY],
            "warm_vs_cold": round(seconds[WARM] / seconds[COLD], 3),
            "first_vs_cold": round(seconds[FIRST] / seconds[COLD], 3),
            "many_pipelines_seconds": seconds[MANY],
            "pipelines": self.pipelines,
            "cold_vs_plain": round(seconds[COLD] / seconds[PLAIN], 3),
            "task_group_overhead_seconds": round(seconds[GROUP] - seconds[SINGLE], 3),
            "seconds": seconds,
            "rows": BATCHES * ROWS,
            "micro_batches": BATCHES,
            **self.rounds.details(rounds),
        }


def _record(number: int) -> dict[str, Any]:
    return {"id": number, "amount": number / 7, "status": "shipped" if number % 10 else "returned"}


def run(rounds: int, pipelines: int) -> dict[str, Any]:
    """Measure.

    :param rounds: counted rounds
    :param pipelines: number of pipelines that run one after the other
    """
    with (
        tempfile.TemporaryDirectory(prefix="ckpt-bench-") as name,
        PostgresServer(LARGE_WAL) as server,
        SparkConnectServer() as connect,
    ):
        home = Path(name)
        dags, data, archives = (home / part for part in ("dags", "data", "archives"))
        dags.mkdir()
        data.mkdir()
        shutil.copy(Path(__file__).with_name("airflow_dags.py"), dags)
        metadata, ledger, store = (server.new_database() for _ in range(3))
        warm = WarmSpark(home / "runtime")
        say("making the archive of Spark's classes")
        training = train_class_archive(archives)
        env = {
            "AIRFLOW_CONN_STORE": store,
            "AIRFLOW_CONN_CONNECT": connect.connection,
            "AIRFLOW__CKPT__SQL_ALCHEMY_CONN": sqlalchemy_url(ledger),
            "AIRFLOW__CKPT__SPARK_HEAD_START_DIRECTORY": str(archives),
            **warm.environment,
        }
        services = AirflowServices(home / "airflow", dags, env, metadata=sqlalchemy_url(metadata))
        bench = Bench(services, data, store, pipelines)
        bench.declare(dags)
        with services, warm:
            bench.rounds.each(rounds, bench.round)
            for _ in range(max(rounds, 1)):
                bench.first(warm)
            bench.many()
            return {**bench.result(rounds), "archive_made_in_seconds": training}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.airflow", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=5, help="counted rounds (default: 5); of 0 the one that warms up counts"
    )
    parser.add_argument(
        "--pipelines", type=int, default=50, help="pipelines that run one after the other (default: 50)"
    )
    options = parser.parse_args(arguments)
    target = "bench-airflow" if is_whole(parser, options) else ""
    publish(run(options.rounds, options.pipelines), RESULT, SHOWN, target=target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
