"""What Spark's JSON and CSV parsers take and no record may be: SQL conditions over its text and parsed columns.

``from_json`` takes trailing text, a name that comes twice and half a surrogate pair; ``from_csv`` takes quotes that are
never closed. What most records look like is told at a glance; only the others are looked at closely. What the parsers
make of single values is held against them in ``exactness.py``.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from airflow_provider_ckpt.spark.sql import literal

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
    commas = f"octet_length({text}) - octet_length(replace({text}, ',', ''))"
    at_a_glance = [
        f"{commas} = {len(columns) - 1}",
        f"startswith({text}, '{{')",
        f"instr({text}, '}}') = char_length({text})",
        f"NOT contains({text}, {literal(chr(92) + 'u')})",
        *(f"{column} IS NOT NULL" for column in columns),
    ]
    return f"(({' AND '.join(at_a_glance)}) OR {one_json_value(text)})"


def one_json_value(text: str) -> str:
    """A condition: the record is one strict JSON value, in which no name comes twice. See :func:`of_json`.

    :param text: SQL
    """
    sentinel = secrets.randbits(_RANDOM_BITS)
    return f"try_variant_get(try_parse_json(concat('[', {text}, ',{sentinel}]')), '$[1]', 'bigint') <=> {sentinel}"


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
