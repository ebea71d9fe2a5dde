"""SQL conditions that find malformed records which Spark's permissive parsers accept.

``from_json`` accepts trailing text, a name that occurs twice and half a surrogate pair; ``from_csv`` accepts quotes
that are never closed. A cheap test accepts most records, and only the others take the full one. ``lossless_parsing.py``
checks that the parsers do not alter single values.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

from airflow_provider_ckpt.spark.sql import literal

JSON_DIALECT = "'allowNonNumericNumbers', 'false', 'allowSingleQuotes', 'false'"
"""Options of ``from_json`` that make it refuse non-numeric numbers and single quotes, which it accepts by default."""

_MAX_FIELDS = 20_480
"""Number of fields from which Spark's CSV parser raises an error that fails the Spark task."""

_CSV_END = "\uffff"
"""Character at which Spark's CSV parser ends a record; it ignores the text after it."""

_RANDOM_BITS = 62


def is_strict_json(text: str, columns: Sequence[str]) -> str:
    """Return a SQL condition that is true if a record that ``from_json`` parsed is one strict JSON document.

    Cheap test: the first closing brace is the last character, so nothing is nested and nothing follows. There are as
    many commas as between the columns, and no column is null, so each name occurs once and there are no others. No
    character is escaped by its number, so there is no half surrogate pair.

    Full test, by a second parser, which is strict: it parses an array of the record and a random number. That number is
    the second element only if the record is exactly one value.

    :param text: SQL expression of the record's text
    :param columns: SQL expression of each parsed column
    """
    commas = f"octet_length({text}) - octet_length(replace({text}, ',', ''))"
    quick_checks = [
        f"{commas} = {len(columns) - 1}",
        f"startswith({text}, '{{')",
        f"instr({text}, '}}') = char_length({text})",
        f"NOT contains({text}, {literal(chr(92) + 'u')})",
        *(f"{column} IS NOT NULL" for column in columns),
    ]
    return f"(({' AND '.join(quick_checks)}) OR {is_one_json_value(text)})"


def is_one_json_value(text: str) -> str:
    """Return a SQL condition that is true if the record is one strict JSON value in which no name occurs twice.

    This is the full test of :func:`is_strict_json`.

    :param text: SQL expression of the record's text
    """
    sentinel = secrets.randbits(_RANDOM_BITS)
    return f"try_variant_get(try_parse_json(concat('[', {text}, ',{sentinel}]')), '$[1]', 'bigint') <=> {sentinel}"


def csv_dialect(delimiter: str) -> str:
    """Return the options of ``from_csv`` for RFC 4180, in which a quote inside quotes is doubled, as a SQL list.

    :param delimiter: delimiter of the fields
    """
    return f"'sep', {literal(delimiter.replace(chr(92), chr(92) * 2))}, 'escape', '\"'"


def is_strict_csv(text: str, columns: int) -> str:
    """Return a SQL condition that is true if ``from_csv`` omits no part of the record.

    The parser would return nulls for an empty line, which has no fields, and drop a byte order mark.

    :param text: SQL expression of the record's text
    :param columns: number of the schema's columns
    """
    empty = "" if columns == 1 else f"{text} <> '' AND "
    return f"({empty}NOT startswith({text}, '\ufeff'))"


def is_parsable_csv(text: str, delimiter: str, columns: int) -> str:
    """Return a SQL condition that is true if Spark's CSV parser can parse a record whose quotes conform to RFC 4180.

    Cheap test: the record has no quote, and is too short to have too many fields. Full test, by a regular expression
    that never backtracks: a quote that opens a field is followed by the quote that closes it, and the closing quote by
    the end of the field. The parser itself accepts spaces between the closing quote and the end of the field, and
    quotes that are never closed.

    :param text: SQL expression of the record's text
    :param delimiter: delimiter of the fields
    :param columns: number of the schema's columns
    """
    separator = re.escape(delimiter)
    field = f'(?:"(?:[^"]++|"")*+"|[^"{separator}][^{separator}]*+|)'
    record = rf"\A(?:{field}{separator}){{{columns - 1}}}+{field}\z"
    is_trivial = f"octet_length({text}) < {_MAX_FIELDS} AND NOT contains({text}, '\"')"
    return f"NOT contains({text}, '{_CSV_END}') AND (({is_trivial}) OR {text} RLIKE {literal(record)})"
