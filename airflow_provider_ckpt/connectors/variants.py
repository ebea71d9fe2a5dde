"""Decode Spark's variant values from Arrow with PySpark's decoder; in Arrow a variant is a struct of two binaries."""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors import extreme_times

if TYPE_CHECKING:
    import pyarrow as pa

_Decode = Callable[[Any], Any]
_MAX_DIGITS = 100
"""Precision with which decimals are decoded: greater than any precision in Spark, so that no digit is rounded."""


def is_variant(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is a variant.

    Spark marks a variant by metadata on the field ``metadata`` of a struct that has the fields ``value`` and
    ``metadata``.
    """
    import pyarrow as pa

    if not pa.types.is_struct(kind) or kind.get_field_index("metadata") < 0 or kind.get_field_index("value") < 0:
        return False
    return bool((kind.field("metadata").metadata or {}).get(b"variant") == b"true")


def decoder(kind: pa.DataType) -> _Decode | None:
    """Return a function that decodes the variants in one value of a column; None if the type contains no variant.

    Variants are found at any depth and become plain Python objects. The function takes values as
    :func:`~.extreme_times.to_python` returns them, with maps as dictionaries. A date or timestamp in a variant becomes
    ISO 8601 text, since Python cannot represent all of them.

    :param kind: Arrow type of the column
    """
    import pyarrow as pa

    if is_variant(kind):
        return lambda value: _variant_decoder().to_python(value["value"], value["metadata"])
    if pa.types.is_struct(kind):
        parts = {field.name: found for field in kind for found in [decoder(field.type)] if found is not None}
        return _struct_decoder(parts) if parts else None
    if pa.types.is_map(kind):
        inner = decoder(kind.item_type)
        return _map_decoder(inner) if inner is not None else None
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = decoder(kind.value_type)
        return _list_decoder(inner) if inner is not None else None
    return None


def _struct_decoder(parts: Mapping[str, _Decode]) -> _Decode:
    return lambda value: {
        name: parts[name](item) if name in parts and item is not None else item for name, item in value.items()
    }


def _map_decoder(inner: _Decode) -> _Decode:
    return lambda value: {key: None if item is None else inner(item) for key, item in value.items()}


def _list_decoder(inner: _Decode) -> _Decode:
    return lambda value: [None if item is None else inner(item) for item in value]


@cache
def _variant_decoder() -> Any:
    import pyarrow as pa
    from pyspark.sql.variant_utils import VariantUtils

    class Variants(VariantUtils):
        """PySpark's variant decoder, changed to keep all digits of decimals and to return dates and times as text."""

        @classmethod
        def _get_decimal(cls, value: bytes, pos: int) -> decimal.Decimal:
            with decimal.localcontext(prec=_MAX_DIGITS):
                found: decimal.Decimal = super()._get_decimal(value, pos)
            return found

        @classmethod
        def _get_date(cls, value: bytes, pos: int) -> Any:
            days = pa.array([cls._read_long(value, pos + 1, 4, signed=True)], pa.int32())
            return extreme_times.to_iso(days.cast(pa.date32()))[0].as_py()

        @classmethod
        def _get_timestamp(cls, value: bytes, pos: int, zone_id: str) -> Any:  # noqa: ARG003  # always UTC
            zone = None if cls._get_type_info(value, pos)[1] == cls.TIMESTAMP_NTZ else "UTC"
            instant = pa.array([cls._read_long(value, pos + 1, 8, signed=True)], pa.int64())
            return extreme_times.to_iso(instant.cast(pa.timestamp("us", zone)))[0].as_py()

    return Variants
