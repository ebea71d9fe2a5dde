"""A message's value is decoded; expressions may also use its key, headers and timestamp."""

from __future__ import annotations

import datetime as dt
from typing import Any

from pyspark.sql import SparkSession

from tests.integration.spark.judging import DELIVERED, Transform

AT = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
DECODE: dict[str, Any] = {"decode": "json", "schema": "id bigint, key string"}
MESSAGE = (bytearray(b"k\xff"), bytearray(b'{"id":1,"key":"inner"}'), [("h", bytearray(b"v"))], AT)
TOMBSTONE = (bytearray(b"k"), None, None, AT)


def test_only_what_was_decoded_is_put_out_by_default(spark: SparkSession) -> None:
    (judged,) = Transform(spark, DECODE, messages=True).rows(MESSAGE)

    assert judged.row == {"id": 1, "key": "inner"}


def test_what_else_the_message_has_can_be_selected_and_compared(spark: SparkSession) -> None:
    select = {"id": "id", "trace": "cast(headers[0].value as string)", "at": "timestamp", "inner": "key"}
    keys = {**DECODE, "where": "timestamp >= '2024-01-01'", "select": select}

    (judged,) = Transform(spark, keys, messages=True).rows(MESSAGE)

    assert (judged.row["id"], judged.row["trace"], judged.row["inner"]) == (1, "v", "inner")


def test_a_message_that_is_rejected_keeps_all_that_it_had(spark: SparkSession) -> None:
    bad = (MESSAGE[0], bytearray(b"{"), *MESSAGE[2:])

    (judged,) = Transform(spark, DECODE, messages=True).rows(bad)

    assert judged.verdict == "MessageDeserialization"
    assert judged.original is not None
    assert (bytes(judged.original["key"]), bytes(judged.original["value"])) == (b"k\xff", b"{")
    assert [(header["key"], bytes(header["value"])) for header in judged.original["headers"]] == [("h", b"v")]


def test_a_tombstone_is_dead_lettered_as_what_it_is_or_filtered(spark: SparkSession) -> None:
    (judged, _) = Transform(spark, DECODE, messages=True).rows(TOMBSTONE, MESSAGE)
    (skipped, good) = Transform(spark, DECODE, messages=True, error_handling={"null_value_behavior": "skip"}).rows(
        TOMBSTONE, MESSAGE
    )

    assert (judged.verdict, judged.message) == ("MessageDeserialization", "no value to decode (a tombstone)")
    assert (skipped.verdict, good.verdict) == ("filtered", DELIVERED)


def test_without_decode_messages_pass_as_they_are(spark: SparkSession) -> None:
    keys = {"where": "value is not null", "select": {"key": "key", "value": "value", "headers": "headers"}}

    good, gone = Transform(spark, keys, messages=True).rows(MESSAGE, TOMBSTONE)

    assert (good.verdict, gone.verdict) == (DELIVERED, "filtered")
    assert (bytes(good.row["key"]), bytes(good.row["value"])) == (b"k\xff", b'{"id":1,"key":"inner"}')
