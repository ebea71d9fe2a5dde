"""A target or receipts topic that was made anew, emptied, or lost records shows in the sink's claims."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from airflow_provider_ckpt.connectors.kafka.sink_topics import SinkTopic
from airflow_provider_ckpt.connectors.sink_protocol import Claims, SinkContext, SinkWithTargetSnapshot
from airflow_provider_ckpt.core.errors import ConfigError
from tests.integration.connectors.conformance_sink import LEDGER, Run, content, task
from tests.integration.connectors.kafka.kafka_sink_support import TopicHarness
from tests.integration.connectors.kafka.kafka_support import alter, numbered, put
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
    assert (before.loss_evidence, gone.loss_evidence, after.loss_evidence) == (None, None, None)


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
        sink.create_bookkeeping()
        claims, missing = sink.claims(), sink.batches_without_receipt([task(0).key, task(1).key])

    assert (claims.epoch, claims.ledgers) == (0, frozenset())
    assert missing == [task(0).key, task(1).key]


def test_a_receipts_topic_that_deletes_by_now_is_refused_by_name(harness: TopicHarness) -> None:
    alter(harness.broker, harness.receipts_topic(), {"cleanup.policy": "delete"})

    with closing(harness.sink(ASKING)) as sink, pytest.raises(ConfigError, match=r"cleanup.policy is delete") as caught:
        sink.create_bookkeeping()

    assert harness.receipts_topic() in str(caught.value)


@pytest.mark.parametrize("filled", [0, 1, 20])
def test_a_target_that_lost_its_log_is_set_back_until_the_next_fence(harness: TopicHarness, filled: int) -> None:
    with Run(harness, 2) as run:
        run.take_over()
    assert _claims(harness).loss_evidence is None
    harness.broker.kill()
    harness.broker.lose_log(harness.topic)
    harness.broker.start()
    put(harness.broker, harness.topic, numbered(filled))

    said = _claims(harness).loss_evidence
    with Run(harness, 3) as run:
        run.take_over()

    assert said is not None
    assert f"partition 0 of topic {harness.topic}" in said
    assert _claims(harness).loss_evidence is None


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

    assert "lost records that were there" in str(_claims(harness).loss_evidence)


def test_a_broker_that_starts_again_sets_nothing_back(harness: TopicHarness) -> None:
    harness.broker.kill()
    harness.broker.start()

    assert _claims(harness).loss_evidence is None


def test_a_target_that_may_lose_what_it_acknowledged_is_named(
    harness: TopicHarness, caplog: pytest.LogCaptureFixture
) -> None:
    alter(harness.broker, harness.topic, {"unclean.leader.election.enable": "true"})

    with caplog.at_level(logging.WARNING), closing(harness.sink(ASKING)) as sink:
        sink.check()
        sink.create_bookkeeping()

    (said,) = [record.getMessage() for record in caplog.records]
    assert f"topic {harness.topic} may lose delivered records: its unclean.leader.election.enable is true" in said


@pytest.mark.parametrize(
    ("replicas", "insync", "named"), [(1, "1", False), (2, "1", True), (3, "1", True), (3, "2", False)]
)
def test_a_topic_that_one_broker_may_acknowledge_alone_is_named(replicas: int, insync: str, named: bool) -> None:
    settings = {"unclean.leader.election.enable": "false", "min.insync.replicas": insync}

    weaknesses = SinkTopic("t", 1, replicas, settings).weaknesses

    assert bool(weaknesses) is named
    assert all(f"min.insync.replicas is 1 with {replicas} replicas" in weakness for weakness in weaknesses)


def _delivered(harness: TopicHarness) -> None:
    """A run of epoch 2 that takes over, delivers a batch, and looks at the target at its end."""
    with Run(harness, 2) as run:
        run.take_over().send(task(2), content(2))
        assert isinstance(run.sink, SinkWithTargetSnapshot)
        run.sink.store_target_snapshot(2)


def _delete(harness: TopicHarness, end: int) -> None:
    from confluent_kafka import TopicPartition

    admin = harness.broker.admin()  # without it, nobody answers
    for deleted in admin.delete_records([TopicPartition(harness.topic, 0, end)]).values():
        deleted.result(30)


@pytest.mark.parametrize("filled", [0, 1, 50])
def test_rows_delivered_after_the_newest_fence_and_lost_with_the_log_set_it_back(
    harness: TopicHarness, filled: int
) -> None:
    _delivered(harness)
    assert _claims(harness).loss_evidence is None
    harness.broker.kill()
    harness.broker.lose_log(harness.topic)
    harness.broker.start()
    put(harness.broker, harness.topic, numbered(filled))

    assert f"partition 0 of topic {harness.topic}" in str(_claims(harness).loss_evidence)


@pytest.mark.parametrize("filled", [0, 1, 50])
def test_rows_delivered_after_the_newest_fence_and_lost_with_the_tail_set_it_back(
    harness: TopicHarness, tmp_path: Path, filled: int
) -> None:
    harness.broker.stop()
    harness.broker.copy_log(harness.topic, tmp_path / "log")
    harness.broker.start()
    _delivered(harness)
    harness.broker.kill()
    harness.broker.lose_log(harness.topic, tmp_path / "log")
    harness.broker.start()
    put(harness.broker, harness.topic, numbered(filled))

    assert f"partition 0 of topic {harness.topic}" in str(_claims(harness).loss_evidence)


def test_a_snapshot_of_a_log_that_lost_records_is_not_kept(harness: TopicHarness) -> None:
    _delivered(harness)
    harness.broker.kill()
    harness.broker.lose_log(harness.topic)
    harness.broker.start()
    with closing(harness.sink(ASKING)) as sink:
        assert isinstance(sink, SinkWithTargetSnapshot)
        sink.store_target_snapshot(2)

    assert _claims(harness).loss_evidence is not None


def test_a_snapshot_of_an_older_epoch_changes_nothing(harness: TopicHarness) -> None:
    _delivered(harness)
    with Run(harness, 3) as run:
        run.take_over()
    with closing(harness.sink(ASKING)) as sink:
        assert isinstance(sink, SinkWithTargetSnapshot)
        sink.store_target_snapshot(2)

    claims = _claims(harness)
    assert (claims.epoch, claims.loss_evidence) == (3, None)


@pytest.mark.parametrize("end", [1, -1])
def test_records_deleted_where_nothing_expires_set_it_back(harness: TopicHarness, end: int) -> None:
    alter(harness.broker, harness.topic, {"retention.ms": "-1"})
    _delivered(harness)
    _delete(harness, end)

    said = str(_claims(harness).loss_evidence)

    assert f"partition 0 of topic {harness.topic} begins at offset" in said
    assert "sink.may_be_emptied: true" in said
    with Run(harness, 3) as run:
        run.take_over()
    assert _claims(harness).loss_evidence is None


def test_all_records_deleted_before_they_can_expire_set_it_back(harness: TopicHarness) -> None:
    _delivered(harness)
    _delete(harness, -1)

    assert "records were deleted (" in str(_claims(harness).loss_evidence)


@pytest.mark.parametrize("retention", [{"retention.ms": "60000"}, {"retention.bytes": "1000000"}])
def test_records_that_may_have_expired_set_nothing_back(harness: TopicHarness, retention: dict[str, str]) -> None:
    alter(harness.broker, harness.topic, retention)
    _delivered(harness)
    _delete(harness, -1)

    assert _claims(harness).loss_evidence is None


def test_records_deleted_on_purpose_set_nothing_back_and_a_lost_log_does(harness: TopicHarness) -> None:
    harness.sink_settings["may_be_emptied"] = True
    _delivered(harness)
    _delete(harness, -1)
    assert _claims(harness).loss_evidence is None
    harness.broker.kill()
    harness.broker.lose_log(harness.topic)
    harness.broker.start()

    assert "ends at offset 0" in str(_claims(harness).loss_evidence)
