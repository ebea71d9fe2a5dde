"""StreamForge's seven failure scenarios and its three tests, under their names, with a real broker.

StreamForge commits an offset where this package settles a batch in the ledger; the sink's own transaction has committed
before that. Where StreamForge expects duplicates, a consumer of committed messages gets none here, since a run reads
the sink's receipts before it sends anything.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from airflow_provider_ckpt.connectors.dead_letter_retries import RETRY_SECONDS
from airflow_provider_ckpt.core.errors import CkptError, ErrorType, OffsetCommitError
from airflow_provider_ckpt.core.receipt import Counts
from airflow_provider_ckpt.core.wave_messages import Outcome, Wave
from airflow_provider_ckpt.engines.session import SessionEngine
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.engine_protocol import Check
from airflow_provider_ckpt.replication.run.replicate import replicate
from airflow_provider_ckpt.replication.run.summary import RunSummary
from tests.chaos.crash_points.driver_process import Driver, Part
from tests.chaos.crash_points.servers import Servers
from tests.integration.connectors.kafka.kafka_support import alter
from tests.integration.replication.copying import Copying, make_copying
from tests.services.ledgers import new_ledger_database
from tests.services.postgres import through
from tests.services.proxy import Break

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

BATCH = [b"%d" % number for number in range(100, 200)]
"""Messages 100 to 199, as in the document."""

SETTLING = b"settled"
"""In the statement by which a settlement enters the ledger's audit log, before its commit."""

COMMIT = b"COMMIT"

DECODED = {"decode": "json", "schema": "id bigint", "select": {"id": "id"}}

PRODUCE = rb"^....\x00\x00.*ckpt/"
"""A request to produce, whose kind is 0, under one of our transactional ids."""

Happening = Callable[[], object]


class Eventful(SessionEngine):
    """A warm Spark, where things happen before or after a wave.

    :param before: by the wave's number, from 1
    :param after: the same
    """

    def __init__(
        self, spark: SparkSession, before: Mapping[int, Happening], after: Mapping[int, Happening] | None = None
    ) -> None:
        super().__init__(spark)
        self._before, self._after = before, after or {}
        self.waves = 0

    def run(self, wave: Wave, check: Check) -> Sequence[Outcome]:
        """Work a wave off, amid what happens."""
        self.waves += 1
        self._before.get(self.waves, int)()
        outcomes = super().run(wave, check)
        self._after.get(self.waves, int)()
        return outcomes


@pytest.fixture
def copying(spark: SparkSession, servers: Servers) -> Iterator[Copying]:
    """A copy of a topic by batches of a hundred, with broker and ledger behind proxies; it gives up soon."""
    dsn = through(servers.books, new_ledger_database(servers.postgres))
    with make_copying(spark, servers.kafka, servers.postgres, ledger_dsn=dsn) as made:
        soon = made.patient(**{"message.timeout.ms": 700, "topic.metadata.propagation.max.ms": 500})
        yield soon.changed(commit_strategy={"commit_interval": len(BATCH)})
        servers.calm()


def stuck(servers: Servers) -> Happening:
    """Return an action that holds back a lane's next message: a transient failure of the sink as a whole."""
    return lambda: servers.stream.trap(PRODUCE, how=Break.HOLD)


def run(copying: Copying, before: Mapping[int, Happening], owner: str | None = None) -> RunSummary:
    """One run, amid what happens."""
    return replicate(copying.replication.setup(owner), Eventful(copying.replication.spark, before))


def settled_once(copying: Copying) -> None:
    """Each message is there once, in order, even for who reads uncommitted ones; and the checkpoint is past them."""
    assert copying.delivered() == BATCH
    assert copying.delivered("read_uncommitted") == BATCH
    assert copying.checkpoint == len(BATCH)
    assert copying.replication.ledger.audit(copying.pipeline)["ok"]


