"""SQL condition that keeps decimals from Spark's parsers that would take them minutes or hours to parse.

The time in which Java reads a decimal grows with the square of the number of its digits. To round a decimal with an
exponent, Java computes a number with as many digits as the exponent says: ``1e999999999`` has eleven bytes and takes
hours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow_provider_ckpt.spark.sql import literal
from airflow_provider_ckpt.spark.transform import lossless_parsing, strict_parsing, text_agreement

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField

MAX_LENGTH = 1_000
"""Largest number of characters of a decimal that is parsed. Its exponent has at most three digits."""

_EXPONENT = r"[eE][+-]?+0*+\p{IsDigit}{4}"
_CHARACTER = r"[\p{IsDigit},.]"
_LONG = rf"(?<!{_CHARACTER}){_CHARACTER}{{{MAX_LENGTH + 1}}}"


def has_short_decimals(fields: Iterable[StructField], text: str, *, delimiter: str | None) -> str | None:
    """Return a SQL condition that is true if all decimals of a record are short enough to be parsed fast.

    A regular expression accepts most records, which have no long number and no large exponent anywhere. In the others,
    the text of each decimal is checked. A JSON record in which a name occurs twice then fails the condition, since only
    one of the two decimals would be checked.

    :param fields: fields of the schema
    :param text: SQL expression of the record's text
    :param delimiter: delimiter of CSV fields; None for JSON
    :return: None if the schema has no decimals
    """
    fields = list(fields)
    if not any(_has_decimals(field.dataType) for field in fields):
        return None
    long = f"(octet_length({text}) > {MAX_LENGTH} AND {text} RLIKE {literal(_LONG)})"
    may_be_long = f"{long} OR {text} RLIKE {literal(_EXPONENT)}"
    longest = MAX_LENGTH if delimiter is not None else MAX_LENGTH + text_agreement.NUMBER_PREFIX_LENGTH
    too_long = lossless_parsing.any_decimal(
        fields,
        text,
        lambda own: f"(length({own}) > {longest} OR {own} RLIKE {literal(_EXPONENT)})",
        delimiter=delimiter,
    )
    strict = "" if delimiter is not None else f"{strict_parsing.is_one_json_value(text)} AND "
    return f"(NOT ({may_be_long}) OR ({strict}NOT coalesce({too_long}, false)))"


def _has_decimals(kind: DataType) -> bool:
    """Return whether a type is a decimal, or contains one at any depth."""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        return any(_has_decimals(field.dataType) for field in kind.fields)
    if isinstance(kind, t.ArrayType):
        return _has_decimals(kind.elementType)
    if isinstance(kind, t.MapType):
        return _has_decimals(kind.valueType)
    return isinstance(kind, t.DecimalType)
