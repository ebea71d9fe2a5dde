"""A dead letter topic to which others write any content: no run is stopped, and no foreign record is taken for ours."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_ckpt.connectors.kafka.dead_letters import DEAD_LETTER_HEADER
from airflow_provider_ckpt.core.dead_letters import AttemptKey
from airflow_provider_ckpt.testing.sink_harness import Run, content, task
from tests.integration.connectors.kafka.kafka_sink_support import TopicHarness, stored
from tests.integration.connectors.kafka.kafka_support import producer, put, put_raw_header
from tests.services.kafka import KafkaBroker

ODD: list[Any] = [None, True, -1, 0, 1.5, 2**63, 10**400, "", "no", [], {}, [1], ["a", "b", "c"], {"a": 1}, "\x00", "9"]


@pytest.fixture
def harness(kafka_broker: KafkaBroker) -> TopicHarness:
    """A sink that has left two dead letters in a shared topic."""
    harness = TopicHarness(kafka_broker)
    with Run(harness, 1) as run:
        run.take_over().send(task(0), content(0, rejected=2))
    return harness


def _said(harness: TopicHarness) -> dict[str, Any]:
    """Return the header of a genuine dead letter."""
    found = json.loads(stored(harness.broker, harness.letters_topic)[0].header[DEAD_LETTER_HEADER])
    assert isinstance(found, dict)
    return found


def _malformed(said: dict[str, Any], seed: int) -> list[bytes | None]:
    """Headers that no writer of ours wrote: parts changed, left out or of another type, torn JSON, any bytes."""
    draw = random.Random(seed)
    whole = json.dumps(said).encode()
    found: list[bytes | None] = [None, b"", b"null", b"[]", b"1", b'""', b"\xff\xfe", b"{" * 5000, b"[" * 200_000]
    found += [json.dumps({**said, name: odd}).encode() for name in said for odd in ODD if said[name] != odd]
    found += [json.dumps({key: value for key, value in said.items() if key != name}).encode() for name in said]
    found += [json.dumps({**said, "batch": batch}).encode() for batch in ([], [1, "p"], [1, 2, 3], [-1, "p", 0], "p")]
    found += [whole[: draw.randrange(len(whole))] for _ in range(20)]
    found += [draw.randbytes(draw.randrange(200)) for _ in range(100)]
    found += [json.dumps({**said, "error": "x" * 500_000, "error_type": "none"}).encode()]
    for _ in range(100):
        broken = bytearray(whole)
        broken[draw.randrange(len(broken))] = draw.randrange(256)
        found.append(bytes(broken))
    return found


def _collect(refused: list[object]) -> Callable[[object, object], None]:
    """Notes why a message was not taken."""
    return lambda error, _: refused.append(error) if error is not None else None


@pytest.mark.parametrize("seed", [1, 2])
def test_any_header_of_somebody_else_stops_nobody(
    harness: TopicHarness, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    said = _said(harness)
    strangers = [header for header in _malformed(said, seed) if header != json.dumps(said).encode()]
    refused: list[object] = []
    to = producer(harness.broker)
    for header in strangers:
        to.produce(
            harness.letters_topic, b"strange", headers=[(DEAD_LETTER_HEADER, header)], on_delivery=_collect(refused)
        )
    to.produce(harness.letters_topic, None, headers=[("other", b"1")], on_delivery=_collect(refused))
    to.produce(harness.letters_topic, b"strange", on_delivery=_collect(refused))
    assert (to.flush(30), refused) == (0, [])
    put_raw_header(harness.broker, harness.letters_topic, b"\xff", b"strange")

    with caplog.at_level(logging.WARNING), Run(harness, 2) as run:
        kept = list(run.take_over().sink.dead_letters([AttemptKey(task(0).key, 1, 1)]))

    assert [item.dead_letter.position for item in kept] == [0, 1]
    assert b"strange" not in [item.dead_letter.value for item in kept]
    (told,) = [record.getMessage() for record in caplog.records if "are ignored" in record.getMessage()]
    assert f"messages of dead letter topic {harness.letters_topic} have a header {DEAD_LETTER_HEADER} that this" in told


def test_letters_that_imitate_a_true_one_in_all_that_others_can_know_do_not_count(harness: TopicHarness) -> None:
    true = stored(harness.broker, harness.letters_topic)
    to = producer(harness.broker)
    for record in true:
        said = json.loads(record.header[DEAD_LETTER_HEADER])
        for change in ({}, {"number": 2}, {"number": 2, "position": 1}, {"number": 0}, {"error": "another"}):
            forged = json.dumps({**said, **change}).encode()
            headers: list[Any] = [*record.headers[:-1], (DEAD_LETTER_HEADER, forged)]
            to.produce(harness.letters_topic, b"forged", record.key, headers=headers)
        same: list[Any] = list(record.headers)
        to.produce(harness.letters_topic, record.value, b"forged", headers=same)
        to.produce(harness.letters_topic, record.value, record.key, headers=[("more", b"1"), *same])
        to.produce(harness.letters_topic, record.value, record.key, headers=same)
    assert to.flush(30) == 0

    with Run(harness, 2) as run:
        kept = list(run.take_over().sink.dead_letters([AttemptKey(task(0).key, 1, 1)]))

    assert [(item.dead_letter.key, item.dead_letter.value) for item in kept] == [
        (record.key, record.value) for record in true
    ]


def test_letters_that_imitate_an_attempt_that_no_receipt_names_do_not_count(harness: TopicHarness) -> None:
    said = _said(harness)
    for change in ({"attempt": 2}, {"epoch": 2}, {"ledger": "other"}, {"pipeline": "other"}, {"batch": [1, "p0", 7]}):
        forged = json.dumps({**said, **change}).encode()
        put(harness.broker, harness.letters_topic, [b"forged"], headers=[(DEAD_LETTER_HEADER, forged)])

    with Run(harness, 2) as run:
        kept = list(run.take_over().sink.dead_letters([AttemptKey(task(0).key, 1, 1)]))

    assert len(kept) == 2
    assert b"forged" not in [item.dead_letter.value for item in kept]
