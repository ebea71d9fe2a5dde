"""Compare JSON lines files to a Delta table by this package, exactly once, with two ways of Spark itself.

``python -m tests.benchmarks.files [--rounds 5]``. Each round measures every way in turn, on one warm Spark session,
each time into a new target; a first round for warming up is not counted. With this package, a way is a complete run
with the ledger in SQLite, the default.

* Many small micro-batches: 50 files of 2,000 rows, one micro-batch each. The other way is Structured Streaming with
  trigger ``availableNow``, one file for each trigger, a checkpoint directory, and Parquet as its target.
* All flights of 2013. The other way reads JSON and writes Parquet in one job, with neither checkpoint nor receipts.

Writes ``build/bench/files.json``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from tests.assurance import is_whole
from tests.benchmarks.rounds import Rounds, publish, say
from tests.services.delta import read_delta
from tests.services.replication import Replication
from tests.services.spark import local_session
from tests.system import flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULT = Path("build/bench/files.json")
LANES = 2
SMALL, YEAR = "small_batches", "flights"
FILES, ROWS = 50, 2_000
SCHEMA = {
    SMALL: "id bigint, customer string, amount double, status string, at timestamp",
    YEAR: (
        "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay double, arr_time int, "
        "sched_arr_time int, arr_delay double, carrier string, flight int, tailnum string, origin string, dest string, "
        "air_time double, distance double, hour int, minute int, time_hour string"
    ),
}
WANTED = {SMALL: FILES * ROWS, YEAR: flights.FLIGHTS}


@dataclass
class Bench:
    """The session, the directories, and what was measured."""

    spark: SparkSession
    home: Path
    ledger: Ledger
    rounds: Rounds = field(default_factory=Rounds)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def make(self) -> None:
        """Write the source files of both jobs."""
        small = self.home / SMALL
        small.mkdir()
        for file in range(FILES):
            ids = range(file * ROWS, (file + 1) * ROWS)
            (small / f"{file:03d}.jsonl").write_text("".join(f"{json.dumps(_order(number))}\n" for number in ids))
        flights.write_months(flights.load(), self.home / YEAR)

    def round(self) -> None:
        """Measure every way of both jobs once."""
        self._measure("small_ckpt", SMALL, partial(self._ckpt, SMALL, FILES, {"commit_interval": ROWS}))
        self._measure("small_available_now", SMALL, self._available_now)
        self._measure("flights_ckpt", YEAR, partial(self._ckpt, YEAR, 0, {}))
        self._measure("flights_json_to_parquet", YEAR, self._json_to_parquet)

    def _measure(self, way: str, job: str, move: Callable[[Path], None]) -> None:
        target = self.home / "target"
        self.rounds.time(way, partial(move, target))
        delta = (target / "_delta_log").is_dir()
        found = read_delta(target, ["id" if job == SMALL else "year"]).num_rows if delta else self._parquet(target)
        if found != WANTED[job]:
            raise RuntimeError(f"{way} moved {found} rows, not {WANTED[job]}")
        shutil.rmtree(target)

    def _parquet(self, target: Path) -> int:
        return self.spark.read.parquet(str(target)).count()

    def _ckpt(self, job: str, batches: int, cadence: dict[str, Any], target: Path) -> None:
        document = {
            "name": f"bench-{next(self._numbers)}",
            "source": {"type": "files", "path": str(self.home / job)},
            "transform": {"decode": "json", "schema": SCHEMA[job]},
            "sink": {"type": "delta", "path": str(target)},
            "delivery": "exactly_once",
            "commit_strategy": cadence,
        }
        summary = Replication(self.spark, self.ledger, "", document).run()
        if summary.records.delivered != WANTED[job] or (batches and summary.batches != batches):
            raise RuntimeError(f"a run of {summary.batches} batches: {summary.records}")
        self.rounds.note(job, summary.steps)

    def _available_now(self, target: Path) -> None:
        checkpoints = tempfile.mkdtemp(dir=self.home)
        read = self.spark.readStream.schema(SCHEMA[SMALL]).option("maxFilesPerTrigger", "1")
        write = read.json(str(self.home / SMALL)).writeStream.format("parquet").trigger(availableNow=True)
        write.option("checkpointLocation", checkpoints).start(str(target)).awaitTermination()

    def _json_to_parquet(self, target: Path) -> None:
        self.spark.read.schema(SCHEMA[YEAR]).json(str(self.home / YEAR)).write.parquet(str(target))

    def result(self, rounds: int) -> dict[str, Any]:
        """Medians and what they say of each other."""
        seconds = self.rounds.medians
        return {
            "seconds": seconds,
            "ratios": {
                "vs_available_now": round(seconds["small_ckpt"] / seconds["small_available_now"], 3),
                "vs_json_to_parquet": round(seconds["flights_ckpt"] / seconds["flights_json_to_parquet"], 3),
            },
            "rows": WANTED,
            "micro_batches": FILES,
            "lanes": LANES,
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


def run(rounds: int) -> dict[str, Any]:
    """Measure.

    :param rounds: counted rounds
    """
    spark = local_session(cores=LANES)
    try:
        with tempfile.TemporaryDirectory(prefix="ckpt-bench-") as name:
            url = f"sqlite:///{name}/ckpt.db"
            migrate.upgrade(url, create=True)
            with Ledger.open(url) as ledger:
                bench = Bench(spark, Path(name), ledger)
                say("writing files")
                bench.make()
                bench.rounds.each(rounds, bench.round)
                return bench.result(rounds)
    finally:
        spark.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.files", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (default: 5)")
    options = parser.parse_args(arguments)
    target = "bench-files" if is_whole(parser, options) else ""
    publish(run(options.rounds), RESULT, ("seconds", "ratios", "rows", "micro_batches", "rounds"), target=target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
