"""Compare a million rows from MariaDB to MariaDB by this package with ``mariadb-dump | mariadb`` and Spark's JDBC.

``python -m tests.benchmarks.mariadb [--rounds 3] [--rows 1000000]``. Each round measures every way in turn, on one
MariaDB and one warm Spark session, each time into a new table with a primary key; a first round for warming up is not
counted. With this package, a way is a complete run, exactly once: lease, fence, reconciliation, planning, waves,
settlement, release. The other ways give no guarantee. Writes ``build/bench/mysql.json``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.assurance import is_whole
from tests.benchmarks.rounds import Rounds, publish, say
from tests.services.database_server import USER
from tests.services.kafka import jars
from tests.services.ledgers import make_ledger
from tests.services.mariadb import MariaDbServer, binary
from tests.services.postgres import PostgresServer
from tests.services.replication import Replication
from tests.services.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_ckpt.ledger.ledger import Ledger

RESULT = Path("build/bench/mysql.json")
DRIVER = "mariadb-jdbc-3.5.3"
"""Spark's driver, as jars.sh names it."""

SETTINGS = {"innodb-log-file-size": "2G", "innodb-buffer-pool-size": "1G"}
"""Settings with which no checkpoint disturbs a benchmark."""

SOURCE = TARGET = "orders"
LANES, BATCHES = 2, 20
CKPT, DUMP, JDBC = "ckpt", "mariadb_dump", "spark_jdbc"
_COLUMNS = """
    id bigint PRIMARY KEY, customer int NOT NULL, amount double NOT NULL, created_at datetime(6) NOT NULL,
    status varchar(20) NOT NULL, note varchar(200) NOT NULL
"""
_ROWS = """
    SELECT seq, seq * 7919 % 50000, seq % 100000 / 100.0, TIMESTAMP'2024-01-01 00:00:00' + INTERVAL seq SECOND,
           ELT(1 + seq % 4, 'new', 'paid', 'sent', 'returned'),
           CONCAT(MD5(seq), MD5(seq * 3), MD5(seq * 5), MD5(seq * 7))
    FROM seq_1_to_{rows}
"""


@dataclass
class Bench:
    """The server, the session, and what was measured.

    :param shop: database of the source
    :param reports: database of the target
    """

    server: MariaDbServer
    shop: str
    reports: str
    spark: SparkSession
    ledger: Ledger
    rows: int
    rounds: Rounds = field(default_factory=Rounds)
    runs: int = 0

    def round(self) -> None:
        """Measure every way once."""
        self._measure(CKPT, self._ckpt)
        self._measure(DUMP, self._dump)
        self._measure(JDBC, self._jdbc)

    def _measure(self, way: str, move: Callable[[], None]) -> None:
        self.server.execute(
            self.reports, f"DROP TABLE IF EXISTS {TARGET}", f"CREATE TABLE {TARGET} ({_COLUMNS})", "FLUSH TABLES"
        )
        self.rounds.time(way, move)
        [(count, least, most)] = self.server.execute(self.reports, f"SELECT COUNT(*), MIN(id), MAX(id) FROM {TARGET}")
        if (count, least, most) != (self.rows, 1, self.rows):
            raise RuntimeError(f"{way} moved {count} rows, not {self.rows}")

    def _ckpt(self) -> None:
        self.runs += 1
        document = {
            "name": f"bench-{self.runs}",
            "source": {"type": "sql", "connection": "shop", "table": SOURCE, "cursor": "id"},
            "sink": {"type": "sql", "connection": "reports", "table": TARGET},
            "delivery": "exactly_once",
            "commit_strategy": {"commit_interval": -(-self.rows // BATCHES)},
            "consumer": {"lanes": LANES, "max_in_flight": 2 * self.rows},
        }
        places = {"shop": self.shop, "reports": self.reports}
        others = {name: self.server.connection(database, name) for name, database in places.items()}
        summary = Replication(self.spark, self.ledger, "", document, others).run()
        if summary.records.delivered != self.rows:
            raise RuntimeError(f"the run delivered {summary.records.delivered} rows")
        self.rounds.note(str(BATCHES), summary.steps)

    def _dump(self) -> None:
        login = [f"--socket={self.server.socket}", f"--user={USER}"]
        env = {**os.environ, "MYSQL_PWD": self.server.password}
        options = ["--single-transaction", "--quick", "--no-create-info", "--skip-add-locks"]
        read = [str(binary("mariadb-dump")), *login, *options, self.shop, SOURCE]
        write = [str(binary("mariadb")), *login, self.reports]
        with subprocess.Popen(read, stdout=subprocess.PIPE, env=env) as source:
            subprocess.run(write, stdin=source.stdout, env=env, check=True)
        if source.returncode:
            raise RuntimeError("mariadb-dump could not read")

    def _jdbc(self) -> None:
        def options(database: str) -> dict[str, str]:
            url = f"jdbc:mysql://127.0.0.1:{self.server.port}/{database}?permitMysqlScheme&useBulkStmts=true"
            return {"url": url, "user": USER, "password": self.server.password, "driver": "org.mariadb.jdbc.Driver"}

        bounds = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(self.rows + 1)}
        read = self.spark.read.format("jdbc").options(**options(self.shop), **bounds, numPartitions=str(LANES))
        rows = read.option("fetchsize", "10000").option("dbtable", SOURCE).load()
        write = rows.write.format("jdbc").options(**options(self.reports), dbtable=TARGET, batchsize="10000")
        write.mode("append").save()

    def result(self, rounds: int) -> dict[str, Any]:
        """Medians and what they say of each other."""
        seconds = self.rounds.medians
        return {
            "seconds": seconds,
            "ratios": {
                "vs_mariadb_dump": round(seconds[CKPT] / seconds[DUMP], 3),
                "vs_spark_jdbc": round(seconds[CKPT] / seconds[JDBC], 3),
            },
            "rows": self.rows,
            "batches": BATCHES,
            "lanes": LANES,
            **self.rounds.details(rounds),
        }


def run(rounds: int, rows: int) -> dict[str, Any]:
    """Measure.

    :param rounds: counted rounds
    :param rows: rows of the source
    """
    with MariaDbServer(SETTINGS) as server, PostgresServer(in_memory=True) as books:
        shop, reports = server.new_database(), server.new_database()
        say(f"making {rows:,} rows")
        server.execute(shop, f"CREATE TABLE {SOURCE} ({_COLUMNS})", f"INSERT INTO {SOURCE} {_ROWS.format(rows=rows)}")
        server.execute(shop, f"ANALYZE TABLE {SOURCE}")
        [driver] = jars(DRIVER).iterdir()
        spark = local_session({"spark.jars": str(driver)}, cores=LANES)
        try:
            with make_ledger(books) as ledger:
                bench = Bench(server, shop, reports, spark, ledger, rows)
                bench.rounds.each(rounds, bench.round)
                return bench.result(rounds)
        finally:
            spark.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.mariadb", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds (default: 3)")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to move (default: 1,000,000)")
    options = parser.parse_args(arguments)
    target = "bench-mysql" if is_whole(parser, options) else ""
    shown = ("seconds", "ratios", "rows", "rounds")
    publish(run(options.rounds, options.rows), RESULT, shown, target=target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
