"""Measure the isolation of bad records: a million clean rows with and without it, and 100,000 rows with bad ones.

``python -m tests.benchmarks.isolation [--rounds 25] [--rows 1000000]``. Two pipelines, each as a complete run: from a
table into a table with ``where`` and five expressions, and from JSON lines into a Delta table with decoding, ``where``
and two expressions. Without isolation, the transform of the same runs is plain Spark SQL in ANSI mode, in which the
first bad record fails the task: no expression is evaluated under try, there are no verdicts, and JSON is not checked to
be strict. Each round measures both in turn, after two rounds that are not counted, in which Java still compiles. Every
third round also measures 100,000 rows with 0, 1 and 1,000 bad rows, refused by the transform or by the sink. Writes
``build/bench/isolation.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.spark import columns as c
from airflow_provider_ckpt.spark import wave
from airflow_provider_ckpt.spark.sql import literal, quote
from airflow_provider_ckpt.spark.transform import apply
from tests.assurance import is_whole, record
from tests.services.ledgers import make_ledger
from tests.services.postgres import LARGE_WAL, PostgresServer
from tests.services.replication import Replication, orders_pipeline
from tests.services.spark import local_session
from tests.services.tables import execute, make_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.source_protocol import RecordShape
    from airflow_provider_ckpt.ledger.ledger import Ledger

RESULT = Path("build/bench/isolation.json")
LANES = 2
BATCHES = 20
WARM_UPS = 2
SOME = 100_000
BAD = (0, 1, 1000)
WITH, WITHOUT = "with", "without"
SELECT = {
    "id": "id",
    "customer": "cast(customer as smallint)",
    "cents": "cast(amount * 100 as bigint)",
    "day": "cast(created_at as date)",
    "status": "upper(status)",
    "share": "amount / customer",
}
TARGET = "id bigint, customer smallint, cents bigint, day date, status text, share double precision"
JSON_SCHEMA = "id bigint, customer int, amount double, created_at string, status string, note string"
JSON_SELECT = {"id": "id", "customer": "customer", "cents": "cast(amount * 100 as bigint)", "status": "upper(status)"}


def plain(frame: DataFrame, pipeline: Pipeline, _: RecordShape) -> DataFrame:
    """Apply the transform as :func:`airflow_provider_ckpt.spark.transform.apply.apply` does, but catch nothing."""
    declared = pipeline.transform
    if declared.decode:
        decoded = f"from_json(cast(value AS string), {literal(declared.schema_ or '')}, map('mode', 'FAILFAST'))"
        frame = frame.selectExpr(*c.CONTROL, f"{decoded} AS decoded")
        frame = frame.selectExpr(*c.CONTROL, "decoded.*")
    wanted = f"coalesce(({declared.where}), false)"
    frame = frame.selectExpr(
        *map(quote, frame.columns),
        f"CASE WHEN {c.MARKER} IS NULL AND NOT {wanted} THEN '{c.FILTERED}' END AS {c.VERDICT}",
    )
    deliver = f"{c.MARKER} IS NULL AND {c.VERDICT} IS NULL"
    return frame.selectExpr(
        *c.CONTROL,
        c.VERDICT,
        f"CAST(NULL AS string) AS {c.ORIGINAL}",
        *(f"CASE WHEN {deliver} THEN ({e}) END AS {quote(name)}" for name, e in (declared.select or {}).items()),
    )


@contextmanager
def isolation(way: str) -> Iterator[None]:
    """Run with the product's transform, or with the plain one."""
    if way == WITH:
        yield
        return
    with patch.object(apply, "apply", plain), patch.object(wave, "flat_json_decoder", return_value=None):
        yield