def test_scenario_1_produce_failure_transient(copying: Copying, servers: Servers) -> None:
    copying.put(BATCH, key=b"k")

    summary = run(copying, {1: stuck(servers)})

    assert (summary.records, summary.errors) == (Counts(100, 100, 0, 0), {"KafkaProducer": 1})
    assert (copying.delivered(), copying.checkpoint) == (BATCH, 100)


def test_scenario_2_produce_failure_exhausted(copying: Copying) -> None:
    """A message that is too large for the topic fails at every attempt and becomes a dead letter."""
    copying.put([b"small", b"x" * 5000, b"small too"], key=b"k")

    summary = run(copying, {1: lambda: alter(copying.broker, copying.target, {"max.message.bytes": "2000"})})
    copying.put([b"next"], key=b"k")
    after = copying.replication.run()

    assert (summary.records, after.records) == (Counts(3, 2, 0, 1), Counts(1, 1, 0, 0))
    assert copying.delivered() == [b"small", b"small too", b"next"]
    (dead_letter,) = copying.dead_letters()
    assert (dead_letter.key, dead_letter.value) == (b"k", b"x" * 5000)
    assert (dead_letter.header["x-ckpt-error-type"], dead_letter.header["x-ckpt-source-offset"]) == (
        "Serialization",
        "1",
    )
    assert "too large" in dead_letter.header["x-ckpt-error"]


def test_scenario_2_a_sink_that_takes_nothing_exhausts_no_message(copying: Copying, servers: Servers) -> None:
    """The document's full queue: an outage of the sink as a whole, which must not flood the dead letters."""
    copying.put(BATCH, key=b"k")

    with pytest.raises(CkptError) as failed:
        run(copying, dict.fromkeys((1, 2, 3), stuck(servers)))

    assert (failed.value.type, failed.value.is_outage) == (ErrorType.KAFKA_PRODUCER, True)
    assert (copying.delivered(), copying.dead_letters(), copying.checkpoint) == ([], [], 0)

    assert copying.replication.run().records == Counts(100, 100, 0, 0)
    assert copying.delivered() == BATCH


@pytest.mark.parametrize(
    ("texts", "how"),
    [((SETTLING,), Break.BEFORE), ((SETTLING, COMMIT), Break.BEFORE), ((SETTLING, COMMIT), Break.AFTER)],
    ids=["broken off inside", "the commit is lost", "the answer is lost"],
)
def test_scenario_3_commit_failure_transient(
    copying: Copying, servers: Servers, texts: tuple[bytes, ...], how: Break
) -> None:
    copying.put(BATCH, key=b"k")
    failed = servers.books.trap(*texts, how=how)

    copying.replication.run()

    assert failed.is_set()
    settled_once(copying)
    assert {receipt.attempt for receipt in copying.receipts()} == {1}


def test_scenario_4_commit_failure_exhausted(copying: Copying, servers: Servers) -> None:
    """The document expects messages 100 to 199 twice; here the next run finds their receipts."""
    copying.put(BATCH, key=b"k")
    failed = servers.books.trap(SETTLING, how=Break.BEFORE, refuse=True)

    with pytest.raises(OffsetCommitError, match="in 3 attempts"):
        run(copying, {}, "the consumer")
    servers.books.accept()
    assert failed.is_set()
    assert (copying.delivered(), copying.checkpoint) == (BATCH, 0)
    again = run(copying, {}, "the consumer")

    assert again.spark_started is False
    settled_once(copying)


def test_scenario_5_crash_after_produce_before_commit(copying: Copying, servers: Servers, tmp_path: Path) -> None:
    """The document expects messages 100 to 199 twice; here the next run finds their receipts."""
    copying.put(BATCH, key=b"k")
    log = tmp_path / "driver.log"
    with closing(Driver(log)) as driver:
        assert driver.wait(), log.read_text()
        about_to_commit = servers.books.trap(SETTLING, how=Break.HOLD)
        driver.give(copying.run_spec())
        assert about_to_commit.wait(60), log.read_text()
        assert driver.kill(Part.ALL)
    assert (copying.delivered(), copying.checkpoint) == (BATCH, 0)

    again = copying.replication.run()

    assert again.spark_started is False
    settled_once(copying)


