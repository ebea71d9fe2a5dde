"""``audit --against-sink`` on Kafka: ledger and sink agree after bad messages, and each kind of damage is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_ckpt.connectors.kafka.receipts import receipt_key, receipt_value, receipts_topic
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt
from airflow_provider_ckpt.core.sink_audit import DifferenceKind
from airflow_provider_ckpt.replication.observe.sink_audit import audit_sink
from tests.integration.connectors.kafka.kafka_support import put
from tests.integration.replication.copying import Copying, make_copying
from tests.services.kafka import KafkaBroker
from tests.services.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECODED = {"decode": "json", "schema": "id bigint"}


@pytest.fixture
def delivered(spark: SparkSession, kafka_broker: KafkaBroker, postgres_server: PostgresServer) -> Iterator[Copying]:
    """30 messages in three batches; of the second, two became dead letters."""
    with make_copying(spark, kafka_broker, postgres_server) as made:
        copying = made.changed(transform=DECODED)
        copying.put([b"bad" if n in (12, 17) else b'{"id":%d}' % n for n in range(30)], key=b"k")
        assert copying.replication.run().records == Counts(30, 28, 0, 2)
        assert len(copying.receipts()) == 3
        yield copying


def recount(copying: Copying, **options: Any) -> dict[str, Any]:
    """Return the result of an audit against the sink."""
    return audit_sink(copying.replication.setup(), lambda _: None, **options)


def differences(copying: Copying, **options: Any) -> list[tuple[str, str | None]]:
    """Kind and batch of what they disagree about."""
    return [(item["kind"], item["batch"]) for item in recount(copying, **options)["differences"]]


def note(copying: Copying, receipt: Receipt, *, gone: bool = False) -> None:
    """Write a receipt to the receipts topic, or take it back."""
    name = copying.pipeline
    key = receipt_key(copying.replication.ledger.sink_id(name), receipt.key)
    put(copying.broker, receipts_topic(name), [None if gone else receipt_value(receipt)], key=key)


def test_they_agree(delivered: Copying) -> None:
    compared = recount(delivered)

    assert (compared["agrees"], compared["differences"]) == (True, [])
    assert {name: compared["compared"][name] for name in ("receipts", "dead_letters", "target_rows")} == {
        "receipts": 3,
        "dead_letters": 2,
        "target_rows": 28,
    }


def test_a_message_that_was_sent_twice_is_found(delivered: Copying) -> None:
    put(delivered.broker, delivered.target, [b'{"id":7}'], key=b"k")

    assert differences(delivered) == [(DifferenceKind.ROWS_DIFFER.value, None)]
    assert differences(delivered, shared=True) == []


def test_a_receipt_that_is_gone_or_says_something_else_is_found(delivered: Copying) -> None:
    receipt = delivered.receipts()[1]

    note(delivered, receipt, gone=True)
    missing = (DifferenceKind.RECEIPT_MISSING.value, str(receipt.key))
    assert differences(delivered, shared=True) == [missing]

    note(delivered, replace(receipt, counts=Counts(10, 7, 1, 2)))
    assert differences(delivered, shared=True) == [(DifferenceKind.RECEIPT_DIFFERS.value, None)]


def test_a_receipt_of_a_batch_that_nobody_planned_is_found(delivered: Copying) -> None:
    last = delivered.receipts()[-1]
    beyond = replace(last.key, seq=last.key.seq + 1)
    note(delivered, replace(last, key=beyond, range=Range(last.range.end, last.range.end + 10)))

    assert differences(delivered, shared=True) == [(DifferenceKind.RECEIPT_UNKNOWN.value, str(beyond))]


def test_dead_letters_that_retention_took_are_found(delivered: Copying) -> None:
    from confluent_kafka import TopicPartition

    first, second = delivered.dead_letters()
    assert first.partition == second.partition
    admin = delivered.broker.admin()
    before = TopicPartition(delivered.dead_letter_topic, first.partition, 1)
    for deleted in admin.delete_records([before]).values():
        deleted.result(30)

    ((kind, batch),) = differences(delivered)
    assert (kind, batch) == (DifferenceKind.DEAD_LETTERS_DIFFER.value, str(delivered.receipts()[1].key))
