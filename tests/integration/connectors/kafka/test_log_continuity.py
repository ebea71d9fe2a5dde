"""A log that lost planned records and gave their offsets to other records: planning reports it.

A broker takes seconds to start, so several topics share one restart: see :func:`lost` and :func:`damaged`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
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


FILLED = (0, 30, 40)
"""Records that are written to a log that was lost as a whole, and held 30 before."""


@pytest.fixture(scope="module")
def lost(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Ledger]:
    """Topics by what became of their logs when the broker was stopped in order, and later killed.

    - ``tail``: its last ten of 20 planned records are lost, ``one``: its last of ten
    - ``unplanned``: its last ten of 20 are lost, of which none was planned, and five of the others were not
    - ``whole`` and a number: all of its 30 planned records are lost, and so many written since
    - ``kept`` and ``transactions``: nothing is lost
    """
    copied = ("tail", "one", "unplanned")
    names = (*copied, *(f"whole {filled}" for filled in FILLED), "kept", "transactions")
    ledgers = {name: Ledger(broker, broker.new_topic()) for name in names}
    copies = tmp_path_factory.mktemp("logs")

    def write(name: str, count: int, first: int = 0) -> Ledger:
        put(broker, ledgers[name].topic, numbered(count, first))
        return ledgers[name]

    write("tail", 10)
    write("one", 9)
    write("unplanned", 10).plan(5, most=5)
    write("kept", 10).plan()
    for filled in FILLED:
        write(f"whole {filled}", 30).plan()
    for number in range(5):
        with transaction(broker, ledgers["transactions"].topic, numbered(2, number * 2)) as to:
            to.commit_transaction(30)
        with transaction(broker, ledgers["transactions"].topic, [b"never"] * 70) as to:
            to.abort_transaction(30)
        ledgers["transactions"].plan()
    broker.stop()
    for name in copied:
        broker.copy_log(ledgers[name].topic, copies / name)
    broker.start()
    ledgers["kept"].plan()
    write("tail", 10, 10).plan()
    write("one", 1, 9).plan()
    write("unplanned", 10, 10)
    write("kept", 10, 10).plan()
    broker.kill()
    for name in copied:
        broker.lose_log(ledgers[name].topic, copies / name)
    for filled in FILLED:
        broker.lose_log(ledgers[f"whole {filled}"].topic)
    broker.start()
    write("tail", 25, 100)
    write("one", 1, 100)
    write("unplanned", 10, 100)
    for filled in FILLED:
        write(f"whole {filled}", filled, 100)
    return ledgers


def test_offsets_used_again_after_the_log_s_tail_was_lost_are_an_error_that_says_how_to_read_them(
    lost: Mapping[str, Ledger],
) -> None:
    ledger = lost["tail"]

    with pytest.raises(SourceError, match=rf"partition 0 of topic {ledger.topic} lost records .*offset 20") as caught:
        ledger.plan()
    command = f"airflow ckpt rewind events --partition {ledger.topic}-0 --to-position 10 --reason"
    assert command in str(caught.value)

    before = len(ledger.planned)
    ledger.rewind(10)
    ledger.plan()
    assert ledger.values(ledger.planned[before:]) == numbered(25, 100)


def test_a_tail_lost_by_one_message_is_an_error(lost: Mapping[str, Ledger]) -> None:
    with pytest.raises(SourceError, match="--to-position 9 "):
        lost["one"].plan()


@pytest.mark.parametrize("filled", FILLED)
def test_a_whole_log_that_was_lost_and_filled_again_is_an_error(lost: Mapping[str, Ledger], filled: int) -> None:
    with pytest.raises(SourceError, match=r"lost records .*--to-position 0 "):
        lost[f"whole {filled}"].plan()


def test_a_tail_lost_while_part_of_it_was_not_planned_yet_costs_nothing(lost: Mapping[str, Ledger]) -> None:
    lost["unplanned"].plan(5)

    assert lost["unplanned"].values() == [*numbered(10), *numbered(10, 100)]


def test_a_broker_that_starts_again_and_lost_nothing_is_no_error(lost: Mapping[str, Ledger]) -> None:
    lost["kept"].plan()
    put(lost["kept"].broker, lost["kept"].topic, numbered(10, 20))
    lost["kept"].plan()

    assert lost["kept"].values() == numbered(30)


def test_transactions_whose_markers_end_the_log_are_no_error(lost: Mapping[str, Ledger]) -> None:
    lost["transactions"].plan()

    assert lost["transactions"].values() == numbered(10)


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


@pytest.fixture(scope="module")
def damaged(broker: KafkaBroker) -> Mapping[str, Ledger]:
    """Topics in whose logs a planned record was damaged while the broker was stopped: the second one of each."""
    ledgers = {name: Ledger(broker, broker.new_topic()) for name in ("between", "last")}
    for name, ledger in ledgers.items():
        for value in (b"whole", b"damaged", b"behind")[: 2 if name == "last" else 3]:
            put(broker, ledger.topic, [value])
        ledger.plan(1)
    broker.stop()
    for ledger in ledgers.values():
        broker.damage_log(ledger.topic, b"damaged")
    broker.start()
    return ledgers


def test_a_record_that_was_damaged_on_disk_is_not_delivered(damaged: Mapping[str, Ledger]) -> None:
    ledger = damaged["between"]
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


def test_a_last_record_that_was_damaged_on_disk_stops_no_planning(damaged: Mapping[str, Ledger]) -> None:
    ledger = damaged["last"]

    plans = [ledger.plan(1)]
    put(ledger.broker, ledger.topic, [b"new"])
    plans.append(ledger.plan(1))

    assert [[batch.range for batch in plan.batches] for plan in plans] == [[], [Range(2, 3)]]


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
