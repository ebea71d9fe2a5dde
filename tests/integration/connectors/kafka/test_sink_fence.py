"""The kafka sink's fence with a real broker: races with lanes, open transactions, and compaction."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from airflow_provider_ckpt.connectors.kafka import partition_claim as lane_module
from airflow_provider_ckpt.connectors.kafka.producers import TransactionalProducer, write_records
from airflow_provider_ckpt.connectors.kafka.receipts import UsedId, id_key, receipt_key, transactional_id
from airflow_provider_ckpt.connectors.kafka.receipts_reader import ReceiptsReader
from airflow_provider_ckpt.connectors.kafka.writer import KafkaWriter
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import ErrorType, FencedError
from airflow_provider_ckpt.core.wave_messages import Outcome
from airflow_provider_ckpt.testing.sink_harness import LEDGER, Run, content, ids, task
from tests.integration.connectors.kafka.kafka_sink_support import TopicHarness, stored
from tests.services.kafka import KafkaBroker

STEPS: dict[str, tuple[Any, str]] = {
    "notes its transactional id": (lane_module, "write_records"),
    "initialises it": (TransactionalProducer, "__init__"),
    "reads receipts behind that": (ReceiptsReader, "read_to"),
    "has compared epochs": (lane_module, "refuse_unless_current"),
    "begins its transaction": (KafkaWriter, "_transaction"),
    "commits": (TransactionalProducer, "commit"),
}
"""Steps of a lane for its first batch, and the place of each."""


@pytest.fixture
def harness(kafka_broker: KafkaBroker) -> TopicHarness:
    return TopicHarness(kafka_broker)


class Lane(threading.Thread):
    """Delivers one batch in a thread of its own; keeps what came of it."""

    def __init__(self, run: Run, seq: int = 0) -> None:
        super().__init__(name="lane", daemon=True)
        self._run_, self._seq = run, seq
        self.outcome: Outcome | None = None
        self.raised: Exception | None = None

    def run(self) -> None:
        try:
            self.outcome = self._run_.send(task(self._seq), content(self._seq))
        except FencedError as error:
            self.raised = error

    def ended(self) -> None:
        self.join(30)
        assert not self.is_alive()


class Gate:
    """Holds a lane's thread before a step."""

    def __init__(self, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        step = getattr(owner, name)

        def held(*arguments: Any, **named: Any) -> Any:
            if threading.current_thread().name == "lane" and not self.open.is_set():
                self.reached.set()
                assert self.open.wait(60)
            return step(*arguments, **named)

        patch.setattr(owner, name, held)

    def wait(self) -> None:
        assert self.reached.wait(30)


@contextmanager
def open_transaction(harness: TopicHarness, partition: str, *, epoch: int = 1) -> Iterator[TransactionalProducer]:
    """A lane's transaction that has written a row and its receipt, and ends no more by itself."""
    context = harness.own(SinkContext(LEDGER, "orders", epoch))
    topic = harness.receipts_topic()
    write_records(harness.connection, topic, [(id_key(LEDGER, UsedId(epoch, partition)), b"{}")])
    with closing(
        TransactionalProducer(harness.connection, transactional_id(context, partition), topic)
    ) as transactions:
        producer = transactions.producer
        producer.begin_transaction()
        producer.produce(harness.topic, b'{"id":666}')
        producer.produce(topic, b"null", receipt_key(LEDGER, task(0, partition=partition).key), 0)
        transactions.flush([])
        yield transactions


class TestRaces:
    @pytest.mark.parametrize("step", STEPS)
    def test_a_lane_that_a_fence_overtakes_writes_nothing(
        self, harness: TopicHarness, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        with Run(harness, 1) as old, Run(harness, 2) as new:
            old.take_over()
            gate = Gate(monkeypatch, *STEPS[step])
            lane = Lane(old)
            lane.start()
            gate.wait()

            new.take_over()
            receipts = new.receipts()
            gate.open.set()
            lane.ended()

            assert isinstance(lane.raised, FencedError)
            assert (receipts, new.receipts(), harness.target()) == ([], [], [])
            assert new.send(task(0, attempt=2), content(0)).outcome is AttemptOutcome.DELIVERED
            assert harness.target() == ids(0)

    def test_a_lane_that_was_done_before_the_fence_is_found_after_it(self, harness: TopicHarness) -> None:
        with Run(harness, 1) as old, Run(harness, 2) as new:
            old.take_over().send(task(0), content(0))
            new.take_over()

            assert [receipt.key.seq for receipt in new.receipts()] == [0]
            assert new.send(task(0, attempt=2), content(0)).receipt_existed
            assert harness.target() == ids(0)

    def test_a_run_whose_record_comes_late_does_not_lower_the_fence(
        self, harness: TopicHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from airflow_provider_ckpt.connectors.kafka import fence as fence_module

        gate = Gate(monkeypatch, fence_module, "write_records")
        raised: list[Exception] = []

        def fence() -> None:
            try:
                slow.sink.fence(1)
            except FencedError as error:
                raised.append(error)

        with Run(harness, 1) as slow, Run(harness, 2) as fast:
            slow.sink.check()
            slow.sink.create_bookkeeping()
            thread = threading.Thread(target=fence, name="lane", daemon=True)
            thread.start()
            gate.wait()
            fast.take_over()
            gate.open.set()
            thread.join(30)

            assert len(raised) == 1
            assert fast.sink.claims().epoch == 2
            assert fast.send(task(0), content(0)).outcome is AttemptOutcome.DELIVERED
            with pytest.raises(FencedError):
                slow.send(task(1), content(1))

    def test_of_two_lanes_with_the_same_batch_the_later_one_delivers_it(
        self, harness: TopicHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with Run(harness, 1) as one, Run(harness, 1) as twin:
            one.take_over()
            gate = Gate(monkeypatch, TransactionalProducer, "commit")
            lane = Lane(one)
            lane.start()
            gate.wait()

            outcome = twin.send(task(0), content(0))
            gate.open.set()
            lane.ended()

            assert outcome.outcome is AttemptOutcome.DELIVERED
            assert lane.outcome is not None
            assert lane.outcome.error is not None
            assert lane.outcome.error.type is ErrorType.KAFKA_PRODUCER
            assert lane.outcome.error.recoverable
            assert not lane.outcome.error.is_outage
            assert harness.target() == ids(0)


class TestOpenTransactions:
    def test_the_fence_ends_a_dead_lane_s(self, harness: TopicHarness) -> None:
        with Run(harness, 1) as old, Run(harness, 2) as new:
            old.take_over()
            with open_transaction(harness, "main") as dead:
                started = time.monotonic()
                new.take_over()
                receipts = new.receipts()
                seconds = time.monotonic() - started

                with pytest.raises(Exception, match="fenced"):
                    dead.commit()
            assert seconds < 5  # its own timeout is twice that
            assert (receipts, new.receipts(), harness.target()) == ([], [], [])

    def test_a_neighbour_s_does_not_hide_a_receipt_from_a_lane(self, harness: TopicHarness) -> None:
        with Run(harness, 1) as one, Run(harness, 1) as twin:
            one.take_over().send(task(0), content(0))
            with open_transaction(harness, "neighbour") as neighbour:
                one.send(task(1), content(1))
                lane = Lane(twin, 1)
                lane.start()
                lane.join(1)
                waited = lane.is_alive()
                neighbour.abort()
                lane.ended()

            assert waited
            assert lane.outcome is not None
            assert lane.outcome.receipt_existed
            assert harness.target() == ids(0, 1)

    def test_who_reads_receipts_waits_for_one(self, harness: TopicHarness) -> None:
        with Run(harness, 1) as run:
            run.take_over()
            with open_transaction(harness, "main") as lane:
                threading.Timer(1, lane.abort).start()

                assert run.receipts() == []

    def test_one_that_its_producer_left_ends_with_its_timeout(self, harness: TopicHarness) -> None:
        harness.extra |= {"transaction.timeout.ms": 5000, "socket.timeout.ms": 5000}
        with Run(harness, 1) as run:
            run.take_over()
            with open_transaction(harness, "main"):
                started = time.monotonic()

                assert run.receipts() == []
                assert time.monotonic() - started > 0.5


class TestRecords:
    def test_a_fence_leaves_no_more_behind_than_it_needs(self, harness: TopicHarness) -> None:
        with Run(harness, 1) as old, Run(harness, 4) as new:
            old.take_over().send(task(0), content(0))
            old.send(task(0, partition="other"), content(1))
            new.take_over()
            new.send(task(1), content(2))

            books = harness.books(LEDGER)
            assert books.epochs == {LEDGER: {4}}
            assert books.ids == {UsedId(4, "main")}
            assert len(books.receipts) == 3

    def test_compaction_takes_nothing_that_counts(self, harness: TopicHarness) -> None:
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        eager = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "0"}
        topic = harness.receipts_topic()
        for epoch in range(1, 6):
            with Run(harness, epoch) as run:
                run.take_over().send(task(epoch), content(epoch))
        before = len(stored(harness.broker, topic))
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in eager.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin = harness.broker.admin()
        admin.incremental_alter_configs([resource])[resource].result()
        deadline = time.monotonic() + 60
        with Run(harness, 6) as run:
            run.take_over().send(task(100), content(100))
            while len(stored(harness.broker, topic)) > before - 8:
                assert time.monotonic() < deadline, "the broker did not compact"
                time.sleep(0.2)
                run.send(task(100), content(100))

            assert [receipt.key.seq for receipt in run.receipts()] == [1, 2, 3, 4, 5, 100]
            assert run.sink.claims().epoch == 6
        with Run(harness, 7) as run:
            assert run.take_over().send(task(3, attempt=2), content(3)).receipt_existed
            assert harness.target() == ids(1, 2, 3, 4, 5, 100)
