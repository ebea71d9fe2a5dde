"""Runs with a Kafka source that has open transactions, was created again, or lost a part of its log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.core.action import Action, ActionKind
from airflow_provider_ckpt.core.errors import SourceError
from airflow_provider_ckpt.core.lag import lag_positions
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.observe.lag import lag
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.run.attach_or_reacquire import attach_or_reacquire
from airflow_provider_ckpt.replication.setup import PipelineContext
from tests.integration.connectors.kafka.kafka_support import CONNECTION, connection_to, numbered, put, transaction
from tests.services.kafka import KafkaBroker
from tests.services.ledgers import new_ledger_file

if TYPE_CHECKING:
    from airflow_provider_ckpt.replication.run.engine_protocol import Engine


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """An empty ledger."""
    url = new_ledger_file(tmp_path / "ledger.db")
    with Ledger.open(url) as ledger:
        yield ledger


@pytest.fixture
def setup(kafka_broker: KafkaBroker, ledger: Ledger, tmp_path: Path) -> PipelineContext:
    """A pipeline from a topic of one partition to files."""
    topic = kafka_broker.new_topic()
    pipeline = build(
        {
            "name": "events",
            "source": {"type": "kafka", "connection": CONNECTION, "topic": topic},
            "sink": {"type": "files", "path": str(tmp_path / "target"), "format": "jsonl"},
        }
    )
    return PipelineContext(pipeline, ledger, lambda _: connection_to(kafka_broker), "test:one")


def _topic(setup: PipelineContext) -> str:
    return str(setup.pipeline.source.place)


def test_messages_behind_a_transaction_that_hangs_are_lag_and_told(
    kafka_broker: KafkaBroker, setup: PipelineContext, caplog: pytest.LogCaptureFixture
) -> None:
    topic = _topic(setup)
    with transaction(kafka_broker, topic, [b"hangs"]) as hanging:
        put(kafka_broker, topic, numbered(499))

        with caplog.at_level(logging.WARNING), acquire(setup) as run:
            assert run.plan() == 0
            summary = run.finish()

        assert summary.lag == {f"{topic}-0": 500}
        assert lag_positions(lag(setup)) == {f"{topic}-0": 500}
        (said,) = [record.getMessage() for record in caplog.records if "still open" in record.getMessage()]
        assert f"500 messages of partition 0 of topic {topic}, from offset 0 on" in said
        assert "whose first message is of 20" in said
        hanging.abort_transaction(30)

    with acquire(setup) as run:
        assert run.plan() > 0
        assert run.finish().lag == {f"{topic}-0": 501}


def test_a_topic_created_anew_between_two_tasks_of_a_run_is_refused(
    kafka_broker: KafkaBroker, setup: PipelineContext
) -> None:
    topic = _topic(setup)
    put(kafka_broker, topic, numbered(10))
    with acquire(setup) as run:
        run.plan()
        epoch = run.epoch
    kafka_broker.delete_topic(topic)
    kafka_broker.new_topic(name=topic)
    put(kafka_broker, topic, numbered(10, 100))

    with (
        attach_or_reacquire(setup, epoch) as carried,
        pytest.raises(SourceError, match="has changed since this pipeline was started"),
    ):
        carried.execute(cast("Engine", None), rounds=False)


def test_a_rewind_lets_a_log_that_lost_messages_be_read_on(tmp_path: Path, ledger: Ledger) -> None:
    with KafkaBroker() as broker:
        topic = broker.new_topic()
        pipeline = build(
            {
                "name": "events",
                "source": {"type": "kafka", "connection": CONNECTION, "topic": topic},
                "sink": {"type": "files", "path": str(tmp_path / "target"), "format": "jsonl"},
            }
        )
        setup = PipelineContext(pipeline, ledger, lambda _: connection_to(broker), "test:one")
        put(broker, topic, numbered(10))
        with acquire(setup) as run:
            run.plan()
            run.finish()
        broker.stop()
        broker.lose_log(topic)
        broker.start()
        put(broker, topic, numbered(30, 100))

        with acquire(setup) as run:
            with pytest.raises(SourceError, match=r"lost records .* --to-position 0 "):
                run.plan()
            rewind = Action(ActionKind.REWIND, positions={f"{topic}-0": 0})
            ledger.action("events", rewind, actor="ann", reason="the disk was lost")
            run.finish()
        with acquire(setup) as run:
            run.plan()
            planned = [batch.range for batch in run.planned()]

        assert (planned[0].start, planned[-1].end) == (0, 30)
