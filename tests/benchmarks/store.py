"""Compare JSON lines to a Delta table in an S3 store with a directory and Spark's s3a; count requests; time discovery.

``python -m tests.benchmarks.store [--rounds 5] [--objects 100000]``. The ways of this package are complete runs,
exactly once. All ways run in turn on one warm Spark session, each into a new target. The store is versitygw on this
machine; it has its objects in memory if there is room, like the directory. After each way, the number of written rows
is checked.

- All flights of 2013, from objects into a table in the same store, and from files into a table in a directory; and by
  Spark's own reader and writer from the same objects into Parquet files in the store, through Hadoop's ``s3a``.
- Number of requests for each batch of 1,000 rows: the requests of a run of 40 batches minus those of a run of 20,
  divided by 20.
- Discovery: 100 new objects among 100,000, by the planning of a pipeline that has seen the others.

Writes ``build/bench/store.json``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.ledger.store import migrate
from tests.assurance import is_whole
from tests.benchmarks.files import SCHEMA, YEAR
from tests.benchmarks.rounds import Rounds, publish, say
from tests.services.http_proxy import HttpProxy
from tests.services.kafka import jars
from tests.services.object_store import BUCKET
from tests.services.replication import Replication
from tests.services.s3 import REGION, VersityGateway
from tests.services.spark import local_session
from tests.system import flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULT = Path("build/bench/store.json")
LANES = 2
NEW = 100
STORE = "lake"
S3A = "s3a-3.5.0"
"""Hadoop's file system for S3, as jars.sh names it."""
_S3A_TARGET = f"s3a://{BUCKET}/rival"
_ROWS = 1_000
_WRITERS = 8


@dataclass
class Bench:
    """The session, the store, the directories, and what was measured."""

    spark: SparkSession
    home: Path
    ledger: Ledger
    store: VersityGateway
    rounds: Rounds = field(default_factory=Rounds)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def make(self) -> None:
        """Write the flights, as files and as objects."""
        flights.write_months(flights.load(), self.home / YEAR)
        self.store.put({f"{YEAR}/{path.name}": path.read_bytes() for path in sorted((self.home / YEAR).iterdir())})

    def round(self) -> None:
        """Measure each way once."""
        self.rounds.time("directory", partial(self._flights, str(self.home / YEAR), str(self.home / "target")))
        shutil.rmtree(self.home / "target")
        self.rounds.time("store", partial(self._flights, self.store.url(YEAR), self.store.url("target")))
        self.store.clear("target")
        self.rounds.time("spark_s3a", self._json_to_parquet)
        if not self.rounds.counted and (rows := self.spark.read.parquet(_S3A_TARGET).count()) != flights.FLIGHTS:
            raise RuntimeError(f"Spark wrote {rows} rows")
        self.store.clear("rival")

    def requests(self) -> float:
        """Return the requests to the store for each batch."""
        with HttpProxy(self.store.client_port) as proxy:
            few, many = (self._requests(proxy, batches) for batches in (20, 40))
        return round((many - few) / 20, 2)

    def discovery(self, objects: int) -> dict[str, float]:
        """Return the seconds of planning new objects among others, by whether their names are known to grow."""
        found = {}
        for way, grows in (("whole_listing", False), ("names_grow", True)):
            prefix = f"many-{way}"
            self._write_objects(prefix, range(objects))
            document = self._document(self.store.url(prefix), self.store.url(f"{prefix}-out"), "id bigint")
            document["source"]["names_grow"] = grows
            run = self._replication(document, None)
            run.run()
            self._write_objects(prefix, range(objects, objects + NEW))
            started = time.monotonic()
            summary = run.run()
            found[way] = round(time.monotonic() - started, 2)
            if summary.records.delivered != NEW:
                raise RuntimeError(f"{way}: {summary.records}")
        return found

    def result(self, rounds: int, objects: int) -> dict[str, Any]:
        """Medians, what they say of each other, requests and discovery."""
        seconds = self.rounds.medians
        return {
            "seconds": seconds,
            "ratios": {f"vs_{way}": round(seconds["store"] / seconds[way], 3) for way in ("directory", "spark_s3a")},
            "requests_per_batch": self.requests(),
            "discovery_seconds": self.discovery(objects),
            "objects": objects,
            "new_objects": NEW,
            "rows": flights.FLIGHTS,
            "lanes": LANES,
            **self.rounds.details(rounds),
        }

    def _flights(self, source: str, target: str) -> None:
        summary = self._replication(self._document(source, target, SCHEMA[YEAR]), None).run()
        if summary.records.delivered != flights.FLIGHTS:
            raise RuntimeError(f"{target}: {summary.records}")
        self.rounds.note("store" if "://" in target else "directory", summary.steps)

    def _json_to_parquet(self) -> None:
        read = self.spark.read.schema(SCHEMA[YEAR]).json(f"s3a://{BUCKET}/{YEAR}")
        read.write.parquet(_S3A_TARGET)

    def _requests(self, proxy: HttpProxy, batches: int) -> int:
        prefix = f"batches-{batches}"
        lines = (f'{{"id": {number}}}\n' for number in range(batches * _ROWS))
        self.store.put({f"{prefix}/0.jsonl": "".join(lines).encode()})
        document = self._document(self.store.url(prefix), self.store.url(f"{prefix}-out"), "id bigint")
        document["commit_strategy"] = {"commit_interval": _ROWS}
        proxy.calm()
        summary = self._replication(document, proxy.port).run()
        if summary.batches != batches:
            raise RuntimeError(f"{summary.batches} batches, not {batches}")
        return proxy.count()

    def _document(self, source: str, target: str, schema: str) -> dict[str, Any]:
        connection = {"connection": STORE} if "://" in source else {}
        return {
            "name": f"bench-{next(self._numbers)}",
            "source": {"type": "files", "path": source, **connection},
            "transform": {"decode": "json", "schema": schema},
            "sink": {"type": "delta", "path": target, **connection},
            "delivery": "exactly_once",
        }

    def _replication(self, document: dict[str, Any], port: int | None) -> Replication:
        return Replication(self.spark, self.ledger, "", document, {STORE: self.store.connection(port)})

    def _write_objects(self, prefix: str, numbers: range) -> None:
        """Write objects of one record each."""
        with ThreadPoolExecutor(_WRITERS) as pool:
            parts = [numbers[first::_WRITERS] for first in range(_WRITERS)]
            list(pool.map(partial(self._write_some, prefix), parts))

    def _write_some(self, prefix: str, numbers: range) -> None:
        self.store.put({f"{prefix}/{number:08d}.jsonl": b'{"id": %d}\n' % number for number in numbers})


