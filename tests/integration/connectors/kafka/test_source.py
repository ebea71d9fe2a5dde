"""Tests of topics with transactions, gaps, retention or new partitions, and of topics that were created again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime

import pytest

from airflow_provider_ckpt.connectors.kafka.deserialize import UNREADABLE_HEADERS
from airflow_provider_ckpt.connectors.kafka.source import KafkaSource
from airflow_provider_ckpt.connectors.source_plan import SOURCE_END, PlannedBatch, PlanRequest, RangeToPlan, Start
from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.batch import Instruction
from airflow_provider_ckpt.core.errors import ConfigError, ErrorType, KafkaConsumerError, SourceError
from airflow_provider_ckpt.core.ranges import Range
from tests.integration.connectors.kafka.kafka_support import (
    EVERYTHING,
    Ledger,
    by_sasl,
    connection_to,
    numbered,
    pipeline,
    producer,
    put,
    put_raw_header,
    task,
    transaction,
)
from tests.services.kafka import KafkaBroker

COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.0001",
    "segment.ms": "50",
    "delete.retention.ms": "0",
}


@pytest.fixture
def ledger(kafka_broker: KafkaBroker) -> Ledger:
    """On a topic of its own, of one partition."""
    return Ledger(kafka_broker, kafka_broker.new_topic())


class TestMessages:
    def test_everything_of_a_message_arrives_unchanged(self, kafka_broker: KafkaBroker) -> None:
        ledger = Ledger(kafka_broker, kafka_broker.new_topic(config={"retention.ms": "-1"}))
        headers = [("a", b"\xff\x00"), ("a", None), ("ä", b"")]
        put(
            ledger.broker,
            ledger.topic,
            [b"\x00\xff", b"", None],
            key=b"\xfe",
            headers=headers,
            timestamp=1_700_000_000_123,
        )
        put(ledger.broker, ledger.topic, [b"bare"])

        ledger.plan()
        (rows,) = ledger.rows()

        at = datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
        own = [{"key": "a", "value": b"\xff\x00"}, {"key": "a", "value": None}, {"key": "ä", "value": b""}]
        assert rows[:3] == [
            {POSITION: offset, "key": b"\xfe", "value": value, "headers": own, "timestamp": at}
            for offset, value in enumerate([b"\x00\xff", b"", None])
        ]
        assert (rows[3]["key"], rows[3]["headers"]) == (None, [])

    @pytest.mark.parametrize("before", [1, 200])
    def test_a_header_name_that_is_no_text_costs_the_headers_and_not_the_pipeline(
        self, ledger: Ledger, caplog: pytest.LogCaptureFixture, before: int
    ) -> None:
        put(ledger.broker, ledger.topic, [b"a"] * before, headers=[("own", b"1")])
        put_raw_header(ledger.broker, ledger.topic, b"\xff\xfebad", b"b")
        put(ledger.broker, ledger.topic, [b"c"] * 2, headers=[("own", b"1")])

        ledger.plan(1000)
        (rows,) = ledger.rows()

        own = [{"key": "own", "value": b"1"}]
        assert [row["value"] for row in rows] == [*[b"a"] * before, b"b", b"c", b"c"]
        headers = [row["headers"] for row in rows]
        assert headers == [*[own] * before, [{"key": UNREADABLE_HEADERS, "value": None}], own, own]
        assert f"offset {before} in partition 0 of topic {ledger.topic} cannot be read" in caplog.text

    def test_a_message_of_ten_megabytes_arrives_whole(self, ledger: Ledger) -> None:
        big = b"x" * 10_000_000
        to = producer(ledger.broker, **{"message.max.bytes": 20_000_000})
        for value in (b"small", big, b"small"):
            to.produce(ledger.topic, value, partition=0)
        to.flush(30)

        ledger.plan(1)

        assert ledger.values() == [b"small", big, b"small"]

    def test_the_size_of_a_batch_follows_that_of_the_messages(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, [b"x" * 32_768] * 1_100)

        plan = ledger.plan()

        assert [batch.records for batch in plan.batches] == [512, 512, 76]

    def test_a_dead_letter_says_where_it_came_from(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, [b"a"])
        ledger.plan()

        with closing(ledger.reader()) as reader:
            origin = reader.origin(ledger.planned[0], 17)

        assert origin == {
            "source-topic": ledger.topic,
            "source-partition": "0",
            "source-offset": "17",
            "source-position": "17",
        }


class TestTransactions:
    def test_an_aborted_transaction_leaves_holes(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, [b"a"])
        with transaction(ledger.broker, ledger.topic, [b"never"] * 3) as to:
            to.abort_transaction(30)
        with transaction(ledger.broker, ledger.topic, [b"b", b"c"]) as to:
            to.commit_transaction(30)

        ledger.plan(2)

        assert [(batch.range.start, batch.range.end) for batch in ledger.planned] == [(0, 2), (2, 4), (4, 6), (6, 8)]
        assert ledger.offsets() == [[0], [], [5], [6]]
        assert ledger.values() == [b"a", b"b", b"c"]

    def test_a_plan_ends_where_a_transaction_is_open(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, [b"a", b"b"])
        with transaction(ledger.broker, ledger.topic, [b"c"]) as to:
            put(ledger.broker, ledger.topic, [b"d"])

            plan, again = ledger.plan(), ledger.plan()
            assert plan.bounds == again.bounds == {f"{ledger.topic}-0": 2}
            assert again.batches == []
            assert ledger.values() == [b"a", b"b"]

            to.commit_transaction(30)
        ledger.plan()

        assert ledger.values(ledger.planned[1:]) == [b"c", b"d"]

    def test_what_waits_for_a_transaction_is_told_once_and_known_to_be_there(
        self, ledger: Ledger, caplog: pytest.LogCaptureFixture
    ) -> None:
        put(ledger.broker, ledger.topic, [b"a", b"b"])
        with transaction(ledger.broker, ledger.topic, [b"c"]) as to, closing(ledger.source()) as source:
            put(ledger.broker, ledger.topic, [b"d"], timestamp=1_700_000_000_000)
            request = PlanRequest([RangeToPlan(f"{ledger.topic}-0", 0)], None, EVERYTHING)

            plans = [source.plan(request), source.plan(request)]
            to.abort_transaction(30)

        assert [plan.states[f"{ledger.topic}-0"][SOURCE_END] for plan in plans] == [4, 4]
        (said,) = [record.getMessage() for record in caplog.records]
        assert f"2 messages of partition 0 of topic {ledger.topic}, from offset 2 on" in said
        assert f"--topic {ledger.topic} --partition 0" in said

    def test_latest_starts_before_a_transaction_that_is_open(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, [b"a"])
        with transaction(ledger.broker, ledger.topic, [b"b"]) as to, closing(ledger.source()) as source:
            assert source.start(f"{ledger.topic}-0", "latest") == Start(1)
            to.abort_transaction(30)


class TestHoles:
    def test_compaction_leaves_holes(self, kafka_broker: KafkaBroker) -> None:
        ledger = Ledger(kafka_broker, kafka_broker.new_topic(config=COMPACTED))
        for number in range(20):
            put(kafka_broker, ledger.topic, [b"%d" % number], key=b"same")
        _until_compacted(ledger)

        ledger.plan(5)
        offsets = ledger.offsets()

        assert [batch.range for batch in ledger.planned][-1].end == ledger.ends[f"{ledger.topic}-0"]
        assert [len(batch) for batch in offsets[:3]] == [0, 0, 0]
        assert offsets[-1][-1] >= 19

    def test_batches_are_read_in_any_order(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, numbered(30))
        ledger.plan(10)
        first, second, third = ledger.planned

        assert ledger.values([third, first, second]) == numbered(10, 20) + numbered(10) + numbered(10, 10)

    def test_a_reading_that_was_given_up_does_not_disturb_the_next(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, numbered(30))
        ledger.plan(15)
        located = ledger.located()

        with closing(ledger.reader()) as reader:
            next(iter(reader.read(located[0])))
            again = [value for records in reader.read(located[0]) for value in records.column("value").to_pylist()]
            on = [value for records in reader.read(located[1]) for value in records.column("value").to_pylist()]

        assert (again, on) == (numbered(15), numbered(15, 15))


class TestRetention:
    def test_what_is_gone_before_it_was_planned_is_planned_as_lost(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, numbered(10))
        ledger.plan(3, most=3)
        _delete_before(ledger, 8)

        plan = ledger.plan(3)

        name = f"{ledger.topic}-0"
        assert list(plan.batches) == [
            PlannedBatch(name, Range(3, 8), 0, expired=True),
            PlannedBatch(name, Range(8, 10), 2),
        ]
        assert ledger.values(ledger.planned[2:]) == numbered(2, 8)

    def test_a_batch_that_expired_is_refused_until_it_is_let_go(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, numbered(10))
        ledger.plan(5)
        _delete_before(ledger, 7)

        with pytest.raises(SourceError, match=r"no longer holds offsets \[0, 5\): .* removed all of it") as caught:
            ledger.located()
        assert "airflow ckpt skip" in str(caught.value)
        assert "replay range" not in str(caught.value)
        with pytest.raises(SourceError, match=r"removed the offsets before 7 .*replay range"):
            ledger.located(ledger.planned[1:])
        void = ledger.located([task(ledger.topic, 0, 5, Instruction.VOID)])
        assert [item.range for item in void] == [Range(0, 5)]

    def test_what_expires_under_the_reader_is_an_error_and_no_other_offset(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, numbered(10))
        ledger.plan()
        located = ledger.located()
        _delete_before(ledger, 7)

        with closing(ledger.reader()) as reader, pytest.raises(SourceError, match="no longer holds offsets") as caught:
            list(reader.read(located[0]))

        assert not caught.value.recoverable
        assert caught.value.batch == f"{ledger.topic}-0#0"

    def test_a_topic_that_ends_before_what_was_planned_is_an_error(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, numbered(3))

        with closing(ledger.source()) as source, pytest.raises(SourceError, match="ends at offset 3, before 7"):
            source.plan(PlanRequest([RangeToPlan(f"{ledger.topic}-0", 7)], None, EVERYTHING))


class TestAnotherTopic:
    @pytest.fixture
    def recreated(self, ledger: Ledger) -> Ledger:
        """A ledger with a plan for a topic that was deleted and created anew since."""
        put(ledger.broker, ledger.topic, numbered(10))
        ledger.plan()
        ledger.planned = ledger.located()
        ledger.broker.delete_topic(ledger.topic)
        ledger.broker.new_topic(name=ledger.topic)
        put(ledger.broker, ledger.topic, numbered(20))
        return ledger

    def test_its_identity_is_another(self, ledger: Ledger) -> None:
        def identity() -> str:
            with closing(ledger.source()) as source:
                (partition,) = source.partitions()
                return partition.identity

        before = identity()
        ledger.broker.delete_topic(ledger.topic)
        ledger.broker.new_topic(name=ledger.topic)

        assert identity() != before

    def test_the_reader_refuses_it(self, recreated: Ledger) -> None:
        with closing(recreated.reader()) as reader, pytest.raises(SourceError, match="deleted and created again"):
            list(reader.read(recreated.planned[0]))

    def test_a_source_that_is_open_refuses_it(self, ledger: Ledger) -> None:
        with closing(ledger.source()) as source:
            source.partitions()
            ledger.broker.delete_topic(ledger.topic)
            ledger.broker.new_topic(name=ledger.topic)

            with pytest.raises(SourceError, match="deleted and created again"):
                source.plan(PlanRequest([RangeToPlan(f"{ledger.topic}-0", 0)], None, EVERYTHING))

    def test_a_topic_created_anew_between_two_batches_of_a_lane_is_refused(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, numbered(20))
        ledger.plan(10)
        first, second = ledger.located()

        with closing(ledger.reader()) as reader:
            list(reader.read(second))
            ledger.broker.delete_topic(ledger.topic)
            ledger.broker.new_topic(name=ledger.topic)
            put(ledger.broker, ledger.topic, numbered(20, 100))
            with pytest.raises(SourceError):
                list(reader.read(first))

    def test_a_batch_does_not_mix_records_of_a_topic_and_of_one_created_anew(self, ledger: Ledger) -> None:
        ledger.sent = {"queued.max.messages.kbytes": 1, "queued.min.messages": 1}
        put(ledger.broker, ledger.topic, [b"old" + b"x" * 900_000] * 40)
        ledger.plan(40)
        (task,) = ledger.located()

        with closing(ledger.reader()) as reader:
            read = reader.read(task)
            values = next(read).column("value").to_pylist()
            ledger.broker.delete_topic(ledger.topic)
            ledger.broker.new_topic(name=ledger.topic)
            put(ledger.broker, ledger.topic, [b"new"] * 60)
            with pytest.raises(SourceError):
                values += [value for records in read for value in records.column("value").to_pylist()]

        assert len(values) < 40, "so that the topic was another one before all was read"

    def test_a_topic_that_is_gone_is_named(self, ledger: Ledger) -> None:
        ledger.broker.delete_topic(ledger.topic)

        with closing(ledger.source()) as source, pytest.raises(ConfigError, match="does not exist in the cluster"):
            source.check()

    def test_a_topic_deleted_under_the_reader_is_an_error_in_bounded_time(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, numbered(10))
        ledger.plan(5)
        located = ledger.located()

        with closing(ledger.reader()) as reader:
            list(reader.read(located[1]))
            ledger.broker.delete_topic(ledger.topic)
            started = time.monotonic()
            with pytest.raises(SourceError):
                list(reader.read(located[0]))

        assert time.monotonic() - started < 15


class TestPartitions:
    def test_they_take_turns_in_a_plan(self, kafka_broker: KafkaBroker) -> None:
        ledger = Ledger(kafka_broker, kafka_broker.new_topic(3))
        for partition in range(3):
            put(kafka_broker, ledger.topic, numbered(10), partition)

        plan = ledger.plan(4, most=13)

        assert [(batch.partition[-1], batch.range.start) for batch in plan.batches] == [("0", 0), ("1", 0), ("2", 0)]
        assert plan.more
        ledger.plan(4)
        assert sorted(ledger.values()) == sorted(numbered(10) * 3)

    def test_a_new_one_is_found_and_the_others_keep_their_identity(self, ledger: Ledger) -> None:
        from confluent_kafka.admin import NewPartitions

        with closing(ledger.source()) as source:
            before = source.partitions()
        admin = ledger.broker.admin()
        admin.create_partitions([NewPartitions(ledger.topic, 2)])[ledger.topic].result(30)
        put(ledger.broker, ledger.topic, [b"new"], 1)

        with closing(ledger.source()) as source:
            after = source.partitions()
            assert source.start(after[1].id, "earliest") == Start(0)

        assert list(after[:1]) == list(before)
        assert [partition.id for partition in after] == [f"{ledger.topic}-0", f"{ledger.topic}-1"]

    def test_a_partition_of_another_topic_is_refused(self, ledger: Ledger) -> None:
        with closing(ledger.source()) as source, pytest.raises(ConfigError, match="has no partition other-0"):
            source.plan(PlanRequest([RangeToPlan("other-0", 0)], None, EVERYTHING))


class TestBrokers:
    @pytest.fixture
    def paused(self, ledger: Ledger) -> Iterator[Ledger]:
        """A ledger with two located batches, on a broker that holds still."""
        put(ledger.broker, ledger.topic, numbered(10))
        ledger.plan(5)
        ledger.planned = ledger.located()
        ledger.sent = {"socket.timeout.ms": 1500}
        ledger.broker.pause()
        yield ledger
        ledger.broker.resume()

    def test_planning_from_a_paused_broker_fails_in_bounded_time(self, paused: Ledger) -> None:
        started = time.monotonic()

        with closing(paused.source()) as source, pytest.raises(KafkaConsumerError, match="describing topic") as caught:
            source.check()

        assert caught.value.info.is_outage
        assert caught.value.recoverable
        assert time.monotonic() - started < 20

    def test_a_broker_that_pauses_under_the_reader_is_an_error_and_reading_goes_on_when_it_is_back(
        self, ledger: Ledger
    ) -> None:
        put(ledger.broker, ledger.topic, numbered(10))
        ledger.plan(5)
        first, second = ledger.located()
        ledger.sent = {"socket.timeout.ms": 1500}
        with closing(ledger.reader()) as reader:
            before = [row for records in reader.read(second) for row in records.column("value").to_pylist()]
            ledger.broker.pause()
            started = time.monotonic()
            try:
                with pytest.raises(KafkaConsumerError, match=r"sent nothing for|imed out") as caught:
                    list(reader.read(first))
            finally:
                ledger.broker.resume()
            waited = time.monotonic() - started
            after = [row for records in reader.read(first) for row in records.column("value").to_pylist()]

        assert (before, after) == (numbered(5, 5), numbered(5))
        assert (caught.value.type, caught.value.recoverable, caught.value.is_outage) == (
            ErrorType.KAFKA_CONSUMER,
            True,
            True,
        )
        assert waited < 6

    def test_a_broker_that_was_killed_has_kept_what_was_planned(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, numbered(10))
        ledger.plan(5)
        ledger.broker.kill()
        try:
            ledger.sent = {"socket.timeout.ms": 1000}
            with (
                closing(ledger.source()) as source,
                pytest.raises(KafkaConsumerError, match=r"refused|transport|imed out"),
            ):
                source.check()
        finally:
            ledger.broker.start()

        ledger.sent = {}
        assert ledger.values() == numbered(10)


class TestConnections:
    def test_sasl_settings_are_passed_through(self, ledger: Ledger) -> None:
        put(ledger.broker, ledger.topic, numbered(3))
        ledger.sent = by_sasl(ledger.broker)

        ledger.plan()

        assert ledger.values() == numbered(3)

    def test_a_wrong_password_is_refused_for_good_and_not_repeated(self, ledger: Ledger) -> None:
        wrong = {**by_sasl(ledger.broker), "sasl.password": "hunter2"}
        source = KafkaSource(pipeline(ledger.topic), connection_to(ledger.broker, **wrong))

        with closing(source), pytest.raises(KafkaConsumerError, match=r"(?i)authentication") as caught:
            source.check()

        assert not caught.value.recoverable
        assert "hunter2" not in str(caught.value)


def _delete_before(ledger: Ledger, offset: int) -> None:
    from confluent_kafka import TopicPartition

    admin = ledger.broker.admin()
    for deleted in admin.delete_records([TopicPartition(ledger.topic, 0, offset)]).values():
        deleted.result(30)


def _until_compacted(ledger: Ledger) -> None:
    """Wait until the cleaner has been there; the newest segment is never cleaned, so it is given new ones."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.2)
        put(ledger.broker, ledger.topic, [b"last"], key=b"same")
        probe = Ledger(ledger.broker, ledger.topic)
        probe.plan()
        if len(probe.values()) < 5:
            return
    raise AssertionError("the topic was not compacted in a minute")
