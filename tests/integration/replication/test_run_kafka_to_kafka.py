"""Runs from topic to topic: consumers of committed messages get each message once, unchanged without a transform."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from airflow_provider_ckpt.core.errors import CkptError, ErrorType
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.replication.actions.dead_letters import load_index, read_contents
from tests.chaos.crash_points.servers import Servers
from tests.integration.connectors.kafka.kafka_sink_support import stored
from tests.integration.connectors.kafka.kafka_support import alter, by_sasl
from tests.integration.replication.copying import Copying, make_copying
from tests.services.kafka import KafkaBroker
from tests.services.postgres import PostgresServer
from tests.services.proxy import Break

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def copying(spark: SparkSession, kafka_broker: KafkaBroker, postgres_server: PostgresServer) -> Iterator[Copying]:
    """A pipeline that cuts batches of ten."""
    with make_copying(spark, kafka_broker, postgres_server) as copying:
        yield copying


def test_a_copy_keeps_all_of_a_message_and_delivers_it_once(copying: Copying) -> None:
    copying.put([f"a{n}".encode() for n in range(25)], key=b"k", headers=[("trace", b"\xff"), ("trace", None)])
    copying.put([b"b", None], partition=1, key=b"\x00")

    first = copying.replication.run()
    again = copying.replication.run()
    copying.put([b"last"], key=b"k")
    third = copying.replication.run()

    assert (first.records, again.spark_started) == (Counts(27, 27, 0, 0), False)
    assert third.records == Counts(1, 1, 0, 0)
    found = stored(copying.broker, copying.target)
    assert [record.value for record in found if record.key == b"k"] == [*(f"a{n}".encode() for n in range(25)), b"last"]
    assert [record.value for record in found if record.key == b"\x00"] == [b"b", None]
    assert next(record.headers for record in found if record.value == b"a7") == [("trace", b"\xff"), ("trace", None)]
    sent = {record.value: record.timestamp for record in stored(copying.broker, copying.source)}
    assert {record.value: record.timestamp for record in found} == sent
    assert copying.replication.ledger.audit(copying.replication.pipeline.name)["ok"]


def test_a_time_that_is_not_in_milliseconds_costs_its_message_where_it_is_used(copying: Copying) -> None:
    now, nanoseconds = round(time.time() * 1000), time.time_ns()
    limits = {f"message.timestamp.{side}.max.ms": str(2**63 - 1) for side in ("before", "after")}
    alter(copying.broker, copying.source, limits)
    copying.put([b'{"id": 1}'], key=b"k", timestamp=nanoseconds)
    copying.put([b'{"id": 2}'], key=b"k", timestamp=now)

    summary = copying.replication.run()

    assert summary.records == Counts(2, 1, 0, 1)
    assert [(found.value, found.timestamp) for found in stored(copying.broker, copying.target)] == [(b'{"id": 2}', now)]
    (dead_letter,) = copying.dead_letters()
    assert (dead_letter.key, dead_letter.value) == (b"k", b'{"id": 1}')
    assert dict(dead_letter.headers)["x-ckpt-timestamp"] == f"{nanoseconds} ms".encode()

    decoded = {"decode": "json", "schema": "id bigint", "where": "id > 0"}
    naming = {**decoded, "select": {"id": "id", "sent": "cast(timestamp AS string)"}}
    copies = {"unused": (decoded, Counts(2, 2, 0, 0)), "used": (naming, Counts(2, 1, 0, 1))}
    for name, (transform, counts) in copies.items():
        assert copying.changed(name=name, transform=transform).replication.run().records == counts


def test_a_bad_message_goes_to_the_dead_letter_topic_and_is_found_there(copying: Copying) -> None:
    transform = {"decode": "json", "schema": "id bigint", "where": "id <> 2", "select": {"id": "id", "twice": "id * 2"}}
    decoding = copying.replication.changed(transform=transform)
    copying.put([b'{"id": 1}', b'{"id": 2}', b"{\xff", b'{"id": 3}'], key=b"k", headers=[("own", b"1")])

    summary = decoding.run()

    assert summary.records == Counts(4, 2, 1, 1)
    values = [json.loads(record.value or b"") for record in stored(copying.broker, copying.target)]
    assert sorted(values, key=lambda value: int(value["id"])) == [{"id": 1, "twice": 2}, {"id": 3, "twice": 6}]
    (dead_letter,) = stored(copying.broker, copying.dead_letter_topic)
    assert (dead_letter.key, dead_letter.value, dead_letter.headers[0]) == (b"k", b"{\xff", ("own", b"1"))
    assert dead_letter.header["x-ckpt-error-type"] == "MessageDeserialization"
    assert dead_letter.header["x-ckpt-source-offset"] == "2"
    setup = decoding.setup()
    ((entry, kept),) = read_contents(setup, load_index(setup).entries)
    assert (entry.dead_letters.records, kept.dead_letter.value, kept.dead_letter.position) == (1, b"{\xff", 2)
    assert list(kept.dead_letter.original_headers) == [("own", b"1")]


def test_messages_that_never_arrive_are_an_outage_and_no_dead_letters(spark: SparkSession, servers: Servers) -> None:
    with make_copying(spark, servers.kafka, servers.postgres) as copying:
        soon = copying.patient(**{"message.timeout.ms": 700})
        soon = soon.changed(retry={"max_attempts": 2, "rounds": 2, "initial_delay_ms": 1})
        values = [f"a{n:02}".encode() for n in range(30)]
        soon.put(values, key=b"k")
        sprung = servers.stream.trap(rb"a15", how=Break.BEFORE, lasting=True)

        with pytest.raises(CkptError, match="Nothing was lost") as failed:
            soon.replication.run()

        assert sprung.is_set()
        assert (failed.value.type, failed.value.recoverable) == (ErrorType.KAFKA_PRODUCER, True)
        assert (soon.delivered(), soon.checkpoint) == (values[:10], 10)
        servers.calm()
        assert soon.replication.run().records == Counts(20, 20, 0, 0)
        assert (soon.delivered(), soon.checkpoint) == (values, 30)
        assert stored(soon.broker, soon.dead_letter_topic) == []


def test_a_broker_that_asks_who_comes_gets_messages_receipts_and_dead_letters(copying: Copying) -> None:
    asked = copying.patient(**by_sasl(copying.broker)).changed(transform={"decode": "json", "schema": "id bigint"})
    asked.put([b'{"id":1}', b"{", b'{"id":3}'], key=b"k")

    summary = asked.replication.run()

    assert summary.records == Counts(3, 2, 0, 1)
    assert sorted(filter(None, asked.delivered())) == [b'{"id":1}', b'{"id":3}']
    setup = asked.replication.setup()
    assert [kept.dead_letter.value for _, kept in read_contents(setup, load_index(setup).entries)] == [b"{"]