def test_scenario_6_dlq_failure(copying: Copying) -> None:
    copying = copying.changed(transform=DECODED)
    copying.put([b'{"id": 1}', b"not valid json", b'{"id": 3}'])
    started = time.monotonic()

    with pytest.raises(CkptError) as halted:
        run(copying, {1: lambda: copying.broker.delete_topic(copying.dead_letter_topic)})

    assert time.monotonic() - started >= 3 * RETRY_SECONDS
    assert halted.value.type is ErrorType.DEAD_LETTER_QUEUE
    assert (copying.delivered(), copying.checkpoint) == ([], 0)
    copying.broker.new_topic(1, name=copying.dead_letter_topic)
    assert copying.replication.run().records == Counts(3, 2, 0, 1)
    # Rows without a key go to any partition.
    assert sorted(filter(None, copying.delivered())) == [b'{"id":1}', b'{"id":3}'], (
        "rows without a key go to any partition"
    )
    assert [dead_letter.value for dead_letter in copying.dead_letters()] == [b"not valid json"]


def test_scenario_7_rebalance_during_processing(copying: Copying) -> None:
    """The document expects messages twice; here the first run's transactions are refused once the second has begun."""
    late = {
        "checkpoint_after_ms": 60_000,
        "min_checkpoint_count": 1000,
    }  # the ledger's word is not what stops the first
    copying = copying.changed(commit_strategy={"commit_interval": 1, **late})
    copying.put(BATCH, key=b"k")
    revoked: list[ErrorType] = []

    def first() -> None:
        try:
            copying.replication.run()
        except CkptError as error:
            revoked.append(error.type)

    processing = threading.Thread(target=first)
    processing.start()
    until(lambda: len(copying.delivered()) >= 10)
    with acquire(copying.replication.setup("another consumer"), force=True) as second:
        second.plan()
        second.execute(SessionEngine(copying.replication.spark), rounds=True)
        second.finish()
    processing.join(60)

    assert revoked in ([ErrorType.FENCED], [ErrorType.STALE_EPOCH])
    assert {receipt.epoch for receipt in copying.receipts()} == {1, 2}
    assert (copying.delivered(), copying.checkpoint) == (BATCH, 100)
    assert copying.replication.ledger.audit(copying.pipeline)["ok"]


def test_at_least_once_with_produce_retry(copying: Copying, servers: Servers) -> None:
    copying.put([b"test"])

    run(copying, dict.fromkeys((1, 2), stuck(servers)))

    assert [receipt.attempt for receipt in copying.receipts()] == [3]
    assert copying.delivered() == [b"test"]


def test_bad_message_goes_to_dlq(copying: Copying) -> None:
    copying = copying.changed(transform=DECODED, dead_letter_queue={"header_prefix": "x-streamforge-"})
    copying.put([b"not valid json"], key=b"k")

    copying.replication.run()

    (dead_letter,) = copying.dead_letters()
    assert (dead_letter.key, dead_letter.value) == (b"k", b"not valid json")
    assert "x-streamforge-error" in dead_letter.header
    assert copying.delivered() == []


def test_commit_failure_causes_duplicate(copying: Copying, servers: Servers) -> None:
    """Two in the document, which commits an offset after it has produced; one here, where the receipt is with it."""
    copying = copying.changed(retry={"max_attempts": 1})
    copying.put(BATCH, key=b"k")
    servers.books.trap(SETTLING, how=Break.BEFORE)

    with pytest.raises(OffsetCommitError):
        copying.replication.run()
    copying.replication.run()

    settled_once(copying)


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for something."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
