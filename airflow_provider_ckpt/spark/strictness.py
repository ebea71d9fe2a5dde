"""What Spark's JSON and CSV parsers let pass and a record may not be: SQL conditions over its text and parsed columns.

``from_json`` takes trailing text, a name that comes twice and half a surrogate pair; both parsers make infinity of a
number that is too large, and more. What most records look like is told at a glance; only the others are parsed twice.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.spark.sql import literal, quote

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField

JSON_DIALECT = "'allowNonNumericNumbers', 'false', 'allowSingleQuotes', 'false'"
"""Options of ``from_json``: what it would allow by default."""

_FIELDS = 20_480
"""Fields at which Spark's CSV parser gives up, and the task with it."""

_NO_CHARACTER = "\uffff"
"""Ends a record for Spark's CSV parser, which ignores whatever follows."""

_RANDOM_BITS = 62


def of_json(text: str, columns: Sequence[str]) -> str:
    """A condition: the record is one strict JSON document, provided that ``from_json`` made an object of it.

    At a glance: the first closing brace is its last character, so nothing is nested and nothing follows. It has as many
    commas as are between its columns, and no column is null: so each name comes once, and no other. And no character is
    written as an escape by number, so none is half a surrogate pair.

    Otherwise by a second parser, which is strict: of an array of the record and a number that nobody can guess, that
    number is the second element only if the record is exactly one value.

    :param text: SQL
    :param columns: SQL of each parsed column
    """
    sentinel = secrets.randbits(_RANDOM_BITS)
    by_parser = f"try_variant_get(try_parse_json(concat('[', {text}, ',{sentinel}]')), '$[1]', 'bigint') <=> {sentinel}"
    commas = f"octet_length({text}) - octet_length(replace({text}, ',', ''))"
    at_a_glance = [
        f"{commas} = {len(columns) - 1}",
        f"startswith({text}, '{{')",
        f"instr({text}, '}}') = char_length({text})",
        f"NOT contains({text}, {literal(chr(92) + 'u')})",
        *(f"{column} IS NOT NULL" for column in columns),
    ]
    return f"(({' AND '.join(at_a_glance)}) OR {by_parser})"


def csv_dialect(delimiter: str) -> str:
    """Options of ``from_csv`` for RFC 4180: a quote inside quotes is doubled."""
    return f"'sep', {literal(delimiter.replace(chr(92), chr(92) * 2))}, 'escape', '\"'"


def of_csv(text: str, columns: int) -> str:
    """A condition: the record is not one of which ``from_csv`` would leave something out.

    An empty line has no fields, and would be all nulls; a byte order mark would be dropped.
    """
    empty = "" if columns == 1 else f"{text} <> '' AND "
    return f"({empty}NOT startswith({text}, '\ufeff'))"


def bearable_csv(text: str, delimiter: str, columns: int) -> str:
    """A condition: the parser is up to the record, and its quotes are those of RFC 4180.

    Told at a glance where there is no quote and too little text for too many fields. Otherwise by an expression that
    never backtracks: a quote that opens a field is followed by the one that closes it, and that by the field's end. The
    parser itself would take spaces there, and quotes that are never closed.

    :param columns: of the schema
    """
    mark = re.escape(delimiter)
    field = f'(?:"(?:[^"]++|"")*+"|[^"{mark}][^{mark}]*+|)'
    record = rf"\A(?:{field}{mark}){{{columns - 1}}}+{field}\z"
    glance = f"octet_length({text}) < {_FIELDS} AND NOT contains({text}, '\"')"
    return f"NOT contains({text}, '{_NO_CHARACTER}') AND (({glance}) OR {text} RLIKE {literal(record)})"


def altered(fields: Iterable[StructField], columns: Mapping[str, str], text: str, *, delimiter: str | None) -> str:
    """A condition: some parsed column is not what the record says.

    :param fields: of the schema
    :param columns: SQL of each parsed column by its field's name
    :param text: SQL of the record
    :param delimiter: of CSV's fields, None for JSON
    """
    found = [_altered(field.dataType, columns[field.name], text, delimiter) for field in fields]
    return _any(found) or "false"


