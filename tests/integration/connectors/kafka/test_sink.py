"""The kafka sink with a real broker: messages for rows, records that a topic refuses, outages, and refusals."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ckpt.connectors.batch_content import BatchContent, DeadLetter
from airflow_provider_ckpt.connectors.kafka.dead_letters import DEAD_LETTER_HEADER
from airflow_provider_ckpt.connectors.kafka.producers import TransactionalProducer
from airflow_provider_ckpt.connectors.kafka.receipts import receipts_topic
from airflow_provider_ckpt.connectors.kafka.sink import KafkaSink
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, Sink, SinkContext
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import ConfigError, ErrorInfo, ErrorType, SinkError
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.testing.sink_harness import LEDGER, Run, content, dead_letter, ids, task
from tests.integration.connectors.kafka.kafka_sink_support import TopicHarness, stored
from tests.integration.connectors.kafka.kafka_support import connection_to
from tests.integration.connectors.kafka.test_sink_fence import Gate, Lane
from tests.services.kafka import KafkaBroker

CONTEXT = SinkContext(LEDGER, "orders", 1)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def harness(kafka_broker: KafkaBroker) -> TopicHarness:
    return TopicHarness(kafka_broker)


def rows(**columns: Any) -> BatchContent:
    """A batch of rows at positions 0, 1, 2 and so on."""
    size = len(next(iter(columns.values())))
    table = pa.table({ROW_NUMBER: pa.array(range(size), pa.int64()), **columns})

    return BatchContent(table, [], size, 0)


class TestMessages:
    def test_a_copy_is_the_same_in_every_part(self, kafka_broker: KafkaBroker) -> None:
        harness = TopicHarness(kafka_broker, config={"retention.ms": "-1"})
        headers: list[Any] = [[("a", b"1"), ("a", None), ("b", b"\xff")], None, []]
        batch = rows(
            key=pa.array([b"k\x00", None, b"gone"], pa.binary()),
            value=pa.array([b"\xff\x00", b"", None], pa.binary()),
            headers=pa.array([h and [{"key": n, "value": v} for n, v in h] for h in headers], HEADERS),
            timestamp=pa.array([1_700_000_000_123_000, 1_000, 1_700_000_000_124_000], pa.timestamp("us", "UTC")),
        )
        with Run(harness, 1) as run:
            assert run.take_over().send(task(0), batch).outcome is AttemptOutcome.DELIVERED

        found = sorted(stored(harness.broker, harness.topic), key=lambda record: record.timestamp)
        assert [(r.key, r.value, r.headers, r.timestamp) for r in found] == [
            (None, b"", [], 1),
            (b"k\x00", b"\xff\x00", [("a", b"1"), ("a", None), ("b", b"\xff")], 1_700_000_000_123),
            (b"gone", None, [], 1_700_000_000_124),
        ]

    def test_the_order_of_a_key_is_the_order_of_the_rows(self, harness: TopicHarness) -> None:
        keys = [b"%d" % (number % 7) for number in range(5000)]
        values = [b"%d" % number for number in range(5000)]
        with Run(harness, 1) as run:
            run.take_over().send(task(0), rows(key=pa.array(keys), value=pa.array(values)))

        found: dict[bytes | None, list[int]] = {}
        for record in stored(harness.broker, harness.topic):
            found.setdefault(record.key, []).append(int(record.value or b""))
        assert all(numbers == sorted(numbers) for numbers in found.values())
        assert sum(map(len, found.values())) == 5000

    def test_a_row_is_one_json_object(self, harness: TopicHarness) -> None:
        harness.sink_settings["key"] = ["id"]
        with Run(harness, 1) as run:
            run.take_over().send(task(0), rows(id=pa.array([7, None]), name=pa.array(['a"b', None])))

        found = {record.key: json.loads(record.value or b"") for record in stored(harness.broker, harness.topic)}
        assert found == {b"7": {"id": 7, "name": 'a"b'}, None: {"id": None, "name": None}}

    def test_a_row_may_say_which_partition_it_goes_to(self, harness: TopicHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over().send(task(0), rows(value=pa.array(["a", "b", "c"]), partition=pa.array([1, 0, 1])))

        assert [(r.partition, r.value) for r in stored(harness.broker, harness.topic)] == [
            (0, b"b"),
            (1, b"a"),
            (1, b"c"),
        ]

    def test_rows_that_only_look_like_messages_are_refused(self, harness: TopicHarness) -> None:
        with closing(harness.sink(CONTEXT)) as sink:
            sink.check_columns([("id", "bigint"), ("value", "int")])
            sink.check_columns(
                [("key", "binary"), ("value", "string"), ("headers", "array<struct<key:string,value:binary>>")]
            )
            with pytest.raises(ConfigError, match="value int cannot be part of one"):
                sink.check_columns([("key", "binary"), ("value", "int")])
        harness.sink_settings["key"] = ["nr"]
        with closing(harness.sink(CONTEXT)) as sink, pytest.raises(ConfigError, match="no column nr"):
            sink.check_columns([("id", "bigint")])


class TestDeadLetters:
    def test_they_say_what_happened(self, harness: TopicHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over().send(task(3, attempt=2), content(3, rejected=1))

        (found,) = stored(harness.broker, harness.letters_topic)
        assert (found.key, found.value) == (b"k\x00", dead_letter(30).value)
        assert found.header["source-file"] == "a\x00b"
        said = json.loads(found.header[DEAD_LETTER_HEADER])
        assert len(said.pop("seal")) == 64
        assert said == {
            "ledger": CONTEXT.ledger,
            "pipeline": harness.own(CONTEXT).pipeline,
            "batch": [1, "main", 3],
            "attempt": 2,
            "epoch": 1,
            "position": 30,
            "error_type": "MessageDeserialization",
            "error": "not JSON: \x00",
            "sqlstate": None,
            "own_headers": 0,
            "number": 0,
        }

    def test_they_carry_the_record_s_own_headers_and_give_them_back(self, harness: TopicHarness) -> None:
        said, own = {"x-streamforge-error": "no"}, [("own", b"\xff"), ("own", None)]
        bad = DeadLetter(0, None, None, ErrorInfo(ErrorType.PROCESSING, "no"), said, own)
        batch = rows(id=pa.array([1]))
        batch.dead_letters, batch.read = [bad], 2
        with Run(harness, 1) as run:
            run.take_over().send(task(0), batch)
            (kept,) = run.sink.dead_letters([AttemptKey(task(0).key, 1, 1)])

        (found,) = stored(harness.broker, harness.letters_topic)
        assert found.headers[:2] == own
        assert found.header["x-streamforge-error"] == "no"
        assert (kept.dead_letter.headers, list(kept.dead_letter.original_headers)) == (said, own)
        assert kept.dead_letter == replace(bad, original_headers=own)

    def test_one_that_its_topic_refuses_halts_the_batch(self, kafka_broker: KafkaBroker) -> None:
        harness = TopicHarness(kafka_broker, dead_letter_queue={"max_dlq_retries": 1})
        kafka_broker.new_topic(1, {"max.message.bytes": "1000"}, name=harness.letters_topic)
        batch = content(0, rejected=1)
        batch.dead_letters = [DeadLetter(0, None, b"x" * 5000, ErrorInfo(ErrorType.PROCESSING, "no"))]
        with Run(harness, 1) as run:
            started = time.monotonic()
            outcome = run.take_over().send(task(0), batch)

            assert outcome.outcome is AttemptOutcome.FAILED
            assert outcome.error is not None
            assert outcome.error.type is ErrorType.DEAD_LETTER_QUEUE
            assert "max.message.bytes" in outcome.error.message
            assert time.monotonic() - started > 1
            assert (harness.target(), run.receipts()) == ([], [])


class TestBadRecords:
    def deliver(self, harness: TopicHarness, batch: BatchContent) -> Counts:
        with Run(harness, 1) as run:
            outcome = run.take_over().send(task(0), batch)

            assert outcome.error is None
            (receipt,) = run.receipts()
            assert receipt == outcome.receipt
            assert outcome.dead_letters == ({"Serialization": 1} if receipt.counts.dead_lettered else {})
            again = run.send(task(1), content(1))
            assert again.outcome is AttemptOutcome.DELIVERED
            return receipt.counts

    def test_one_that_is_too_large_costs_itself(self, kafka_broker: KafkaBroker) -> None:
        harness = TopicHarness(kafka_broker, 1, {"max.message.bytes": "2000"})
        values = [b"a" * 100, b"b" * 5000, *[b"c" * 100] * 50]

        counts = self.deliver(harness, rows(value=pa.array(values)))

        assert counts == Counts(52, 51, 0, 1)
        assert [r.value for r in stored(kafka_broker, harness.topic)][:51] == [values[0], *values[2:]]
        (found,) = stored(kafka_broker, harness.letters_topic)
        assert found.value == dead_letter(1).value
        assert "too large" in json.loads(found.header[DEAD_LETTER_HEADER])["error"]

    def test_the_broker_judges_by_what_a_large_one_compresses_to(self, kafka_broker: KafkaBroker) -> None:
        harness = TopicHarness(kafka_broker, 1, {"max.message.bytes": "2000"})
        harness.extra["compression.type"] = "lz4"

        assert self.deliver(harness, rows(value=pa.array([b"b" * 5000, b"c"]))) == Counts(2, 2, 0, 0)

    def test_one_that_is_of_the_future_costs_itself(self, harness: TopicHarness) -> None:
        now = int(time.time() * 1000)
        times = pa.array([now, now + 30 * 86_400_000, None], pa.int64())

        counts = self.deliver(harness, rows(value=pa.array(["a", "b", "c"]), timestamp=times))

        assert counts == Counts(3, 2, 0, 1)

    def test_one_without_a_key_costs_itself_where_the_topic_is_compacted(self, kafka_broker: KafkaBroker) -> None:
        harness = TopicHarness(kafka_broker, 1, {"cleanup.policy": "compact"})
        with Run(harness, 1) as run:
            batch = rows(key=pa.array([b"a", None]), value=pa.array([b"1", b"2"]))
            outcome = run.take_over().send(task(0), batch)

        assert outcome.receipt is not None
        assert outcome.receipt.counts == Counts(2, 1, 0, 1)

    def test_one_for_a_partition_that_is_not_there_costs_itself(self, harness: TopicHarness) -> None:
        counts = self.deliver(harness, rows(value=pa.array(["a", "b"]), partition=pa.array([0, 9])))

        assert counts == Counts(2, 1, 0, 1)

    def test_it_halts_the_batch_where_there_are_no_dead_letters(self, kafka_broker: KafkaBroker) -> None:
        harness = TopicHarness(kafka_broker, 1, {"max.message.bytes": "2000"}, dead_letter_queue={"enabled": False})
        with Run(harness, 1) as run:
            outcome = run.take_over().send(task(0), rows(value=pa.array([b"a", b"b" * 5000])))

            assert outcome.error is not None
            assert outcome.error.type is ErrorType.DEAD_LETTER_QUEUE
            assert "dead_letter_queue.enabled is false" in outcome.error.message
            assert (stored(kafka_broker, harness.topic), run.receipts()) == ([], [])


class TestOutages:
    @pytest.fixture
    def harness(self, kafka_broker: KafkaBroker) -> TopicHarness:
        harness = TopicHarness(kafka_broker)
        # A broker that has just restarted needs more than two seconds for an answer on a busy machine.
        harness.extra |= {"transaction.timeout.ms": 15_000, "socket.timeout.ms": 15_000}
        return harness

    def test_a_broker_killed_in_mid_transaction_is_the_sink_as_a_whole(
        self, harness: TopicHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker = harness.broker
        with Run(harness, 1) as old:
            old.take_over().send(task(0), content(0))
            gate = Gate(monkeypatch, TransactionalProducer, "commit")
            lane = Lane(old, 1)
            lane.start()
            gate.wait()
            broker.kill()
            try:
                gate.open.set()
                lane.ended()
            finally:
                broker.start()

        assert lane.outcome is not None
        assert lane.outcome.error is not None
        assert lane.outcome.error.is_outage
        assert lane.outcome.error.recoverable
        with Run(harness, 2) as new:
            new.take_over()
            found = {receipt.key.seq for receipt in new.receipts()}
            assert new.send(task(1, attempt=2), content(1)).receipt_existed is (1 in found)
            assert harness.target() == ids(0, 1)

    def test_a_broker_that_holds_still_during_a_commit_leaves_it_unknown_and_never_doubled(
        self, harness: TopicHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broker = harness.broker
        with Run(harness, 1) as run:
            run.take_over().send(task(0), content(0))
            gate = Gate(monkeypatch, TransactionalProducer, "commit")
            lane = Lane(run, 1)
            lane.start()
            gate.wait()
            broker.pause()
            try:
                gate.open.set()
                lane.ended()
            finally:
                broker.resume()
            assert lane.outcome is not None
            assert lane.outcome.outcome is AttemptOutcome.FAILED

            again = lane.outcome
            while again.outcome is AttemptOutcome.FAILED:
                assert again.error is not None
                assert again.error.recoverable
                again = run.send(task(1, attempt=again.attempt + 1), content(1))

            assert harness.target() == ids(0, 1)


class TestRefusals:
    def check(self, harness: TopicHarness) -> str:
        def prepare(sink: Sink) -> None:
            sink.check()
            sink.create_bookkeeping()

        with closing(harness.sink(CONTEXT)) as sink, pytest.raises(ConfigError) as caught:
            prepare(sink)
        assert caught.value.hint
        return str(caught.value)

    def test_a_missing_target(self, harness: TopicHarness) -> None:
        harness.topic = "nowhere"

        assert "target topic nowhere does not exist" in self.check(harness)

    def test_a_receipts_topic_that_forgets(self, harness: TopicHarness) -> None:
        harness.broker.new_topic(1, {"cleanup.policy": "compact,delete"}, name=harness.receipts_topic())

        said = self.check(harness)

        assert "cleanup.policy is compact,delete, not compact" in said
        assert "kafka-configs.sh --alter" in said

    def test_a_receipts_topic_of_several_partitions(self, harness: TopicHarness) -> None:
        harness.broker.new_topic(2, {"cleanup.policy": "compact"}, name=harness.receipts_topic())

        assert "has 2 partitions" in self.check(harness)

    def test_a_dead_letter_topic_that_forgets(self, harness: TopicHarness) -> None:
        harness.broker.new_topic(1, {"cleanup.policy": "compact"}, name=harness.letters_topic)

        assert "is compacted" in self.check(harness)

    def test_one_topic_for_two_things(self, harness: TopicHarness) -> None:
        harness.letters_topic = harness.topic

        assert "sink.topic and dead_letter_queue.topic are the same topic" in self.check(harness)

    def test_what_it_makes_is_as_it_must_be(self, harness: TopicHarness) -> None:
        with closing(harness.sink(CONTEXT)) as sink:
            sink.create_bookkeeping()
            sink.create_bookkeeping()

        topics = harness.broker.admin().list_topics(timeout=10).topics
        assert len(topics[harness.receipts_topic()].partitions) == 1
        assert len(topics[harness.letters_topic].partitions) == 1

    def test_pipelines_whose_names_differ_in_dots_and_underscores_alone_do_not_meet(
        self, harness: TopicHarness
    ) -> None:
        names = ["a.b", "a_b", "a-b", "a-db", "a.-b", "a..b"]
        for number, name in enumerate(names):
            with Run(harness, 1, pipeline=name) as run:
                assert run.take_over().send(task(number), content(number)).outcome is AttemptOutcome.DELIVERED

        assert len({harness.receipts_topic(name) for name in names}) == len(names)
        for number, name in enumerate(names):
            with Run(harness, 2, pipeline=name) as run:
                assert [receipt.key.seq for receipt in run.take_over().receipts()] == [number]

    def test_a_receipts_topic_that_somebody_else_writes_to(self, harness: TopicHarness) -> None:
        with Run(harness, 1) as run:
            run.sink.create_bookkeeping()
            to = harness.broker.admin()
            assert to is not None
            from tests.integration.connectors.kafka.kafka_support import put

            put(harness.broker, harness.receipts_topic(), [b"hello"], key=b"hello")

            with pytest.raises(SinkError, match="is not a receipt"):
                run.sink.fence(1)

    def test_an_unreachable_broker_is_the_sink_as_a_whole(self, harness: TopicHarness) -> None:
        own = harness.own(CONTEXT)
        nobody = connection_to(harness.broker, **{"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": 1000})
        with closing(KafkaSink(harness.pipeline(own), nobody, own)) as sink, pytest.raises(SinkError) as caught:
            sink.check()

        assert caught.value.is_outage
        assert caught.value.recoverable
        assert receipts_topic(own.pipeline) == harness.receipts_topic()