def run(rounds: int, objects: int) -> dict[str, Any]:
    """Measure.

    :param rounds: counted rounds
    :param objects: objects that discovery has seen before
    """
    with tempfile.TemporaryDirectory(prefix="ckpt-bench-") as name, VersityGateway() as store:
        spark = local_session(_s3a(store), cores=LANES)
        try:
            url = f"sqlite:///{name}/ckpt.db"
            migrate.upgrade(url, create=True)
            with Ledger.open(url) as ledger:
                bench = Bench(spark, Path(name), ledger, store)
                say("writing files")
                bench.make()
                bench.rounds.each(rounds, bench.round)
                return bench.result(rounds, objects)
        finally:
            spark.stop()


def _s3a(store: VersityGateway) -> dict[str, str]:
    """Return Spark properties by which Hadoop's ``s3a`` reaches the store."""
    connection = store.connection()
    properties = {
        "endpoint": connection.extra["endpoint_url"],
        "endpoint.region": REGION,
        "access.key": connection.login,
        "secret.key": connection.password,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
    }
    return {
        "spark.jars": ",".join(str(jar) for jar in sorted(jars(S3A).iterdir())),
        **{f"spark.hadoop.fs.s3a.{key}": str(value) for key, value in properties.items()},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.store", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (default: 5)")
    parser.add_argument("--objects", type=int, default=100_000, help="objects for discovery (default: 100000)")
    options = parser.parse_args(arguments)
    target = "bench-store" if is_whole(parser, options) else ""
    shown = ("seconds", "ratios", "requests_per_batch", "discovery_seconds", "objects", "rounds")
    publish(run(options.rounds, options.objects), RESULT, shown, target=target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
