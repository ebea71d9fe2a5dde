"""Tests of reading the receipts topic in any order that compaction and concurrent runs may produce."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_ckpt.connectors.kafka.client import require_topic
from airflow_provider_ckpt.connectors.kafka.receipts import (
    TOPIC_PREFIX,
    ReceiptsTopicState,
    UsedId,
    epoch_key,
    id_key,
    receipt_key,
    receipt_value,
    receipts_topic,
    refuse_receipts_topics,
    transactional_id,
)
from airflow_provider_ckpt.connectors.sink_protocol import SinkContext
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.receipt import Counts, Receipt, Verdict

OURS, THEIRS = "ours", "theirs"


def receipt(seq: int, partition: str = "p", epoch: int = 1) -> Receipt:
    key = BatchKey(1, partition, seq)
    return Receipt(key, Range(seq, seq + 1), Verdict.DELIVERED, epoch, 1, Counts(1, 1), datetime.now(UTC), 9)


def test_the_highest_epoch_counts_whichever_was_written_last() -> None:
    books = ReceiptsTopicState(OURS)
    for epoch in (3, 5, 4):
        books.apply(epoch_key(OURS, epoch), b"{}")
    books.apply(epoch_key(THEIRS, 9), b"{}")

    assert (books.newest_epoch, books.highest_epoch, books.ledgers) == (5, 9, frozenset({OURS, THEIRS}))


def test_a_fence_takes_back_what_is_older_and_no_more() -> None:
    books = ReceiptsTopicState(OURS)
    for epoch in (3, 5):
        books.apply(epoch_key(OURS, epoch), b"{}")
        books.apply(id_key(OURS, UsedId(epoch, "p")), b"{}")
    books.apply(epoch_key(THEIRS, 1), b"{}")

    gone = list(books.obsolete_keys(5))
    for key in gone:
        books.apply(key, None)

    assert gone == [epoch_key(OURS, 3), id_key(OURS, UsedId(3, "p"))]
    assert (books.epochs, books.ids) == ({OURS: {5}, THEIRS: {1}}, {UsedId(5, "p")})


def test_receipts_are_those_of_one_ledger_in_the_order_of_their_keys() -> None:
    books = ReceiptsTopicState(OURS)
    kept = [receipt(2), receipt(10), receipt(0, "q")]
    for item in (kept[1], kept[2], kept[0]):
        books.apply(receipt_key(OURS, item.key), receipt_value(item))
    books.apply(receipt_key(THEIRS, receipt(1).key), receipt_value(receipt(1)))

    assert list(books.sorted_receipts()) == kept
    assert books.receipt(BatchKey(1, "p", 1)) is None


def test_a_lane_keeps_its_partition_s_receipts_alone() -> None:
    books = ReceiptsTopicState(OURS, "q")
    for item in (receipt(0, "p"), receipt(0, "q")):
        books.apply(receipt_key(OURS, item.key), receipt_value(item))

    assert [item.key.partition for item in books.sorted_receipts()] == ["q"]


def test_the_first_claim_of_a_batch_stands() -> None:
    books = ReceiptsTopicState(OURS)
    for epoch in (1, 2):
        item = receipt(0, epoch=epoch)
        books.apply(receipt_key(OURS, item.key), receipt_value(item))

    found = books.receipt(BatchKey(1, "p", 0))

    assert found is not None
    assert found.epoch == 1


NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", fullmatch=True)
LIKE = st.text("ab._-d", min_size=1, max_size=6).filter(lambda name: name[0] not in ".-")


@pytest.mark.parametrize("names", [NAMES, LIKE])
def test_no_two_pipelines_share_a_receipts_topic_nor_its_name_in_metrics(names: st.SearchStrategy[str]) -> None:
    seen: dict[str, str] = {}

    @settings(max_examples=2000)
    @given(names)
    def judge(name: str) -> None:
        topic = receipts_topic(name)
        assert topic.startswith(TOPIC_PREFIX)
        assert seen.setdefault(topic.replace(".", "_"), name) == name

    judge()
    assert len(seen) > 500


@pytest.mark.parametrize("key", ["sink.topic", "dead_letter_queue.topic"])
def test_nobody_writes_rows_among_the_receipts_of_another_pipeline(key: str) -> None:
    with pytest.raises(ConfigError, match=r"ckpt-receipts.other, and topics whose names begin with"):
        refuse_receipts_topics({key: "ckpt-receipts.other"}, "ckpt-receipts.orders", "orders")
    refuse_receipts_topics({key: "ckpt-other", "source.topic": "ckpt-receipts.other"}, "ckpt-receipts.orders", "orders")


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a/b", "a b", "ä", "a\n", "a\x00"])
def test_what_cannot_be_a_topic_is_refused_by_its_key(name: str) -> None:
    with pytest.raises(ConfigError, match=r"sink\.topic: .* is not a valid topic name"):
        require_topic(name, "sink.topic", "orders")
    assert require_topic("a" * 249, "sink.topic", "orders") == "a" * 249


def test_a_pipeline_s_name_that_makes_too_long_a_topic_is_refused() -> None:
    with pytest.raises(ConfigError, match="the receipts topic"):
        require_topic(receipts_topic("a" + "." * 127), "the receipts topic", "orders")


def test_names() -> None:
    assert receipts_topic("shop.orders-eu") == "ckpt-receipts.-shop-dorders--eu"
    assert receipts_topic("orders") == "ckpt-receipts.orders"
    assert transactional_id(SinkContext("l", "orders"), "recovery:0:p/1") == "ckpt/l/orders/recovery:0:p/1"
