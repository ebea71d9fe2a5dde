"""Runs from a topic to a table: each message becomes one row, whatever happens to the topic between runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import CkptError
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.replication.run.acquire import acquire
from tests.integration.connectors.kafka.kafka_support import CONNECTION, connection_to, put, transaction
from tests.services.kafka import KafkaBroker
from tests.services.ledgers import make_ledger
from tests.services.postgres import PostgresServer
from tests.services.replication import DATABASE, Replication
from tests.services.tables import execute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Events:
    """A topic, and the replication of it into the table ``events``."""

    broker: KafkaBroker
    topic: str
    replication: Replication

    def put(self, *ids: int, partition: int = 0) -> None:
        """Messages with these ids."""
        put(self.broker, self.topic, [message(number) for number in ids], partition, key=b"k")

    @property
    def ids(self) -> list[int]:
        """Return the delivered ids in order."""
        return [row[0] for row in execute(self.replication.dsn, "SELECT id FROM events ORDER BY id, kafka_key")]

    def expire(self, offset: int) -> None:
        """Let the log of partition 0 begin at an offset."""
        from confluent_kafka import TopicPartition

        admin = self.broker.admin()
        for deleted in admin.delete_records([TopicPartition(self.topic, 0, offset)]).values():
            deleted.result(30)


def message(number: int) -> bytes:
    """A value that fits the schema."""
    return json.dumps({"id": number, "name": f"näme {number}"}).encode()


@pytest.fixture
def events(
    spark: SparkSession, kafka_broker: KafkaBroker, postgres_server: PostgresServer, postgres_database: str
) -> Iterator[Events]:
    """A topic of two partitions, and a pipeline that cuts batches of ten."""
    topic = kafka_broker.new_topic(2)
    execute(postgres_database, "CREATE TABLE events (id bigint NOT NULL, name text, kafka_key bytea)")
    document = {
        "name": "events",
        "source": {"type": "kafka", "connection": CONNECTION, "topic": topic},
        "transform": {
            "decode": "json",
            "schema": "id bigint, name string",
            "where": "id <> 13",
            "select": {"id": "id", "name": "name", "kafka_key": "key"},
        },
        "sink": {"type": "postgres", "connection": DATABASE, "table": "events"},
        "delivery": "exactly_once",
        "commit_strategy": {"commit_interval": 10},
    }
    with make_ledger(postgres_server) as ledger:
        others = {CONNECTION: connection_to(kafka_broker)}
        yield Events(kafka_broker, topic, Replication(spark, ledger, postgres_database, document, others))


def test_every_message_is_delivered_once_from_run_to_run(events: Events) -> None:
    events.put(*range(25))
    events.put(*range(100, 117), partition=1)

    first = events.replication.run()
    again = events.replication.run()
    events.put(*range(25, 30))
    third = events.replication.run()

    assert first.records == Counts(42, 41, 1, 0)
    assert first.lag == {f"{events.topic}-0": 0, f"{events.topic}-1": 0}
    assert (again.records.read, again.spark_started) == (0, False)
    assert third.records == Counts(5, 5, 0, 0)
    assert events.ids == [n for n in range(30) if n != 13] + list(range(100, 117))
    assert execute(events.replication.dsn, "SELECT DISTINCT encode(kafka_key, 'escape') FROM events") == [("k",)]


def test_a_bad_message_costs_itself_and_its_dead_letter_says_everything(events: Events) -> None:
    events.put(1, 2)
    bad = b'{"id": "\xff"'
    put(events.broker, events.topic, [bad, None], key=b"\x00k", headers=[("trace", b"t-1"), ("raw", b"\xff")])

    summary = events.replication.run()

    assert summary.records == Counts(4, 2, 0, 2)
    query = "SELECT position, key, value, error_type, headers FROM ckpt_sink_dead_letter ORDER BY position"
    first, second = execute(events.replication.dsn, query)
    assert (first[0], bytes(first[1]), bytes(first[2]), first[3]) == (2, b"\x00k", bad, "MessageDeserialization")
    assert (second[0], second[2]) == (3, None)
    headers = first[4]
    assert {name: headers[f"x-ckpt-source-{name}"] for name in ("topic", "partition", "offset")} == {
        "topic": events.topic,
        "partition": "0",
        "offset": "2",
    }
    assert headers["x-ckpt-timestamp"].startswith("20")
    assert json.loads(headers["original-headers"]) == [["trace", "t-1"], ["raw", None, "/w=="]]


def test_an_aborted_transaction_is_never_delivered_and_the_checkpoint_passes_it(events: Events) -> None:
    with transaction(events.broker, events.topic, [message(1)]) as to:
        to.abort_transaction(30)
    with transaction(events.broker, events.topic, [message(2)]) as to:
        events.put(3)
        waiting = events.replication.run()
        to.commit_transaction(30)

    after = events.replication.run()

    assert (waiting.records.read, after.records.read) == (0, 2)
    assert events.ids == [2, 3]
    assert after.checkpoint[f"{events.topic}-0"]["after"] == 5


def test_a_partition_that_comes_later_starts_at_its_first_message(events: Events) -> None:
    from confluent_kafka.admin import NewPartitions

    events.put(1, 2, 3)
    events.replication = events.replication.changed(source={"start_from": "latest"})
    events.replication.run()
    admin = events.broker.admin()
    admin.create_partitions([NewPartitions(events.topic, 3)])[events.topic].result(30)
    events.put(7, 8, partition=2)
    events.put(4)

    events.replication.run()

    assert events.ids == [4, 7, 8]


def test_a_topic_that_was_created_anew_is_refused(events: Events) -> None:
    events.put(1, 2)
    events.replication.run()
    events.broker.delete_topic(events.topic)
    events.broker.new_topic(2, name=events.topic)
    events.put(3, 4, 5)

    with pytest.raises(CkptError, match="has changed since this pipeline was started"):
        events.replication.run()

    assert events.ids == [1, 2]


def test_what_retention_took_stops_its_partition_and_fails_the_run_until_a_person_lets_it_go(events: Events) -> None:
    events.put(*range(5))
    events.replication.run()
    events.put(*range(5, 20))
    events.put(30, 31, partition=1)
    events.expire(12)
    name = f"{events.topic}-0"

    for _ in range(2):
        with pytest.raises(CkptError, match=r"no longer holds offsets \[5, 12\).*airflow ckpt skip"):
            events.replication.run()
        assert events.ids == [*range(5), 30, 31], "the other partition went on"
    told = [event for event in events.replication.ledger.events("events") if event["kind"] == "expired_unreceipted"]
    skip = Action(ActionKind.SKIP, batches=(BatchKey(1, name, 1),))
    assert events.replication.ledger.action("events", skip, actor="ann", reason="nobody needs them").applied
    summary = events.replication.run()

    assert [(event["partition"], event["seq"], event["detail"]["range"]) for event in told] == [(name, 1, [5, 12])]
    assert events.ids == [n for n in [*range(5), *range(12, 20), 30, 31] if n != 13]
    assert summary.checkpoint[name]["after"] == 20
    assert summary.batches_by_state == {}
    assert events.replication.ledger.audit("events")["ok"]


def test_a_held_batch_does_not_starve_another_partition_of_its_share_in_flight(events: Events) -> None:
    few = replace(events, replication=events.replication.changed(consumer={"max_in_flight": 20}))
    few.put(*range(100, 130))
    with acquire(few.replication.setup()) as run:
        run.plan()
        run.finish()
    hold = Action(ActionKind.HOLD, batches=(BatchKey(1, f"{few.topic}-0", 0),))
    assert few.replication.ledger.action("events", hold, actor="ann", reason="to be looked at").applied
    few.put(*range(30, 60), partition=1)

    summary = few.replication.run()

    assert few.ids == list(range(30, 60))
    assert summary.batches_by_state == {"held": 1, "planned": 1}
    assert summary.lag == {f"{few.topic}-0": 30, f"{few.topic}-1": 0}


def test_a_paused_broker_fails_the_run_and_loses_nothing(events: Events) -> None:
    events.put(1, 2, 3)
    impatient = connection_to(events.broker, **{"socket.timeout.ms": 1500})
    events.replication.others = {CONNECTION: impatient}
    events.broker.pause()
    try:
        with pytest.raises(CkptError, match=r"\[KafkaConsumer\] pipeline events: describing topic"):
            events.replication.run()
    finally:
        events.broker.resume()

    events.replication.run()

    assert events.ids == [1, 2, 3]
