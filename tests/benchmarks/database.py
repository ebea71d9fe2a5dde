"""Compare the replication of many tables of a database, few of them with new rows, by this package, Sling and dlt.

``python -m tests.benchmarks.database [--tables 1000] [--rows 1000]``. One PostgreSQL holds sources, targets, ledger and
Airflow's metadata. A way is

- ``dag``: a DAG run of ``CkptDatabaseTaskGroup`` in a running Airflow, on a standing driver
- ``cli``: ``airflow ckpt database run``, on the same Spark
- ``sling``: Sling's ``shop.*``, by primary key; ``dlt``: dlt's ``sql_database``, which appends

and each of them does

- ``first``: all tables are new
- ``ten``: 100 rows were added to each of ten tables; ``ten_cold``: the same by ``cli`` when no Spark is running
- ``nothing``: no row was added

After each load, number and sum of the targets' ids are compared with the sources'. Durations in seconds are those of
the process or of the DAG run. ``mib`` is the largest memory of the processes that the load started, and ``driver_mib``
that of the standing driver, which both ways of this package use. ``task_instances`` is the number of task instances of
each DAG run, and ``parse`` the CPU time of parsing a DAG file whose declaration has keys for each table. Writes
``build/bench/database.json``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.assurance import is_whole
from tests.benchmarks.many_files import parse
from tests.benchmarks.peers_tools import Peers, run
from tests.benchmarks.rounds import publish, say, task_seconds
from tests.services.airflow import AirflowServices
from tests.services.postgres import LARGE_WAL, PostgresServer, sqlalchemy_url
from tests.services.tables import COLUMNS, ROWS, execute
from tests.services.warm_spark import WarmSpark, train_class_archive

RESULT = Path("build/bench/database.json")
SHOWN = ("seconds", "mib", "driver_mib", "task_instances", "parse", "tables", "rows")
DAG, CLI, SLING, DLT = "dag", "cli", "sling", "dlt"
OURS = (DAG, CLI)
GROUPS = 4
FEW, NEW_ROWS = 10, 100
_FIRST = "first_run"
"""Schema of one table that is replicated before anything is measured, and name of its declaration."""
_DATABASE = """
name: {way}
database: {{include: ["{schema}.*"], groups: {groups}}}
defaults:
  source: {{type: postgres, connection: store, cursor: id}}
  sink: {{type: postgres, connection: store, table: "{way}.{{table}}"}}
  delivery: exactly_once
{more}
"""
_DAGS = """
from airflow_provider_ckpt.dag_factories.pipelines import pipeline_dags

