"""Compare whole loads by this package, Sling and dlt: processes from start to end, and tasks of a running Airflow.

``python -m tests.benchmarks.peers [--rounds 5] [--rows 1000000] [--tables 20]``. One PostgreSQL holds sources, targets,
ledger and Airflow's metadata. Each round measures every way in turn; a first round for warming up, with a tenth of the
rows, is not counted. A way is

- ``task``: the operator in a running Airflow, on a standing driver: the duration of the task in Airflow's database; for
  many tables that of the DAG run, with a task for each table
- ``cli_warm``: ``airflow ckpt run``, on the same Spark
- ``cold``: the same with a Spark of its own, as without standing drivers
- ``sling``: Sling with the primary key, by which it recognises rows that it has loaded before; ``sling_append``:
  without
- ``dlt``, which appends

and each of them does

- ``first``: a first load of a table
- ``new``: 10,000 rows that were added to it
- ``nothing``: no row was added
- ``tables_first``, ``tables_new``, ``tables_nothing``: the same for many small tables, by ``airflow ckpt run`` with all
  their files. The cold way is left out: it starts a Spark for each table
- ``lines``: JSON lines to Parquet

After each load, the number and the sum of the target's ids are compared with the source's. This package delivers
exactly once; the guarantees of the others are in the documentation. Writes ``build/bench/peers.json``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.assurance import is_whole
from tests.benchmarks.peers_tools import LINES, Peers, run
from tests.benchmarks.rounds import Rounds, publish, say, task_seconds
from tests.services.airflow import AirflowServices
from tests.services.postgres import LARGE_WAL, PostgresServer, sqlalchemy_url
from tests.services.tables import add_rows, execute, make_source, make_target
from tests.services.warm_spark import WarmSpark, train_class_archive

RESULT = Path("build/bench/peers.json")
SHOWN = ("seconds", "ratios", "rows", "tables")
RECORDED = ("seconds", "rows", "new_rows", "tables", "rows_of_a_small_table", "lines", "rounds")
TASK, CLI, COLD, SLING, APPEND, DLT = "task", "cli_warm", "cold", "sling", "sling_append", "dlt"
OURS = (TASK, CLI, COLD)
NEW_ROWS = 10_000
STEPS = 38
_TABLE = """
name: {target}
source: {{type: postgres, connection: store, table: {source}, cursor: id}}
sink: {{type: postgres, connection: store, table: {target}}}
delivery: exactly_once
"""
_LINES = """
name: {name}
source: {{type: files, path: "{source}"}}
transform: {{decode: json, schema: "id bigint, customer string, amount double, status string, at timestamp"}}
sink: {{type: files, path: "{target}", format: parquet}}
delivery: exactly_once
"""
_BIG = "orders"


@dataclass
class Bench:
    """An Airflow, the database, the other tools, and what was measured.

    :param home: directory of files
    :param dags: directory of the DAGs
    :param rows: rows of the large table
    :param tables: number of small tables
    """

    airflow: AirflowServices
    peers: Peers
    home: Path
    dags: Path
    dsn: str
    rows: int
    tables: int
    rounds: Rounds = field(default_factory=Rounds)
    _round: int = 0
    _step: int = 0

    @property
    def small(self) -> list[str]:
        """Names of the small tables."""
        return [f"part_{number:02}" for number in range(self.tables)]

    @property
    def small_rows(self) -> int:
        """Rows of each small table: together, they have a fifth of the large table's."""
        return max(self.rows // 5 // self.tables, 1)

    def make(self, rounds: int) -> None:
        """Make the sources, and declare the pipelines of all rounds; each round has new ones.

        :param rounds: number of rounds, the one that warms up included
        """
        say(f"making {self.rows:,} rows, {self.tables} small tables and {self.rows // 5:,} lines")
        make_source(self.dsn, _BIG, self.rows)
        for name in self.small:
            make_source(self.dsn, name, self.small_rows)
        make_source(self.dsn, "few", max(self.rows // 10, 1))
        self._write_lines()
        for number in range(rounds):
            for way in OURS:
                self._declare(way, f"{way}_one_{number}", ["few" if number == 0 else _BIG])
                self._declare_lines(way, number)
            for way in (TASK, CLI):
                self._declare(way, f"{way}_tables_{number}", self.small)

    def _declare(self, way: str, name: str, sources: Sequence[str]) -> None:
        folder = (self.dags if way == TASK else self.home) / name
        folder.mkdir()
        for source in sources:
            text = _TABLE.format(source=source, target=f"{name}_{source}")
            (folder / f"{source}.yaml").write_text(text)

    def _declare_lines(self, way: str, number: int) -> None:
        name = f"{way}_{LINES}_{number}"
        folder = (self.dags if way == TASK else self.home) / name
        folder.mkdir()
        text = _LINES.format(name=name, source=self.home / LINES, target=self.home / f"{name}_target")
        (folder / f"{LINES}.yaml").write_text(text)

    def _write_lines(self) -> None:
        """Four files with a fifth of the large table's number of records."""
        folder = self.home / LINES
        folder.mkdir()
        each = max(self.rows // 20, 1)
        for file in range(4):
            ids = range(file * each, (file + 1) * each)
            (folder / f"{file}.jsonl").write_text("".join(f"{json.dumps(_order(number))}\n" for number in ids))

    def round(self) -> None:
        """Measure every way once."""
        self._step = 0
        big = "few" if self._round == 0 else _BIG
        self._measure_tables("", [big], (TASK, CLI, COLD, SLING, APPEND, DLT), NEW_ROWS)
        self._measure_tables("tables_", self.small, (TASK, CLI, SLING, APPEND, DLT), NEW_ROWS // self.tables)
        for way in (TASK, CLI, COLD, SLING, DLT):
            self._lines(way)
        self._round += 1

    def _measure_tables(self, prefix: str, sources: Sequence[str], ways: Sequence[str], new: int) -> None:
        """Measure a first load, one with new rows and one without, and delete what they left.

        :param prefix: beginning of the scenarios' names
        :param sources: the source tables
        :param ways: the ways
        :param new: rows to add to each source table
        """
        kind = "tables" if prefix else "one"
        targets = {way: {source: self._target(way, kind, source) for source in sources} for way in ways}
        for target in (target for way in ways if way in OURS for target in targets[way].values()):
            make_target(self.dsn, target)
        ends = {source: execute(self.dsn, f"SELECT max(id) FROM {source}")[0][0] for source in sources}
        for scenario in ("first", "new", "nothing"):
            if scenario == "new":
                for source, end in ends.items():
                    add_rows(self.dsn, source, end + 1, end + 1 + new)
            for way in ways:
                execute(self.dsn, "CHECKPOINT")
                self._time(f"{prefix}{scenario}", way, partial(self._load_tables, way, kind, targets[way]))
                for source, target in targets[way].items():
                    self._compare(way, source, target)
        self._clean_up(kind, ends, targets)

    def _clean_up(self, kind: str, ends: Mapping[str, int], targets: Mapping[str, Mapping[str, str]]) -> None:
        """Drop the targets, and delete the rows that were added to the sources.

        :param kind: whether ``one`` table was measured or many
        :param ends: largest id of each source before
        :param targets: target by source, by way
        """
        for source, end in ends.items():
            execute(self.dsn, f"DELETE FROM {source} WHERE id > {end}", f"VACUUM {source}")
        for target in (target for names in targets.values() for target in names.values()):
            execute(self.dsn, f"DROP TABLE {target}")
        dataset = f"{DLT}_{kind}_{self._round}"
        self.peers.forget(dataset)
        execute(self.dsn, f"DROP SCHEMA {dataset} CASCADE")

    def _target(self, way: str, kind: str, source: str) -> str:
        if way == DLT:
            return f"{DLT}_{kind}_{self._round}.{source}"
        return f"{way}_{kind}_{self._round}_{source}"

    def _load_tables(self, way: str, kind: str, targets: dict[str, str]) -> float | None:
        """Load tables one way; the seconds where it is not the call that counts."""
        name = f"{way}_{kind}_{self._round}"
        if way == TASK:
            return self._dag_run(name, next(iter(targets)) if kind == "one" else None)
        if way in (SLING, APPEND):
            self.peers.sling_tables(targets, "" if way == APPEND else "id")
        elif way == DLT:
            self.peers.dlt_tables(list(targets), name)
        else:
            self._cli(way, *(self.home / name / f"{source}.yaml" for source in targets))
        return None

    def _lines(self, way: str) -> None:
        name = f"{way}_{LINES}_{self._round}"
        target = self.home / f"{name}_target"
        self._time(LINES, way, partial(self._load_lines, way, name, target))
        found = target / LINES / LINES if way == DLT else target
        self._compare_lines(way, found)
        shutil.rmtree(target)
        if way == DLT:
            self.peers.forget(LINES)

    def _load_lines(self, way: str, name: str, target: Path) -> float | None:
        if way == TASK:
            return self._dag_run(name, LINES)
        if way == SLING:
            self.peers.sling_lines(self.home / LINES, target)
        elif way == DLT:
            self.peers.dlt_lines(self.home / LINES, target)
        else:
            self._cli(way, self.home / name / f"{LINES}.yaml")
        return None

    def _cli(self, way: str, *files: Path) -> None:
        env = {**self.airflow.env, **({"AIRFLOW__CKPT__WARM_SPARK": "False"} if way == COLD else {})}
        summary = run([sys.executable, "-m", "airflow", "ckpt", "run", *files], env)
        if "starts a Spark of its own" in summary:
            raise RuntimeError(f"not a warm run:\n{summary}")

    def _dag_run(self, dag_id: str, task_id: str | None) -> float:
        """Run a DAG, and return the seconds of its only task, or of the run if it has several.

        :param task_id: the task; None for the run
        """
        run_id = self.airflow.trigger(dag_id)
        if self.airflow.wait(dag_id, run_id) != "success":
            raise RuntimeError(f"{dag_id} failed: {self.airflow.task_states(dag_id, run_id)}")
        return task_seconds(self.airflow, dag_id, run_id, task_id)

    def _time(self, scenario: str, way: str, load: Callable[[], float | None]) -> None:
        self._step += 1
        name = f"{scenario} {way}"
        say(f" step {self._step} of {STEPS}")
        self.rounds.time(name, load)

    def _compare(self, way: str, source: str, target: str) -> None:
        wanted, found = (execute(self.dsn, f"SELECT count(*), sum(id) FROM {name}") for name in (source, target))
        if found != wanted:
            raise RuntimeError(f"{way} left {found} in {target}; {source} has {wanted}")

    def _compare_lines(self, way: str, target: Path) -> None:
        import pyarrow.compute as pc
        import pyarrow.dataset as ds

        files = [str(path) for path in target.rglob("*.parquet") if not path.name.startswith((".", "_"))]
        ids = ds.dataset(files, format="parquet").to_table(columns=["id"])["id"]
        number = 4 * max(self.rows // 20, 1)
        if (len(ids), int(pc.sum(ids).as_py())) != (number, number * (number - 1) // 2):
            raise RuntimeError(f"{way} left {len(ids)} records in {target}, not {number}")

    def result(self, rounds: int) -> dict[str, Any]:
        """Medians by scenario and way, and what they say of each other."""
        seconds: dict[str, dict[str, float]] = {}
        for name, median in self.rounds.medians.items():
            scenario, _, way = name.partition(" ")
            seconds.setdefault(scenario, {})[way] = median
        ratios = {
            f"vs_{peer}": {
                scenario: {way: round(found[way] / found[peer], 3) for way in OURS if way in found}
                for scenario, found in seconds.items()
                if peer in found
            }
            for peer in (SLING, APPEND, DLT)
        }
        return {
            "seconds": seconds,
            "ratios": ratios,
            "rows": self.rows,
            "tables": self.tables,
            "rows_of_a_small_table": self.small_rows,
            "lines": 4 * max(self.rows // 20, 1),
            "new_rows": NEW_ROWS,
            **self.rounds.details(rounds),
        }


def _order(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "customer": f"customer-{number * 7919 % 100000:05d}",
        "amount": number % 99991 / 100,
        "status": "shipped" if number % 10 else "cancelled",
        "at": f"2026-01-{number % 28 + 1:02d}T12:{number % 60:02d}:00Z",
    }


def measure(rounds: int, rows: int, tables: int) -> dict[str, Any]:
    """Measure.

    :param rounds: counted rounds
    :param rows: rows of the large table
    :param tables: number of small tables
    """
    installed = subprocess.run(["tests/services/peers.sh"], stdout=subprocess.PIPE, text=True, check=True)
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-") as name, PostgresServer(LARGE_WAL) as server:
        home = Path(name)
        dags, archives, state = (home / part for part in ("dags", "archives", "state"))
        dags.mkdir()
        state.mkdir()
        shutil.copy(Path(__file__).with_name("peers_dags.py"), dags)
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
        services = AirflowServices(home / "airflow", dags, env, metadata=sqlalchemy_url(metadata))
        peers = Peers(Path(installed.stdout.strip()), state, store)
        bench = Bench(services, peers, home, dags, store, rows, tables)
        bench.make(rounds + 1)
        with services, warm:
            bench.rounds.each(rounds, bench.round)
            return bench.result(rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.peers", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=5, help="counted rounds (default: 5); of 0 the one that warms up counts"
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the large table (default: 1,000,000)")
    parser.add_argument("--tables", type=int, default=20, help="small tables (default: 20)")
    options = parser.parse_args(arguments)
    target = "bench-peers" if is_whole(parser, options) else ""
    publish(measure(options.rounds, options.rows, options.tables), RESULT, SHOWN, target=target, recorded=RECORDED)
    return 0


if __name__ == "__main__":
    sys.exit(main())
