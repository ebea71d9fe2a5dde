"""The headers of a dead letter: the record's origin, the error, and the number of attempts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from airflow_provider_ckpt.config.load import build
from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.batch_content import DeadLetter
from airflow_provider_ckpt.core.batch_key import BatchKey
from airflow_provider_ckpt.core.errors import ErrorInfo, ErrorType
from airflow_provider_ckpt.core.ranges import Range
from airflow_provider_ckpt.core.wave_messages import BatchTask
from airflow_provider_ckpt.spark.dead_letters.headers import with_headers
from airflow_provider_ckpt.spark.dead_letters.replay_reader import replay_detail

AT = datetime(2026, 1, 31, tzinfo=UTC)
LETTER = DeadLetter(7, None, b"{}", ErrorInfo(ErrorType.SINK, "too long"), {"source-file": "a.jsonl"})
TASK = BatchTask(BatchKey(1, "p", 3), Range(0, 10), 1)


def pipeline(**more: Any) -> Pipeline:
    declared = {
        "name": "events",
        "source": {"type": "files", "path": "in"},
        "transform": {"decode": "json", "schema": "id int"},
        "sink": {"type": "delta", "path": "out"},
    }
    return build(declared | more)


def test_a_letter_says_where_it_comes_from_and_what_went_wrong() -> None:
    declared = pipeline(transform={"decode": "json", "schema": "id int", "where": "id > 0", "select": {"n": "id"}})

    (found,) = with_headers([LETTER], TASK, declared, epoch=4, at=AT)

    assert found.headers == {
        "x-ckpt-source-file": "a.jsonl",
        "x-ckpt-error": "too long",
        "x-ckpt-error-type": "Sink",
        "x-ckpt-retry-attempts": "0",
        "x-ckpt-timestamp": AT.isoformat(),
        "x-ckpt-pipeline": "events",
        "x-ckpt-destination": "out",
        "x-ckpt-filter": "id > 0",
        "x-ckpt-transform": json.dumps({"n": "id"}),
        "x-ckpt-batch": "p#3",
        "x-ckpt-epoch": "4",
    }
    assert (found.value, found.position, found.error) == (LETTER.value, LETTER.position, LETTER.error)


def test_the_prefix_is_the_pipeline_s() -> None:
    declared = pipeline(dead_letter_queue={"header_prefix": "x-streamforge-"})

    (found,) = with_headers([LETTER], TASK, declared, epoch=1)

    assert {name.removeprefix("x-streamforge-") for name in found.headers} >= {"error", "source-file", "batch"}
    assert all(name.startswith("x-streamforge-") for name in found.headers)


def test_retries_and_replays_are_counted_and_the_origin_stays() -> None:
    third = BatchTask(TASK.key, TASK.range, attempt=11, finished=2)
    dead_letters = replay_detail([], newest_first=False)
    again = BatchTask(BatchKey(2, "dlq:2:p", 0), Range(0, 1), attempt=5, detail=dead_letters, finished=1)

    (first,) = with_headers([LETTER], third, pipeline(), epoch=1)
    (second,) = with_headers([first], again, pipeline(), epoch=2)

    assert first.headers["x-ckpt-retry-attempts"] == "2"
    assert second.headers["x-ckpt-retry-attempts"] == "4"
    assert second.headers["x-ckpt-source-file"] == "a.jsonl"
    assert second.headers["x-ckpt-batch"] == "dlq:2:p#0@2"


def test_a_record_s_own_time_stands() -> None:
    record = DeadLetter(7, b"k", b"v", LETTER.error, {"timestamp": "2020-01-01T00:00:00+00:00"}, (("a", b"1"),))

    (found,) = with_headers([record], TASK, pipeline(), epoch=1, at=AT)

    assert found.headers["x-ckpt-timestamp"] == "2020-01-01T00:00:00+00:00"
    assert found.original_headers == (("a", b"1"),)


def test_a_record_s_own_headers_are_kept_unless_the_pipeline_says_otherwise() -> None:
    record = DeadLetter(7, b"k", b"v", LETTER.error, {}, (("a", b"1"),))
    without = pipeline(dead_letter_queue={"include_original_headers": False})

    assert [found.original_headers for found in with_headers([record], TASK, without, epoch=1)] == [()]