class Bench:
    """The database, the session, and what was measured.

    :param rows: clean rows
    """

    def __init__(self, dsn: str, spark: SparkSession, ledger: Ledger, here: Path, rows: int) -> None:
        self.seconds: dict[str, list[float]] = {}
        self._dsn, self._spark, self._ledger, self._here, self._rows = dsn, spark, ledger, here, rows
        self._runs = 0
        self._ways = [WITHOUT, WITH]

    def prepare(self) -> None:
        """Make the sources."""
        make_source(self._dsn, "orders", self._rows)
        execute(self._dsn, "UPDATE orders SET customer = 1 + customer % 30000", "VACUUM FULL ANALYZE orders")
        (self._here / "in").mkdir()
        for part in range(2):
            rows = execute(
                self._dsn,
                f"SELECT to_json(o)::text FROM orders o WHERE id % 2 = {part} ORDER BY id",
            )
            (self._here / "in" / f"{part}.jsonl").write_text("".join(f"{row}\n" for (row,) in rows))
        for number in BAD:
            make_source(self._dsn, f"some_{number}", SOME)
            every = f"id % {SOME // number} = 1" if number else "false"
            execute(
                self._dsn,
                f"CREATE TABLE some_sink_{number} AS SELECT * FROM some_{number}",
                f"ALTER TABLE some_sink_{number} ADD PRIMARY KEY (id)",
                f"UPDATE some_{number} SET customer = CASE WHEN {every} THEN 0 ELSE 1 + customer % 30000 END",
                f"UPDATE some_sink_{number} SET customer = 1 + customer % 30000, "
                f"status = CASE WHEN {every} THEN 'refused' ELSE status END",
            )

    def round(self, *, counted: bool, with_bad_rows: bool) -> None:
        """Measure everything once; the way that came first comes second the next time."""
        self._ways.reverse()
        for way in self._ways:
            with isolation(way):
                self._timed(f"columns_{way}", self._columns("orders"), Counts(self._rows, self._rows), counted)
                self._timed(f"json_{way}", self._json(), Counts(self._rows, self._rows), counted)
        for number in BAD if with_bad_rows else ():
            expected = Counts(SOME, SOME - number, 0, number)
            self._timed(f"bad_in_transform_{number}", self._columns(f"some_{number}"), expected, counted)
            self._timed(f"bad_in_sink_{number}", self._columns(f"some_sink_{number}"), expected, counted)

    def _timed(self, name: str, replication: Replication, expected: Counts, counted: bool) -> None:
        execute(
            self._dsn,
            "DROP TABLE IF EXISTS target",
            f"CREATE TABLE target ({TARGET}, CHECK (status <> 'REFUSED'))",
            "CHECKPOINT",
        )
        shutil.rmtree(self._here / "table", ignore_errors=True)
        started = time.monotonic()
        summary = replication.run()
        seconds = time.monotonic() - started
        if summary.records != expected:
            raise RuntimeError(f"{name}: {summary.records}, not {expected}")
        _say(f"  {name}: {seconds:.2f} s{'' if counted else ' (warm-up)'}")
        if counted:
            self.seconds.setdefault(name, []).append(seconds)

    def _columns(self, source: str) -> Replication:
        document = orders_pipeline(self._name(), source=source)
        return self._replication({**document, "transform": {"where": "amount >= 0", "select": SELECT}}, source)

    def _json(self) -> Replication:
        document = {
            "name": self._name(),
            "source": {"type": "files", "path": str(self._here / "in")},
            "transform": {"decode": "json", "schema": JSON_SCHEMA, "where": "amount >= 0", "select": JSON_SELECT},
            "sink": {"type": "delta", "path": str(self._here / "table")},
        }
        return self._replication(document, "orders")

    def _replication(self, document: Mapping[str, Any], source: str) -> Replication:
        rows = self._rows if source == "orders" else SOME
        return Replication(self._spark, self._ledger, self._dsn, document).changed(
            commit_strategy={"commit_interval": -(-rows // BATCHES)},
            consumer={"lanes": LANES, "max_in_flight": 2 * rows},
        )

    def _name(self) -> str:
        self._runs += 1
        return f"bench-{self._runs}"

    def result(self, rounds: int) -> dict[str, Any]:
        """Medians and what they say of each other."""
        medians = {name: round(statistics.median(measured), 3) for name, measured in self.seconds.items()}
        shapes = ("columns", "json")
        ratios = {
            shape: round(
                statistics.median(
                    guarded / bare
                    for guarded, bare in zip(
                        self.seconds[f"{shape}_{WITH}"], self.seconds[f"{shape}_{WITHOUT}"], strict=True
                    )
                ),
                3,
            )
            for shape in shapes
        }
        return {
            "ratios": {"with_vs_without": ratios},
            "seconds": {
                "clean": {shape: {way: medians[f"{shape}_{way}"] for way in (WITH, WITHOUT)} for shape in shapes},
                "bad_rows": {
                    where: {str(number): medians[f"bad_in_{where}_{number}"] for number in BAD}
                    for where in ("transform", "sink")
                },
            },
            "rows": {"clean": self._rows, "with_bad_ones": SOME},
            "rounds": rounds,
            "cores": os.cpu_count(),
            "lanes": LANES,
            "batches": BATCHES,
            "measured": {name: [round(value, 3) for value in measured] for name, measured in self.seconds.items()},
        }


def run(rounds: int, rows: int) -> dict[str, Any]:
    """Measure and write the result.

    :param rounds: counted rounds
    :param rows: clean rows
    """
    with PostgresServer(LARGE_WAL) as server, tempfile.TemporaryDirectory(prefix="ckpt-bench-") as here:
        spark = local_session(cores=LANES)
        try:
            with make_ledger(server) as ledger:
                bench = Bench(server.new_database(), spark, ledger, Path(here), rows)
                _say(f"making {rows:,} rows")
                bench.prepare()
                for _ in range(WARM_UPS):
                    _say("warm-up")
                    bench.round(counted=False, with_bad_rows=True)
                for number in range(rounds):
                    _say(f"round {number + 1} of {rounds}")
                    bench.round(counted=True, with_bad_rows=number % 3 == 0)
                result = bench.result(rounds)
        finally:
            spark.stop()
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    return result


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.isolation", description=__doc__)
    parser.add_argument("--rounds", type=int, default=25, help="counted rounds (default: 25)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="clean rows (default: 1,000,000)")
    options = parser.parse_args(arguments)
    result = run(options.rounds, options.rows)
    if is_whole(parser, options):
        record("bench-isolation", {name: result[name] for name in ("ratios", "seconds", "rounds")})
    print(json.dumps({name: result[name] for name in ("ratios", "seconds", "rows", "rounds")}, indent=2))
    _say(f"details: {RESULT}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
