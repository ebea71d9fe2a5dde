"""Compare a million messages from Kafka to Kafka by this package, exactly once, with Spark's own Kafka source and sink.

``python -m tests.benchmarks.kafka_to_kafka [--rounds 5] [--messages 1000000]``. Spark's way delivers at least once.
Each round measures every way in turn, on one broker and one warm Spark session, each time into a new topic; a first
round for warming up is not counted. With this package, a way is a complete run (lease, fence, reconciliation, planning,
waves, settlement, release) with the ledger in PostgreSQL. There are two jobs: a copy, and one that decodes JSON,
filters and encodes JSON. Writes ``build/bench/kafka_to_kafka.json``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.assurance import is_whole
from tests.benchmarks.rounds import Rounds, publish, say
from tests.integration.connectors.kafka.kafka_support import CONNECTION, connection_to, producer
from tests.services.kafka import KafkaBroker, jars
from tests.services.ledgers import make_ledger
from tests.services.postgres import LARGE_WAL, PostgresServer
from tests.services.replication import Replication
from tests.services.spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_ckpt.ledger.ledger import Ledger

RESULT = Path("build/bench/kafka_to_kafka.json")
PARTITIONS, LANES = 4, 2
BATCHES = (20, 100)
COPY, DECODE = "copy", "decode_and_filter"
SCHEMA = "id bigint, customer string, amount double, status string, at string, note string"
WHERE = "status <> 'cancelled'"
_BROKER = {"broker.heartbeat.interval.ms": "2000", "broker.session.timeout.ms": "9000"}


@dataclass
class Bench:
    """The broker, the session, and what was measured.

    :param messages: how many the source topic holds
    :param kept: how many of them the filter lets through
    """

    broker: KafkaBroker
    spark: SparkSession
    ledger: Ledger
    messages: int
    source: str
    kept: int
    rounds: Rounds = field(default_factory=Rounds)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def round(self) -> None:
        """Measure every way of both jobs once."""
        for job in (COPY, DECODE):
            for batches in BATCHES:
                self._measure(f"{job}_ckpt_{batches}", job, partial(self._ckpt, job, batches))
            self._measure(f"{job}_spark", job, partial(self._spark, job))

    def _measure(self, way: str, job: str, move: Any) -> None:
        target = self.broker.new_topic(PARTITIONS, {"retention.ms": "-1"})
        self.rounds.time(way, partial(move, target))
        if not self.rounds.counted:
            self._check(way, job, target)
        self.broker.delete_topic(target)

    def _ckpt(self, job: str, batches: int, target: str) -> None:
        number = next(self._numbers)
        document: dict[str, Any] = {
            "name": f"bench-{number}",
            "source": {"type": "kafka", "connection": CONNECTION, "topic": self.source},
            "sink": {"type": "kafka", "connection": CONNECTION, "topic": target},
            "delivery": "exactly_once",
            "commit_strategy": {"commit_interval": -(-self.messages // batches)},
            "consumer": {"lanes": LANES, "max_in_flight": 2 * self.messages},
        }
        if job == DECODE:
            document["transform"] = {"decode": "json", "schema": SCHEMA, "where": WHERE}
        others = {CONNECTION: connection_to(self.broker, **{"socket.timeout.ms": 60000})}
        summary = Replication(self.spark, self.ledger, "", document, others).run()
        wanted = self.messages if job == COPY else self.kept
        if (summary.batches, summary.records.delivered) != (batches, wanted):
            raise RuntimeError(f"a run of {batches} batches had {summary.batches}: {summary.records}")
        self.rounds.note(f"{job}_{batches}", summary.steps)

    def _spark(self, job: str, target: str) -> None:
        frame = self._read(self.source)
        if job == DECODE:
            frame = frame.selectExpr("key", "headers", f"from_json(cast(value AS string), '{SCHEMA}') AS decoded")
            frame = frame.where(f"decoded.{WHERE}").selectExpr("key", "headers", "to_json(decoded) AS value")
        options = {"kafka.bootstrap.servers": self.broker.bootstrap, "topic": target, "includeHeaders": "true"}
        frame.select("key", "value", "headers").write.format("kafka").options(**options).save()

    def _read(self, topic: str) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
        }
        return self.spark.read.format("kafka").options(**options).load()

    def _check(self, way: str, job: str, target: str) -> None:
        ids = self._read(target).selectExpr("from_json(cast(value AS string), 'id bigint').id AS id")
        found = ids.selectExpr("count(id) AS n", "count(DISTINCT id) AS d").collect()[0]
        wanted = self.messages if job == COPY else self.kept
        if (found.n, found.d) != (wanted, wanted):
            raise RuntimeError(f"{way} left {found.n} messages with {found.d} ids, not {wanted}")

    def result(self, rounds: int) -> dict[str, Any]:
        """Medians and what they say of each other."""
        seconds = self.rounds.medians

        def rates(job: str) -> dict[str, float]:
            return {str(n): round(seconds[f"{job}_spark"] / seconds[f"{job}_ckpt_{n}"], 3) for n in BATCHES}

        return {
            "seconds": seconds,
            "ratios": {
                "rate_vs_spark_jvm": rates(COPY),
                "rate_vs_spark_jvm_decode_and_filter": rates(DECODE),
            },
            "messages": self.messages,
            "partitions": PARTITIONS,
            "lanes": LANES,
            **self.rounds.details(rounds),
        }


def fill(broker: KafkaBroker, topic: str, messages: int) -> int:
    """Put the messages there, of about 180 bytes each.

    :returns: how many of them the filter lets through
    """
    to = producer(broker, **{"linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(messages):
        status = "cancelled" if number % 10 == 3 else "shipped"
        value = (
            f'{{"id": {number}, "customer": "customer-{number * 7919 % 100000:05d}", "amount": {number % 99991 / 100},'
            f' "status": "{status}", "at": "2026-01-{number % 28 + 1:02d}T12:{number % 60:02d}:00Z",'
            f' "note": "left at the door of number {number % 977:03d}, as agreed"}}'
        )
        to.produce(topic, value, key=str(number % 100000), partition=number % PARTITIONS)
        if number % 10_000 == 0:
            to.poll(0)
    to.flush()
    return sum(number % 10 != 3 for number in range(messages))


def run(rounds: int, messages: int) -> dict[str, Any]:
    """Measure.

    :param rounds: counted rounds
    :param messages: messages of the source
    """
    classes = ",".join(str(jar) for jar in sorted(jars("spark-kafka-4.2.0").iterdir()))
    spark = local_session({"spark.jars": classes}, cores=LANES)
    try:
        with (
            PostgresServer(LARGE_WAL) as server,
            KafkaBroker(_BROKER) as broker,
            make_ledger(server) as ledger,
        ):
            source = broker.new_topic(PARTITIONS, {"retention.ms": "-1"})
            say(f"making {messages:,} messages")
            bench = Bench(broker, spark, ledger, messages, source, fill(broker, source, messages))
            bench.rounds.each(rounds, bench.round)
            return bench.result(rounds)
    finally:
        spark.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.kafka_to_kafka", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (default: 5)")
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages to move (default: 1,000,000)")
    options = parser.parse_args(arguments)
    target = "bench-kafka" if is_whole(parser, options) else ""
    publish(run(options.rounds, options.messages), RESULT, ("seconds", "ratios", "messages", "rounds"), target=target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