def _altered(kind: DataType, value: str, text: str, delimiter: str | None) -> str | None:
    """The condition for one value, or None where nothing can have happened to it."""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        return _any(_altered(field.dataType, f"{value}.{quote(field.name)}", text, delimiter) for field in kind.fields)
    if isinstance(kind, t.ArrayType | t.MapType):
        inside = kind.elementType if isinstance(kind, t.ArrayType) else kind.valueType
        condition = _altered(inside, "item", text, delimiter)
        values = value if isinstance(kind, t.ArrayType) else f"map_values({value})"
        return f"coalesce(exists({values}, item -> {condition}), false)" if condition else None
    if isinstance(kind, t.DoubleType | t.FloatType):
        named = f" AND NOT contains({text}, 'Inf')" if delimiter is not None else ""
        return f"coalesce(abs({value}) = cast('Infinity' AS double){named}, false)"
    if isinstance(kind, t.ByteType):
        return f"coalesce(NOT contains({text}, cast({value} AS string)), false)"
    if isinstance(kind, t.TimestampType | t.TimestampNTZType):
        return f"coalesce(NOT ({_told_instant(value, text, zoned=isinstance(kind, t.TimestampType))}), false)"
    if isinstance(kind, t.DateType):
        return f"coalesce({_junk_behind(value, text, delimiter)}, false)"
    if isinstance(kind, t.StringType) and delimiter is None:
        return f"coalesce({_number_as_text(value, text)}, false)"
    return None


def _any(conditions: Iterable[str | None]) -> str | None:
    found = [condition for condition in conditions if condition]
    return f"({' OR '.join(found)})" if found else None


def _told_instant(value: str, text: str, *, zoned: bool) -> str:
    """The year, give or take a zone, is in the record, or the seconds since 1970 are.

    A number of seconds that is too large wraps around, and a time without a day is taken as one of today.
    """
    days = (0, 1, -1) if zoned else (0,)
    years = [f"contains({text}, cast(abs(year(date_add(cast({value} AS date), {day}))) AS string))" for day in days]
    seconds = [f"contains({text}, cast(unix_seconds({value}) AS string))"] if zoned else []
    return " OR ".join([*years, *seconds])


def _junk_behind(value: str, text: str, delimiter: str | None) -> str:
    """A day is followed by something that is no time, which the parsers ignore."""
    day = f"cast({value} AS string)"
    if delimiter is None:
        alone = f"contains({text}, concat('\"', {day}, '\"'))"
    else:
        mark = literal(delimiter)
        alone = f"contains(concat({mark}, {text}, {mark}), concat({mark}, {day}, {mark}))"
    behind = f"substr({text}, instr({text}, {day}) + char_length({day}), 2)"
    return f"NOT {alone} AND {behind} RLIKE '^[T ][^0-9]'"


def _number_as_text(value: str, text: str) -> str:
    """A number in place of a text, or in an object or array in place of one, was written anew and lost something.

    A fraction or an exponent comes out with a point, or as infinity; all its digits must be in the record, in a row.
    """
    fraction = f"(contains({value}, '.') OR contains({value}, 'Infinity\"'))"
    was_text = f"contains({text}, concat('\"', {value}, '\"'))"
    infinite = f"contains({value}, 'Infinity\"') AND NOT contains({text}, 'Infinity\"')"
    escapes = literal(r"\\u[0-9a-fA-F]{4}")
    there = f"regexp_replace(regexp_replace({text}, {escapes}, ''), '[^0-9.]+', ' ')"
    anew = f"{infinite} OR NOT contains({there}, regexp_replace({value}, '[^0-9.]+', ' '))"
    return f"{fraction} AND NOT {was_text} AND ({anew})"