globals().update(pipeline_dags(__file__, "pipelines"))
"""


@dataclass
class Bench:
    """An Airflow, the database, the other tools, and what was measured.

    :param home: directory of files
    :param tables: number of tables
    """

    airflow: AirflowServices
    warm: WarmSpark
    peers: Peers
    home: Path
    dsn: str
    tables: int
    rows: int
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    mib: dict[str, dict[str, float]] = field(default_factory=dict)
    driver_mib: float = 0.0
    task_instances: dict[str, int] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Names of the tables."""
        return [f"t{number:04}" for number in range(self.tables)]

    def make(self) -> None:
        """Make the sources and our targets; the others make theirs."""
        say(f"making {self.tables:,} tables of {self.rows:,} rows")
        execute(self.dsn, *(f"CREATE SCHEMA {name}" for name in ("shop", *OURS)))
        for name in self.names:
            execute(
                self.dsn,
                f"CREATE TABLE shop.{name} ({COLUMNS.format(key='PRIMARY KEY')})",
                *(f"CREATE TABLE {way}.{name} ({COLUMNS.format(key='NOT NULL')})" for way in OURS),
            )
        self._add_rows(self.names, 1, self.rows + 1)
        columns = COLUMNS.format(key="PRIMARY KEY")
        for schema in (_FIRST, f"{_FIRST}_source"):
            execute(self.dsn, f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.orders ({columns})")
        execute(self.dsn, f"INSERT INTO {_FIRST}_source.orders {ROWS.format(start=1, end=100)}", "VACUUM ANALYZE")
        for way, schema in ((CLI, "shop"), (_FIRST, f"{_FIRST}_source")):
            (self.home / f"{way}.yaml").write_text(_DATABASE.format(way=way, schema=schema, groups=GROUPS, more=""))

    def measure(self) -> None:
        """Measure each scenario once, all ways in turn."""
        self.airflow.until(lambda: self.airflow.import_errors() == "", 60, "a DAG file cannot be imported")
        self._run_cli(_FIRST)  # starts the driver
        self._scenario("first", (CLI, DAG, SLING, DLT))
        self._add_rows(self.names[:FEW], self.rows + 1, self.rows + NEW_ROWS + 1)
        self._scenario("ten", (CLI, DAG, SLING, DLT))
        self._scenario("nothing", (CLI, DAG, SLING, DLT))
        self._add_rows(self.names[:FEW], self.rows + NEW_ROWS + 1, self.rows + 2 * NEW_ROWS + 1)
        self.warm.stop()
        self._scenario("ten_cold", (CLI,))

    def _scenario(self, scenario: str, ways: Sequence[str]) -> None:
        loads: dict[str, Callable[[], float | None]] = {
            CLI: self._run_cli,
            DAG: lambda: self._run_dag(scenario),
            SLING: lambda: self.peers.sling_schema("shop", SLING),
            DLT: lambda: self.peers.dlt_schema("shop", self.names, DLT),
        }
        for way in ways:
            execute(self.dsn, "CHECKPOINT")
            started = time.monotonic()
            with self._peak() as mib:
                seconds = loads[way]()
            took = time.monotonic() - started if seconds is None else seconds
            self.seconds.setdefault(scenario, {})[way] = round(took, 2)
            self.mib.setdefault(scenario, {})[way] = round(mib[0], 1)
            say(f"  {scenario} {way}: {took:.1f} s, {mib[0]:.0f} MiB")
            self._compare(way)

    def _run_cli(self, way: str = CLI) -> None:
        said = run(
            [sys.executable, "-m", "airflow", "ckpt", "database", "run", self.home / f"{way}.yaml"], self.airflow.env
        )
        if "starts a Spark of its own" in said:
            raise RuntimeError(f"not on the standing driver:\n{said}")

    def _run_dag(self, scenario: str) -> float:
        run_id = self.airflow.trigger(DAG)
        if self.airflow.wait(DAG, run_id, 3600) != "success":
            logs = self.airflow.home.glob(f"logs/dag_id={DAG}/run_id={run_id}/*tables/*/*.log")
            ends = "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(logs))
            raise RuntimeError(f"the DAG failed: {self.airflow.task_states(DAG, run_id)}\n{ends}")
        found = self.airflow.api("GET", f"/dags/{DAG}/dagRuns/{run_id.replace('+', '%2B')}/taskInstances")
        self.task_instances[scenario] = found["total_entries"]
        return task_seconds(self.airflow, DAG, run_id)

    @contextmanager
    def _peak(self) -> Iterator[list[float]]:
        """Sample the memory of processes that start in the block; the largest sum in MiB is the list's only item."""
        before = {process.pid for process in psutil.Process().children(recursive=True)}
        peak, ended = [0.0], threading.Event()

        def sample() -> None:
            while not ended.wait(0.5):
                drivers = self.warm.states()
                self.driver_mib = max([self.driver_mib, *(state["memory_bytes"] / (1 << 20) for state in drivers)])
                skipped = before | set(self.warm.processes())
                found = 0.0
                for process in psutil.Process().children(recursive=True):
                    with suppress(psutil.Error):
                        if process.pid not in skipped:
                            found += process.memory_full_info().uss / (1 << 20)
                peak[0] = max(peak[0], found)

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield peak
        finally:
            ended.set()
            thread.join()

    def _add_rows(self, names: Sequence[str], start: int, end: int) -> None:
        new = ROWS.format(start=start, end=end)
        execute(self.dsn, *(f"INSERT INTO shop.{name} {new}" for name in names))

    def _compare(self, way: str) -> None:
        """Compare the targets of a way with the sources.

        :raises RuntimeError: if one of them differs
        """
        found = {
            schema: execute(
                self.dsn,
                " UNION ALL ".join(f"SELECT '{name}', count(*), sum(id) FROM {schema}.{name}" for name in self.names),
            )
            for schema in ("shop", way)
        }
        if wrong := set(found["shop"]) ^ set(found[way]):
            raise RuntimeError(f"{way} left tables that differ: {sorted(wrong)[:6]}")

    def result(self) -> dict[str, Any]:
        """The figures."""
        return {
            "seconds": self.seconds,
            "mib": self.mib,
            "driver_mib": round(self.driver_mib, 1),
            "task_instances": self.task_instances,
            "tables": self.tables,
            "rows": self.rows,
        }


def _declare(folder: Path, tables: int) -> None:
    """Write a DAG file and the declaration of a database, with keys for each of so many tables."""
    (folder / "pipelines").mkdir(parents=True)
    (folder / "dags.py").write_text(_DAGS)
    keys = [f"  shop.t{number:04}: {{source: {{cursor: id}}}}" for number in range(tables)]
    more = "\n".join(["dag: {}", *(["tables:", *keys] if keys else [])])
    (folder / "pipelines" / "dag.yaml").write_text(_DATABASE.format(way=DAG, schema="shop", groups=GROUPS, more=more))


def measure(tables: int, rows: int) -> dict[str, Any]:
    """Measure.

    :param tables: number of tables
    :param rows: number of rows of each
    """
    installed = subprocess.run(["tests/services/peers.sh"], stdout=subprocess.PIPE, text=True, check=True)
    server = PostgresServer({**LARGE_WAL, "max_connections": "300", "max_locks_per_transaction": "256"})
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-") as name, server:
        home = Path(name)
        archives, state = home / "archives", home / "state"
        state.mkdir()
        _declare(home / "dags", 0)
        _declare(home / "parsed", tables)
        metadata, ledger, store = (server.new_database() for _ in range(3))
        warm = WarmSpark(home / "runtime")
        say("making the archive of Spark's classes")
        train_class_archive(archives)
        env = {
            "AIRFLOW_CONN_STORE": store,
            "AIRFLOW__CKPT__SQL_ALCHEMY_CONN": sqlalchemy_url(ledger),
            "AIRFLOW__CKPT__SPARK_HEAD_START_DIRECTORY": str(archives),
            **warm.environment,
        }
        services = AirflowServices(home / "airflow", home / "dags", env, metadata=sqlalchemy_url(metadata))
        peers = Peers(Path(installed.stdout.strip()), state, store)
        bench = Bench(services, warm, peers, home, store, tables, rows)
        bench.make()
        parsed = parse(home, home / "parsed")
        with services, warm:
            bench.measure()
            return {**bench.result(), "parse": {key: round(value, 3) for key, value in parsed.items()}}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.database", description=__doc__)
    parser.add_argument("--tables", type=int, default=1_000, help="number of tables (default: 1,000)")
    parser.add_argument("--rows", type=int, default=1_000, help="rows of each table (default: 1,000)")
    options = parser.parse_args(arguments)
    target = "bench-database" if is_whole(parser, options) else ""
    publish(measure(options.tables, options.rows), RESULT, SHOWN, target=target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
