"""Variants are converted to the JSON that they represent, with every digit, at any depth."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.variant_utils import VariantUtils

from airflow_provider_ckpt.connectors.json_encoding import encode_column
from airflow_provider_ckpt.connectors.variants import decoder, is_variant

VARIANT = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)


def variant(text: str | None) -> dict[str, bytes] | None:
    """A variant as Spark hands it out."""
    return None if text is None else dict(zip(("value", "metadata"), VariantUtils.parse_json(text), strict=True))


def written(kind: pa.DataType, *items: Any) -> list[Any]:
    """Values of a type, as JSON and back."""
    return [json.loads(text, parse_float=Decimal) for text in encode_column(pa.array(items, kind)).to_pylist()]


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, 2, null, "é\\"\\n"], "b": {"c": true, "d": {}}, "e": []}',
        "123456789012345678901234567890",
        "1.10",
        '"text"',
        "false",
        "null",
    ],
)
def test_a_variant_is_its_json(text: str) -> None:
    assert written(VARIANT, variant(text), None) == [json.loads(text, parse_float=Decimal), None]


def test_variants_inside_others_are_found() -> None:
    inside = pa.struct([("w", VARIANT), ("id", pa.int64())])
    item = variant('{"a": 1}')

    assert written(pa.list_(inside), [{"w": item, "id": 1}, {"w": None, "id": 2}, None]) == [
        [{"w": {"a": 1}, "id": 1}, {"w": None, "id": 2}, None]
    ]
    assert written(pa.map_(pa.string(), VARIANT), [("k", item), ("n", None)]) == [{"k": {"a": 1}, "n": None}]


def test_a_day_and_an_instant_that_python_has_not_are_texts() -> None:
    day = bytes([11 << 2]) + (3_672_000).to_bytes(4, "little", signed=True)
    micros = (317_000_000_000_000_000).to_bytes(8, "little", signed=True)
    metadata = VariantUtils.parse_json("1")[1]
    items = [
        {"value": value, "metadata": metadata} for value in (day, bytes([12 << 2]) + micros, bytes([13 << 2]) + micros)
    ]

    day_text, instant, local = written(VARIANT, *items)

    assert day_text.startswith("12023-")
    assert (instant, local) == (f"{local}Z", instant.removesuffix("Z"))
    assert local.startswith("12015-")


def test_a_struct_of_two_binaries_without_the_mark_is_none() -> None:
    plain = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])

    assert is_variant(VARIANT)
    assert not is_variant(plain)
    assert decoder(plain) is None
    assert written(plain, {"value": b"\xff", "metadata": b""}) == [{"value": "/w==", "metadata": ""}]
