"""A target or receipts topic that was made anew, emptied, or lost records shows in the sink's claims."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider_ckpt.connectors.kafka.written import WrittenTopic
from airflow_provider_ckpt.connectors.protocols import Claims, SinkContext
from airflow_provider_ckpt.core.errors import ConfigError
from tests.integration.connectors.conformance_sink import LEDGER, Run, content, task
from tests.integration.connectors.kafka_sink_support import TopicHarness
from tests.integration.connectors.kafka_support import alter, numbered, put
from tests.services.kafka import KafkaBroker

ASKING = SinkContext(LEDGER, "orders")


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A broker whose disk may be lost."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def harness(broker: KafkaBroker) -> TopicHarness:
    """A sink with two receipts and a raised fence, whose target has one partition."""
    harness = TopicHarness(broker, 1)
    with Run(harness, 1) as run:
        run.take_over()
        run.send(task(0), content(0))
        run.send(task(1), content(1))
    return harness


def _claims(harness: TopicHarness) -> Claims:
    with closing(harness.sink(ASKING)) as sink:
        return sink.claims()


def test_a_target_created_anew_has_another_identity(harness: TopicHarness) -> None:
    before = _claims(harness)
    harness.broker.delete_topic(harness.topic)
    gone = _claims(harness)
    harness.broker.new_topic(1, name=harness.topic)
    after = _claims(harness)

    assert before.target
    assert (gone.target, gone.epoch) == (None, 1)
    assert after.target not in (None, before.target)
    assert (before.set_back, gone.set_back, after.set_back) == (None, None, None)


@pytest.mark.parametrize("how", ["deleted", "emptied"])
def test_a_receipts_topic_that_lost_its_receipts_holds_no_fence_and_none_of_them(
    harness: TopicHarness, how: str
) -> None:
    from confluent_kafka import TopicPartition

    topic = harness.receipts_topic()
    if how == "deleted":
        harness.broker.delete_topic(topic)
    else:
        alter(harness.broker, topic, {"cleanup.policy": "delete"})
        admin = harness.broker.admin()
        for deleted in admin.delete_records([TopicPartition(topic, 0, -1)]).values():
            deleted.result(30)
        alter(harness.broker, topic, {"cleanup.policy": "compact"})

    with closing(harness.sink(ASKING)) as sink:
        sink.check()
        claims, missing = sink.claims(), sink.missing([task(0).key, task(1).key])

    assert (claims.epoch, claims.ledgers) == (0, frozenset())
    assert missing == [task(0).key, task(1).key]


def test_a_receipts_topic_that_deletes_by_now_is_refused_by_name(harness: TopicHarness) -> None:
    alter(harness.broker, harness.receipts_topic(), {"cleanup.policy": "delete"})

    with closing(harness.sink(ASKING)) as sink, pytest.raises(ConfigError, match=r"cleanup.policy is delete") as caught:
        sink.check()

    assert harness.receipts_topic() in str(caught.value)


@pytest.mark.parametrize("filled", [0, 1, 20])
def test_a_target_that_lost_its_log_is_set_back_until_the_next_fence(harness: TopicHarness, filled: int) -> None:
    with Run(harness, 2) as run:
        run.take_over()
    assert _claims(harness).set_back is None
    harness.broker.kill()
    harness.broker.lose_log(harness.topic)
    harness.broker.start()
    put(harness.broker, harness.topic, numbered(filled))

    said = _claims(harness).set_back
    with Run(harness, 3) as run:
        run.take_over()

    assert said is not None
    assert f"partition 0 of topic {harness.topic}" in said
    assert _claims(harness).set_back is None


def test_a_target_that_lost_its_tail_is_set_back(harness: TopicHarness, tmp_path: Path) -> None:
    harness.broker.stop()
    harness.broker.copy_log(harness.topic, tmp_path / "log")
    harness.broker.start()
    with Run(harness, 2) as run:
        run.take_over().send(task(2), content(2))
    with Run(harness, 3) as run:
        run.take_over()
    harness.broker.kill()
    harness.broker.lose_log(harness.topic, tmp_path / "log")
    harness.broker.start()
    put(harness.broker, harness.topic, numbered(50))

    assert "lost records that were there" in str(_claims(harness).set_back)


def test_a_broker_that_starts_again_sets_nothing_back(harness: TopicHarness) -> None:
    harness.broker.kill()
    harness.broker.start()

    assert _claims(harness).set_back is None


def test_a_target_that_may_lose_what_it_acknowledged_is_named(
    harness: TopicHarness, caplog: pytest.LogCaptureFixture
) -> None:
    alter(harness.broker, harness.topic, {"unclean.leader.election.enable": "true"})

    with caplog.at_level(logging.WARNING), closing(harness.sink(ASKING)) as sink:
        sink.check()

    (said,) = [record.getMessage() for record in caplog.records]
    assert f"topic {harness.topic} may lose what was delivered: its unclean.leader.election.enable is true" in said


@pytest.mark.parametrize(
    ("replicas", "insync", "named"), [(1, "1", False), (2, "1", True), (3, "1", True), (3, "2", False)]
)
def test_a_topic_that_one_broker_may_acknowledge_alone_is_named(replicas: int, insync: str, named: bool) -> None:
    settings = {"unclean.leader.election.enable": "false", "min.insync.replicas": insync}

    weaknesses = WrittenTopic("t", 1, replicas, settings).weaknesses

    assert bool(weaknesses) is named
    assert all(f"min.insync.replicas is 1 with {replicas} replicas" in weakness for weakness in weaknesses)
