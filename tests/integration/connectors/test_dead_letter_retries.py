"""A store that refuses dead letters is tried again after a second; the same for every kind of store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from airflow_provider_ckpt.connectors import dead_letter_retries
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.registry import open_sink, open_writer
from airflow_provider_ckpt.connectors.sink_protocol import Sink, SinkContext, Writer
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.core.errors import DeadLetterQueueError, ErrorInfo, ErrorType
from airflow_provider_ckpt.testing.sink_harness import Run, SinkHarness, content, ids, task
from tests.integration.connectors.files.test_sink_conformance import FilesHarness
from tests.integration.connectors.kafka.kafka_sink_support import TopicHarness
from tests.integration.connectors.kafka.kafka_support import connection_to
from tests.integration.connectors.postgres.postgres_support import connection, pipeline
from tests.integration.connectors.postgres.test_sink import TargetHarness
from tests.services.kafka import KafkaBroker
from tests.services.tables import execute


@dataclass
class Store:
    """A store of dead letters, whose sink is checked and fenced.

    :param harness: the sink
    :param spoil: makes the store refuse dead letters
    :param mend: takes that back
    """

    harness: SinkHarness
    spoil: Callable[[], object]
    mend: Callable[[], object]


class Elsewhere(TargetHarness):
    """A table whose dead letters go into a store of their own."""

    def __init__(self, dsn: str, queue: dict[str, Any], stored: Connection | None) -> None:
        super().__init__(dsn)
        self._pipeline = pipeline(dead_letter_queue=queue)
        self._stored = stored

    def sink(self, context: SinkContext) -> Sink:
        return open_sink(self._pipeline, connection(self.dsn), context, self._stored)

    def writer(self, context: SinkContext) -> Writer:
        return open_writer(self._pipeline, connection(self.dsn), context, self._stored)


def in_the_way(directory: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    def spoil() -> None:
        directory.parent.mkdir(exist_ok=True)
        directory.write_text("in the way")

    return spoil, directory.unlink


def constrained(dsn: str, table: str) -> tuple[Callable[[], object], Callable[[], object]]:
    never = f"ALTER TABLE {table} ADD CONSTRAINT never CHECK (position < 0)"
    return lambda: execute(dsn, never), lambda: execute(dsn, f"ALTER TABLE {table} DROP CONSTRAINT never")


def limited(broker: KafkaBroker, topic: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """Let a topic take no message of a dead letter's size, only the end of a transaction; or any again."""

    def limit(size: int) -> None:
        entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = broker.admin()  # the calls end with it
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(10)

    return lambda: limit(200), lambda: limit(1_000_000)


def with_files(_: pytest.FixtureRequest, path: Path) -> Store:
    return Store(FilesHarness(path / "out"), *in_the_way(path / "out.dead_letters"))


def with_postgres(request: pytest.FixtureRequest, _: Path) -> Store:
    dsn = request.getfixturevalue("postgres_database")
    return Store(TargetHarness(dsn), *constrained(dsn, "ckpt_sink_dead_letter"))


def with_kafka(request: pytest.FixtureRequest, _: Path) -> Store:
    harness = TopicHarness(request.getfixturevalue("kafka_broker"))
    return Store(harness, *limited(harness.broker, harness.letters_topic))


def files_elsewhere(request: pytest.FixtureRequest, path: Path) -> Store:
    queue = {"sink": "files", "path": str(path / "dead")}
    harness = Elsewhere(request.getfixturevalue("postgres_database"), queue, None)
    return Store(harness, *in_the_way(path / "dead" / "orders"))


def postgres_elsewhere(request: pytest.FixtureRequest, _: Path) -> Store:
    dsn = request.getfixturevalue("postgres_database")
    queue = {"sink": "postgres", "connection": "archive", "table": "dead"}
    harness = Elsewhere(dsn, queue, connection(dsn))
    return Store(harness, *constrained(dsn, "dead"))


def kafka_elsewhere(request: pytest.FixtureRequest, _: Path) -> Store:
    broker: KafkaBroker = request.getfixturevalue("kafka_broker")
    topic = f"dead-{broker.new_topic(1)}"
    queue = {"sink": "kafka", "connection": "stream", "topic": topic}
    harness = Elsewhere(request.getfixturevalue("postgres_database"), queue, connection_to(broker))
    return Store(harness, *limited(broker, topic))


STORES = [with_files, with_postgres, with_kafka, files_elsewhere, postgres_elsewhere, kafka_elsewhere]


@pytest.fixture(params=STORES, ids=lambda make: make.__name__)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    made: Store = request.param(request, tmp_path)
    return made


def pausing(monkeypatch: pytest.MonkeyPatch, store: Store, *, mended_in: int = 0) -> list[float]:
    """The pauses between tries, none of which takes time.

    :param mended_in: number of the pause, from 1, in which the store is mended
    """
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == mended_in:
            store.mend()

    monkeypatch.setattr(dead_letter_retries, "time", SimpleNamespace(sleep=sleep))
    return pauses


def test_one_that_takes_them_again_has_them_with_their_batch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = pausing(monkeypatch, store, mended_in=2)
    with Run(store.harness, 1) as run:
        run.take_over()
        store.spoil()

        outcome = run.send(task(0), content(0, rejected=1))

        assert (outcome.outcome, outcome.dead_letters) == (AttemptOutcome.DELIVERED, {"MessageDeserialization": 1})
        assert pauses == [1.0, 1.0]
        assert store.harness.target() == ids(0)[1:]
        kept = run.sink.dead_letters([AttemptKey(task(0).key, 1, 1)])
        assert [item.dead_letter.position for item in kept] == [0]


def test_one_that_refuses_them_four_times_halts_the_run_and_nothing_is_sent(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = pausing(monkeypatch, store)
    with Run(store.harness, 1) as run:
        run.take_over()
        store.spoil()

        error = failure(run)

        assert error.type is ErrorType.DEAD_LETTER_QUEUE
        assert "The batch's dead letters could not be stored, so nothing of it was sent." in error.message
        assert pauses == [1.0, 1.0, 1.0]
        store.mend()
        assert (store.harness.target(), run.receipts()) == ([], [])
        again = run.send(task(0, attempt=2), content(0, rejected=1))
        assert (again.outcome, again.receipt_existed) == (AttemptOutcome.DELIVERED, False)


def failure(run: Run) -> ErrorInfo:
    """Return the error of a batch with a dead letter, raised by the writer or returned in its outcome."""
    try:
        outcome = run.send(task(0), content(0, rejected=1))
    except DeadLetterQueueError as error:
        return error.info
    assert outcome.error is not None
    return outcome.error
