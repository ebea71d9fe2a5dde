"""Tells most JSON records from the rest at a glance: those that are just what the schema says, written plainly.

A plain record is one flat object of the schema's fields, each once and in the schema's order, of texts without escapes,
numbers of few digits, truth values and nulls. Such a record is strict JSON, and ``from_json`` takes it as it is meant,
so nothing else needs to be asked of it. All records of an Arrow batch are looked at in one pass, by one expression that
never backtracks; what is not plain is asked everything in the transform.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructField

_SPACE = "[ \t]*"
_TEXT = r'"[^"\\\x00-\x1f\x7f]*"'
_DATE = r"[1-9][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_VALUES = {
    "string": _TEXT,
    "boolean": "true|false",
    "smallint": "-?(?:0|[1-9][0-9]{0,3})",
    "int": "-?(?:0|[1-9][0-9]{0,8})",
    "bigint": "-?(?:0|[1-9][0-9]{0,17})",
    "float": r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,17})?",
    "double": r"-?(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,17})?",
    "date": f'"{_DATE}"',
    "timestamp": f'"{_DATE}T{_TIME}(?:Z|[+-][01][0-9]:[0-5][0-9])"',
}
"""Of each Spark SQL type the values of which ``from_json`` can alter nothing, whatever else they might be taken for."""

_NAME = re.compile("[A-Za-z0-9_ .-]+")
_LONGEST = 4_000
"""Characters of an expression: from about 6,000 on its states outgrow RE2's memory, and it takes 30 times as long."""


def pattern(fields: Iterable[StructField]) -> str | None:
    """An expression (RE2, over bytes) that matches plain records of a schema; None where the schema has none.

    :param fields: the schema's
    """
    members = []
    for field in fields:
        value = _VALUES.get(field.dataType.simpleString())
        if value is None or not _NAME.fullmatch(field.name):
            return None
        members.append(f'"{re.escape(field.name)}"{_SPACE}:{_SPACE}(?:{value}|null)')
    expression = rf"\A\{{{_SPACE}{f'{_SPACE},{_SPACE}'.join(members)}{_SPACE}\}}\r?\z"
    return expression if members and len(expression) <= _LONGEST else None


def plain(values: pa.Array, expression: str) -> pa.Array:
    """Which records match.

    :param values: binary
    :param expression: as :func:`pattern` gave it
    :returns: boolean; null where the value is
    """
    import pyarrow.compute as pc

    return pc.match_substring_regex(values, expression)
