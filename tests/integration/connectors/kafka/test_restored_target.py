"""The sink detects that a target or receipts topic was created again, was emptied, or lost records.

A broker takes seconds to start, so all targets that lose records lose them in one crash of the broker (see
:func:`lost`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import pytest

from airflow_provider_ckpt.connectors.kafka.sink_topics import SinkTopic
from airflow_provider_ckpt.connectors.sink_protocol import Claims, SinkContext, SinkWithTargetSnapshot
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.testing.sink_harness import LEDGER, Run, content, task
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
    return _delivered_to(broker)


def _delivered_to(broker: KafkaBroker) -> TopicHarness:
    harness = TopicHarness(broker, 1)
    with Run(harness, 1) as run:
        run.take_over()
        run.send(task(0), content(0))
        run.send(task(1), content(1))
    return harness


def _claims(harness: TopicHarness) -> Claims:
    with closing(harness.sink(ASKING)) as sink:
        return sink.claims()


def _fenced(harness: TopicHarness) -> None:
    """Epoch 2 takes over, and delivers nothing."""
    with Run(harness, 2) as run:
        run.take_over()


def _delivered(harness: TopicHarness) -> None:
    """A run of epoch 2 that takes over, delivers a batch, and looks at the target at its end."""
    with Run(harness, 2) as run:
        run.take_over().send(task(2), content(2))
        assert isinstance(run.sink, SinkWithTargetSnapshot)
        run.sink.store_target_snapshot(2)


def _delivered_and_fenced(harness: TopicHarness) -> None:
    """A run of epoch 2 that takes over and delivers a batch; epoch 3 takes over."""
    with Run(harness, 2) as run:
        run.take_over().send(task(2), content(2))
    with Run(harness, 3) as run:
        run.take_over()


def _emptied(harness: TopicHarness) -> None:
    """The target's records are deleted, as its declaration permits."""
    harness.sink_settings["may_be_emptied"] = True
    _delivered(harness)
    _delete(harness, -1)


STORIES: Mapping[str, tuple[Callable[[TopicHarness], None], int]] = {
    "untouched": (_fenced, 0),
    **{f"fenced, {filled} new": (_fenced, filled) for filled in (0, 1, 20)},
    **{f"delivered, {filled} new": (_delivered, filled) for filled in (0, 1, 50)},
    "observed": (_delivered, 0),
    "emptied": (_emptied, 0),
    "tail, fenced": (_delivered_and_fenced, 50),
    **{f"tail, delivered, {filled} new": (_delivered, filled) for filled in (0, 1, 50)},
}
"""By name, what is done before records are lost, and how many new ones are written afterwards.

``untouched`` loses none, and those whose name begins with ``tail`` lose only what this has written.
"""


@pytest.fixture(scope="module")
def lost(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, TopicHarness]:
    """Sinks like ``harness`` by the name of their story, all of whose targets have lost records."""
    copies = tmp_path_factory.mktemp("logs")
    harnesses = {name: _delivered_to(broker) for name in STORIES}
    tails = {name: copies / harness.topic for name, harness in harnesses.items() if name.startswith("tail")}
    broker.stop()
    for name, copy in tails.items():
        broker.copy_log(harnesses[name].topic, copy)
    broker.start()
    for name, (before, _) in STORIES.items():
        before(harnesses[name])
        assert _claims(harnesses[name]).loss_evidence is None
    broker.kill()
    for name, harness in harnesses.items():
        if name != "untouched":
            broker.lose_log(harness.topic, tails.get(name))
    broker.start()
    for name, (_, filled) in STORIES.items():
        put(broker, harnesses[name].topic, numbered(filled))
    return harnesses


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
def test_a_target_that_lost_its_log_is_set_back_until_the_next_fence(
    lost: Mapping[str, TopicHarness], filled: int
) -> None:
    harness = lost[f"fenced, {filled} new"]

    said = _claims(harness).loss_evidence
    with Run(harness, 3) as run:
        run.take_over()

    assert said is not None
    assert f"partition 0 of topic {harness.topic}" in said
    assert _claims(harness).loss_evidence is None


def test_a_target_that_lost_its_tail_is_set_back(lost: Mapping[str, TopicHarness]) -> None:
    assert "lost records that were there" in str(_claims(lost["tail, fenced"]).loss_evidence)


def test_a_broker_that_starts_again_sets_nothing_back(lost: Mapping[str, TopicHarness]) -> None:
    assert _claims(lost["untouched"]).loss_evidence is None


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


def _delete(harness: TopicHarness, end: int) -> None:
    from confluent_kafka import TopicPartition

    admin = harness.broker.admin()  # without it, nobody answers
    for deleted in admin.delete_records([TopicPartition(harness.topic, 0, end)]).values():
        deleted.result(30)


@pytest.mark.parametrize("filled", [0, 1, 50])
@pytest.mark.parametrize("what", ["", "tail, "], ids=["log", "tail"])
def test_rows_delivered_after_the_newest_fence_and_lost_set_it_back(
    lost: Mapping[str, TopicHarness], what: str, filled: int
) -> None:
    harness = lost[f"{what}delivered, {filled} new"]

    assert f"partition 0 of topic {harness.topic}" in str(_claims(harness).loss_evidence)


def test_a_snapshot_of_a_log_that_lost_records_is_not_kept(lost: Mapping[str, TopicHarness]) -> None:
    harness = lost["observed"]
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


def test_records_deleted_on_purpose_set_nothing_back_and_a_lost_log_does(lost: Mapping[str, TopicHarness]) -> None:
    """Before the log was lost, the fixture has seen that nothing was set back."""
    assert "ends at offset 0" in str(_claims(lost["emptied"]).loss_evidence)
