"""A log that lost records which were planned already, and gave their offsets to others: told at planning."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.core.ranges import Range
from tests.integration.connectors.kafka.kafka_support import Ledger, numbered, put, transaction
from tests.services.kafka import KafkaBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A broker whose disk may be lost."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def ledger(broker: KafkaBroker) -> Ledger:
    """On a topic of its own, of one partition."""
    return Ledger(broker, broker.new_topic())


def _copied(ledger: Ledger, to: Path) -> None:
    ledger.broker.stop()
    ledger.broker.copy_log(ledger.topic, to)
    ledger.broker.start()


def _lost(ledger: Ledger, copy: Path | None = None) -> None:
    ledger.broker.kill()
    ledger.broker.lose_log(ledger.topic, copy)
    ledger.broker.start()


def test_offsets_used_again_after_the_log_s_tail_was_lost_are_an_error_that_says_how_to_read_them(
    ledger: Ledger, tmp_path: Path
) -> None:
    put(ledger.broker, ledger.topic, numbered(10))
    _copied(ledger, tmp_path / "log")
    put(ledger.broker, ledger.topic, numbered(10, 10))
    ledger.plan()
    _lost(ledger, tmp_path / "log")
    put(ledger.broker, ledger.topic, numbered(25, 100))

    with pytest.raises(SourceError, match=rf"partition 0 of topic {ledger.topic} lost records .*offset 20") as caught:
        ledger.plan()
    command = f"airflow ckpt rewind events --partition {ledger.topic}-0 --to-position 10 --reason"
    assert command in str(caught.value)

    before = len(ledger.planned)
    ledger.rewind(10)
    ledger.plan()
    assert ledger.values(ledger.planned[before:]) == numbered(25, 100)


def test_a_tail_lost_by_one_message_is_an_error(ledger: Ledger, tmp_path: Path) -> None:
    put(ledger.broker, ledger.topic, numbered(9))
    _copied(ledger, tmp_path / "log")
    put(ledger.broker, ledger.topic, numbered(1, 9))
    ledger.plan()
    _lost(ledger, tmp_path / "log")
    put(ledger.broker, ledger.topic, numbered(1, 100))

    with pytest.raises(SourceError, match="--to-position 9 "):
        ledger.plan()


@pytest.mark.parametrize("filled", [0, 30, 40])
def test_a_whole_log_that_was_lost_and_filled_again_is_an_error(ledger: Ledger, filled: int) -> None:
    put(ledger.broker, ledger.topic, numbered(30))
    ledger.plan()
    _lost(ledger)
    put(ledger.broker, ledger.topic, numbered(filled, 100))

    with pytest.raises(SourceError, match=r"lost records .*--to-position 0 "):
        ledger.plan()


def test_a_tail_lost_while_part_of_it_was_not_planned_yet_costs_nothing(ledger: Ledger, tmp_path: Path) -> None:
    put(ledger.broker, ledger.topic, numbered(10))
    ledger.plan(5, most=5)
    _copied(ledger, tmp_path / "log")
    put(ledger.broker, ledger.topic, numbered(10, 10))
    _lost(ledger, tmp_path / "log")
    put(ledger.broker, ledger.topic, numbered(10, 100))

    ledger.plan(5)

    assert ledger.values() == [*numbered(10), *numbered(10, 100)]


def test_a_cluster_restored_with_its_metadata_is_noticed_by_the_record(tmp_path: Path) -> None:
    with KafkaBroker() as broker:
        ledger = Ledger(broker, broker.new_topic())
        put(broker, ledger.topic, numbered(10))
        broker.stop()
        broker.copy_all(tmp_path / "cluster")
        broker.start()
        put(broker, ledger.topic, numbered(10, 10))
        ledger.plan()
        broker.stop()
        broker.restore_all(tmp_path / "cluster")
        broker.start()
        put(broker, ledger.topic, numbered(40, 100))

        with pytest.raises(SourceError, match=r"the record at offset 19 was one of .* and is one of .* now"):
            ledger.plan()


def test_a_record_that_was_damaged_on_disk_is_not_delivered(ledger: Ledger) -> None:
    put(ledger.broker, ledger.topic, [b"whole"])
    put(ledger.broker, ledger.topic, [b"damaged"])
    put(ledger.broker, ledger.topic, [b"behind"])
    ledger.plan(1)
    ledger.broker.stop()
    ledger.broker.damage_log(ledger.topic, b"damaged")
    ledger.broker.start()
    first, second, third = ledger.located()

    with closing(ledger.reader()) as reader:
        with pytest.raises(
            SourceError, match=r"holds damaged records in offsets \[1, 2\).*at offset 1 .*CRC"
        ) as caught:
            list(reader.read(second))
        left = [value for task in (first, third) for rows in reader.read(task) for value in rows["value"].to_pylist()]

    put(ledger.broker, ledger.topic, [b"new"])
    plan = ledger.plan(1)

    assert [batch.range for batch in plan.batches] == [Range(3, 4)], "the others are planned all the same"
    assert caught.value.batch == f"{ledger.topic}-0#1"
    assert left == [b"whole", b"behind"]


def test_a_last_record_that_was_damaged_on_disk_stops_no_planning(ledger: Ledger) -> None:
    put(ledger.broker, ledger.topic, [b"whole"])
    put(ledger.broker, ledger.topic, [b"damaged"])
    ledger.plan(1)
    ledger.broker.stop()
    ledger.broker.damage_log(ledger.topic, b"damaged")
    ledger.broker.start()

    plans = [ledger.plan(1)]
    put(ledger.broker, ledger.topic, [b"new"])
    plans.append(ledger.plan(1))

    assert [[batch.range for batch in plan.batches] for plan in plans] == [[], [Range(2, 3)]]


def test_a_broker_that_starts_again_and_lost_nothing_is_no_error(ledger: Ledger) -> None:
    for start in range(0, 40, 10):
        put(ledger.broker, ledger.topic, numbered(10, start))
        ledger.plan()
        ledger.broker.kill()
        ledger.broker.start()
        ledger.plan()

    assert ledger.values() == numbered(40)


def test_transactions_whose_markers_end_the_log_are_no_error(ledger: Ledger) -> None:
    for number in range(5):
        with transaction(ledger.broker, ledger.topic, numbered(2, number * 2)) as to:
            to.commit_transaction(30)
        with transaction(ledger.broker, ledger.topic, [b"never"] * 70) as to:
            to.abort_transaction(30)
        ledger.plan()
    ledger.broker.kill()
    ledger.broker.start()
    ledger.plan()

    assert ledger.values() == numbered(10)


def test_what_retention_removed_is_expired_and_not_lost(ledger: Ledger) -> None:
    from confluent_kafka import TopicPartition

    put(ledger.broker, ledger.topic, numbered(10))
    ledger.plan()
    put(ledger.broker, ledger.topic, numbered(10, 10))
    admin = ledger.broker.admin()
    for deleted in admin.delete_records([TopicPartition(ledger.topic, 0, 15)]).values():
        deleted.result(30)

    plan = ledger.plan()

    assert [(batch.range, batch.expired) for batch in plan.batches] == [(Range(10, 15), True), (Range(15, 20), False)]


def test_a_record_that_compaction_removed_is_no_error(broker: KafkaBroker) -> None:
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0001", "segment.ms": "50"}
    ledger = Ledger(broker, broker.new_topic(config=compacted))
    put(broker, ledger.topic, numbered(10), key=b"same")
    ledger.plan()
    deadline = time.monotonic() + 60
    while ledger.values(ledger.planned[:1]):
        assert time.monotonic() < deadline, "the topic was not compacted in a minute"
        put(broker, ledger.topic, [b"last"], key=b"same")  # the newest segment is never compacted

    ledger.plan()

    assert ledger.values()[-1] == b"last"
