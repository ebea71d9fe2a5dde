"""Compare a million rows from PostgreSQL to PostgreSQL by this package with psql's binary COPY and Spark's JDBC append.

``python -m tests.benchmarks.pg_to_pg [--rounds 5] [--rows 1000000]``. Each round measures every way in turn, on one
PostgreSQL and one warm Spark session, each time into a new table after a checkpoint of the server; a first round for
warming up is not counted. With this package, a way is a complete run, exactly once (lease, fence, reconciliation,
planning, waves, settlement, release), with the ledger in the same server. The other ways give no guarantee. Writes
``build/bench/pg_to_pg.json``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.assurance import is_whole
from tests.benchmarks.rounds import Rounds, publish, say
from tests.services.ledgers import make_ledger
from tests.services.postgres import LARGE_WAL, PostgresServer
from tests.services.replication import Replication, orders_pipeline
from tests.services.spark import local_session
from tests.services.tables import execute, make_source, make_target, scalar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_ckpt.ledger.ledger import Ledger

RESULT = Path("build/bench/pg_to_pg.json")
DRIVER = "org.postgresql:postgresql:42.7.11"
SOURCE, TARGET = "orders", "target"
LANES = 2
BATCHES = (20, 100)
PSQL, JDBC = "psql_copy", "spark_jdbc"
SWAPS = ("rows", "rename")


@dataclass
class Bench:
    """The database, the session, and what was measured."""

    dsn: str
    spark: SparkSession
    ledger: Ledger
    rows: int
    rounds: Rounds = field(default_factory=Rounds)
    runs: int = 0

    def round(self) -> None:
        """Measure every way once."""
        for batches in BATCHES:
            self._measure(f"ckpt_{batches}", partial(self._ckpt, batches))
        for swap in SWAPS:
            self._measure(f"ckpt_replace_{swap}", partial(self._replace, swap), filled=True)
        self._measure(PSQL, self._psql)
        self._measure(JDBC, self._jdbc)

    def _measure(self, way: str, move: Callable[[], None], *, filled: bool = False) -> None:
        execute(self.dsn, f"DROP TABLE IF EXISTS {TARGET}")
        make_target(self.dsn, TARGET)
        if filled:
            execute(self.dsn, f"INSERT INTO {TARGET} SELECT * FROM {SOURCE}", f"VACUUM ANALYZE {TARGET}")
        execute(self.dsn, "CHECKPOINT")
        self.rounds.time(way, move)
        found = execute(self.dsn, f"SELECT count(*), count(DISTINCT id) FROM {TARGET}")
        if found != [(self.rows, self.rows)]:
            raise RuntimeError(f"{way} moved {found}, not {self.rows} rows")

    def _ckpt(self, batches: int) -> None:
        self.runs += 1
        replication = Replication(self.spark, self.ledger, self.dsn, orders_pipeline(f"bench-{self.runs}")).changed(
            commit_strategy={"commit_interval": -(-self.rows // batches)},
            consumer={"lanes": LANES, "max_in_flight": 2 * self.rows},
        )
        summary = replication.run()
        if summary.batches != batches or summary.records.delivered != self.rows:
            raise RuntimeError(f"the run had {summary.batches} batches and delivered {summary.records.delivered} rows")
        self.rounds.note(str(batches), summary.steps)

    def _replace(self, swap: str) -> None:
        """Replace as many rows as the source has by all of them, in batches like those of the first way.

        :param swap: ``sink.replace.swap``
        """
        self.runs += 1
        document = orders_pipeline(f"bench-{self.runs}")
        replication = Replication(self.spark, self.ledger, self.dsn, document).changed(
            source={"mode": "full"},
            sink={"mode": "replace", "replace": {"swap": swap}},
            commit_strategy={"commit_interval": -(-self.rows // BATCHES[0])},
            consumer={"lanes": LANES, "max_in_flight": 2 * self.rows},
        )
        summary = replication.run()
        if summary.records.delivered != self.rows or summary.route != ["done"]:
            raise RuntimeError(f"the refresh delivered {summary.records.delivered} rows and ended {summary.route}")
        self.rounds.note(f"replace_{swap}", summary.steps)

    def _psql(self) -> None:
        at = urlsplit(self.dsn)
        names = {"HOST": at.hostname, "PORT": at.port, "USER": at.username, "PASSWORD": at.password}
        env = {**os.environ, **{f"PG{name}": str(value) for name, value in names.items()}, "PGDATABASE": at.path[1:]}
        read = ["psql", "-X", "-q", "-c", f"COPY (SELECT * FROM {SOURCE}) TO STDOUT (FORMAT binary)"]
        write = ["psql", "-X", "-q", "-c", f"COPY {TARGET} FROM STDIN (FORMAT binary)"]
        with subprocess.Popen(read, stdout=subprocess.PIPE, env=env) as source:
            subprocess.run(write, stdin=source.stdout, env=env, check=True)
        if source.returncode:
            raise RuntimeError("psql could not read")

    def _jdbc(self) -> None:
        at = urlsplit(self.dsn)
        options = {
            "url": f"jdbc:postgresql://{at.hostname}:{at.port}{at.path}?reWriteBatchedInserts=true",
            "user": at.username or "",
            "password": at.password or "",
            "driver": "org.postgresql.Driver",
        }
        bounds = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(self.rows + 1)}
        read = self.spark.read.format("jdbc").options(**options, **bounds, numPartitions=str(LANES))
        read.option("fetchsize", "10000").option("dbtable", SOURCE).load().write.format("jdbc").options(
            **options, dbtable=TARGET, batchsize="10000"
        ).mode("append").save()

    def result(self, rounds: int) -> dict[str, Any]:
        """Medians and what they say of each other."""
        seconds = self.rounds.medians
        few, many = (seconds[f"ckpt_{batches}"] for batches in BATCHES)
        size = scalar(self.dsn, f"SELECT round(avg(pg_column_size(o.*))) FROM {SOURCE} o")
        return {
            "seconds": seconds,
            "ratios": {
                "vs_psql_copy": {str(n): round(seconds[f"ckpt_{n}"] / seconds[PSQL], 3) for n in BATCHES},
                "vs_spark_jdbc": {str(n): round(seconds[f"ckpt_{n}"] / seconds[JDBC], 3) for n in BATCHES},
                "100_vs_20_batches": round(many / few, 3),
                "replace_vs_append": {swap: round(seconds[f"ckpt_replace_{swap}"] / few, 3) for swap in SWAPS},
            },
            "rows": self.rows,
            "row_bytes": int(size),
            "lanes": LANES,
            **self.rounds.details(rounds),
        }


def run(rounds: int, rows: int) -> dict[str, Any]:
    """Measure.

    :param rounds: counted rounds
    :param rows: rows of the source
    """
    with PostgresServer(LARGE_WAL) as server:
        dsn = server.new_database()
        say(f"making {rows:,} rows")
        make_source(dsn, SOURCE, rows)
        ivy = Path("build/bench/ivy").absolute()
        spark = local_session({"spark.jars.packages": DRIVER, "spark.jars.ivy": str(ivy)}, cores=LANES)
        try:
            with make_ledger(server) as ledger:
                bench = Bench(dsn, spark, ledger, rows)
                bench.rounds.each(rounds, bench.round)
                return bench.result(rounds)
        finally:
            spark.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.pg_to_pg", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (default: 5)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to move (default: 1,000,000)")
    options = parser.parse_args(arguments)
    target = "bench-pg" if is_whole(parser, options) else ""
    shown = ("seconds", "ratios", "rows", "row_bytes", "rounds")
    publish(run(options.rounds, options.rows), RESULT, shown, target=target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
