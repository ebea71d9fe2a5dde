"""A run whose Kafka sink lost its receipts, or whose target topic was created again, sends nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.connectors.batch_content import BatchContent
from airflow_provider_ckpt.connectors.kafka.receipts import receipts_topic
from airflow_provider_ckpt.connectors.kafka.sink_topics import SinkTopicsClient
from airflow_provider_ckpt.connectors.kafka.writer import KafkaWriter
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER, SinkContext
from airflow_provider_ckpt.core.batch import AttemptOutcome
from airflow_provider_ckpt.core.errors import ConfigError, SinkChangedError
from airflow_provider_ckpt.core.wave_messages import BatchTask
from airflow_provider_ckpt.ledger.ledger import Ledger
from airflow_provider_ckpt.replication.run.acquire import acquire
from airflow_provider_ckpt.replication.setup import PipelineContext
from airflow_provider_ckpt.testing.lane_writer import LaneWriter, none_refused
from tests.integration.connectors.kafka.kafka_sink_support import stored
from tests.integration.connectors.kafka.kafka_support import CONNECTION, connection_to, numbered, put
from tests.services.kafka import KafkaBroker
from tests.services.ledgers import new_ledger_file


@pytest.fixture
def setup(kafka_broker: KafkaBroker, tmp_path: Path) -> Iterator[PipelineContext]:
    """A pipeline from topic to topic that has sent 20 messages, and died before it heard of it."""
    url = new_ledger_file(tmp_path / "ledger.db")
    source, target = kafka_broker.new_topic(), kafka_broker.new_topic()
    pipeline = build(
        {
            "name": f"copy-{target}",
            "source": {"type": "kafka", "connection": CONNECTION, "topic": source},
            "sink": {"type": "kafka", "connection": CONNECTION, "topic": target},
            "dead_letter_queue": {"topic": f"letters-{target}"},
            "delivery": "exactly_once",
        }
    )
    connection = connection_to(kafka_broker)
    put(kafka_broker, source, numbered(20))
    with Ledger.open(url) as ledger:
        setup = PipelineContext(pipeline, ledger, lambda _: connection, "test:one")
        with acquire(setup) as run:
            run.plan()
            (batch,) = run.planned()
            ledger.begin(run.lease, [batch.key], now=datetime.now(UTC), run="died")
            rows = pa.table({ROW_NUMBER: pa.array(range(20), pa.int64()), "value": pa.array(numbered(20))})
            context = SinkContext(setup.sink_id, pipeline.name, run.epoch)
            with closing(LaneWriter(KafkaWriter(pipeline, connection, context), none_refused)) as writer:
                task = BatchTask(batch.key, batch.range, 1)
                outcome = writer.deliver(task, BatchContent(rows, [], 20, 0))
            assert outcome.outcome is AttemptOutcome.DELIVERED
            ledger.release(run.lease)
        yield setup


def test_a_first_start_that_is_refused_creates_no_topic(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    url = new_ledger_file(tmp_path / "ledger.db")
    source, target = kafka_broker.new_topic(), kafka_broker.new_topic()
    pipeline = build(
        {
            "name": f"copy-{target}",
            "source": {"type": "kafka", "connection": CONNECTION, "topic": source, "start_from": -1},
            "sink": {"type": "kafka", "connection": CONNECTION, "topic": target},
            "dead_letter_queue": {"topic": f"letters-{target}"},
        }
    )
    connection = connection_to(kafka_broker)

    with Ledger.open(url) as ledger, pytest.raises(ConfigError, match="-1 is before the first offset"):
        acquire(PipelineContext(pipeline, ledger, lambda _: connection, "test:one"))

    topics = SinkTopicsClient(connection, pipeline.name)
    assert topics.find(target) is not None
    assert topics.find(receipts_topic(pipeline.name)) is None
    assert topics.find(f"letters-{target}") is None


def _refused(setup: PipelineContext, broker: KafkaBroker, sent: int) -> str:
    with pytest.raises(SinkChangedError) as caught, acquire(setup):
        pass
    assert len(stored(broker, str(setup.pipeline.sink.place))) == sent
    assert f"airflow ckpt accept-sink {setup.pipeline.name}" in str(caught.value)
    return str(caught.value)


def test_a_batch_that_was_not_settled_is_settled_by_its_receipt(setup: PipelineContext) -> None:
    with acquire(setup) as run:
        assert run.plan() == 0
        assert run.finish().records.delivered == 20


def test_a_receipts_topic_deleted_while_a_batch_was_not_settled_doubles_nothing(
    kafka_broker: KafkaBroker, setup: PipelineContext
) -> None:
    kafka_broker.delete_topic(receipts_topic(setup.pipeline.name))

    assert "its fence is at epoch 0, and this ledger raised it to 1" in _refused(setup, kafka_broker, 20)


def test_a_receipts_topic_emptied_while_a_batch_was_not_settled_doubles_nothing(
    kafka_broker: KafkaBroker, setup: PipelineContext
) -> None:
    name = receipts_topic(setup.pipeline.name)
    kafka_broker.delete_topic(name)
    kafka_broker.new_topic(config={"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}, name=name)

    assert "its fence is at epoch 0, and this ledger raised it to 1" in _refused(setup, kafka_broker, 20)


def test_a_target_created_anew_is_refused(kafka_broker: KafkaBroker, setup: PipelineContext) -> None:
    target = str(setup.pipeline.sink.place)
    kafka_broker.delete_topic(target)
    kafka_broker.new_topic(name=target)

    assert "to which this pipeline has delivered" in _refused(setup, kafka_broker, 0)


def test_the_same_topic_by_another_broker_s_address_is_no_other_sink(
    kafka_broker: KafkaBroker, setup: PipelineContext
) -> None:
    other = connection_to(
        kafka_broker, **{"bootstrap.servers": kafka_broker.bootstrap.replace("127.0.0.1", "localhost")}
    )

    with acquire(PipelineContext(setup.pipeline, setup.ledger, lambda _: other, "test:two")) as run:
        assert run.finish().records.delivered == 20
