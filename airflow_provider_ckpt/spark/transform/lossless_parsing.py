"""Build SQL conditions that find records with a parsed value that differs from the record's text.

``from_json`` parses ``"1,5"`` as 15 and the byte 255 as -1, ``from_csv`` parses ``0x1p4`` as 16, and there are more
such cases. So a record is parsed a second time with the affected fields as text, and each value is compared with its
text. For JSON, a regular expression first looks for values in an unusual notation; a record without one is not parsed
again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from airflow_provider_ckpt.spark.sql import literal, quote
from airflow_provider_ckpt.spark.transform.strict_parsing import JSON_DIALECT, csv_dialect
from airflow_provider_ckpt.spark.transform.text_agreement import CSV_RULES, JSON_RULES, NUMBER_PREFIX, Rules

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField

_STRING = r'"(?:[^"\\]++|\\.)*+"'
_NEXT_NUMBER = rf'\G((?:[^"0-9-]++|{_STRING})*+)(-?[0-9][0-9.eE+-]*+)'
_HUGE = r"[0-9][eE]\+?[0-9]{3}|(?<![0-9])[0-9]{200}"
"""Regular expression for a number, anywhere in a record, that may be infinite when it is read as a double."""

_MAX_SEARCHED_FIELDS = 30
"""Number of fields above which parsing each record again takes less time than searching it with one regular expression
for all fields.
"""

_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?+(?:Z|[+-][0-9]{2}:[0-9]{2})?+"
_FRACTION = r"-?[0-9]{1,38}(?:\.[0-9]++)?+(?:[eE]-[0-9]++)?+(?![0-9.eE+])"
_USUAL = {
    "byte": r"-?(?:[0-9]{1,2}|1[01][0-9])(?![0-9])",
    "decimal": "-?[0-9]",
    "double": _FRACTION,
    "float": _FRACTION,
    "date": f'"{_DAY}"',
    "timestamp": f'"{_DAY}[T ]{_TIME}"',
    "timestamp_ntz": f'"{_DAY}[T ]{_TIME}"',
    "string": f"(?:{_STRING}|true|false)",
}
"""By Spark type name, a regular expression for the JSON notations that ``from_json`` parses without altering
the value.
"""

_ESCAPED_BY_NUMBER_ONLY = re.compile(r'[^"\\/\x00-\x1f]+')
r"""Pattern of field names without quotes, backslashes, slashes and control characters. JSON has short escapes for those
(such as `` ``); every other character can be escaped only by its number (``\u0041``).
"""


def is_lossy(fields: Iterable[StructField], columns: Mapping[str, str], text: str, *, delimiter: str | None) -> str:
    """Return a SQL condition that is true if a parsed column differs from its text, as 15 differs from ``"1,5"``.

    :param fields: fields of the schema
    :param columns: by field name, SQL expression of the parsed column
    :param text: SQL expression of the text of a record that Spark's parser can parse
    :param delimiter: delimiter of CSV fields; None for JSON
    """
    fields = list(fields)
    rules = JSON_RULES if delimiter is None else CSV_RULES
    found = [
        _is_lossy_value(field.dataType, columns[field.name], f"own.{quote(field.name)}", rules) for field in fields
    ]
    condition = _any(found)
    if condition is None:
        return "false"
    any_differs = f"exists(array({_parsed_as_text(fields, text, delimiter)}), own -> {condition})"
    return any_differs if delimiter is not None else f"{_has_unusual_notation(fields, text)} AND {any_differs}"


def any_decimal(
    fields: Iterable[StructField], text: str, condition: Callable[[str], str], *, delimiter: str | None
) -> str | None:
    """Return a SQL condition that is true if the text of at least one decimal of a record meets a given condition.

    Decimals inside structs, arrays and maps count, too.

    :param fields: fields of the schema
    :param text: SQL expression of the record's text
    :param condition: function that gets the SQL expression of a decimal's text and returns the condition in SQL. The
        text of a JSON number has a prefix of :data:`.text_agreement.NUMBER_PREFIX_LENGTH` characters, which the record
        does not have
    :param delimiter: delimiter of CSV fields; None for JSON
    :return: None if the schema has no decimals
    """
    fields = list(fields)
    rules: Rules = {"decimal": lambda _, own: f"NOT {condition(own)}"}
    own_texts = [f"own.{quote(field.name)}" for field in fields]
    found = _any(_is_lossy_value(field.dataType, own, own, rules) for field, own in zip(fields, own_texts, strict=True))
    return f"exists(array({_parsed_as_text(fields, text, delimiter)}), own -> {found})" if found else None


def _parsed_as_text(fields: Iterable[StructField], text: str, delimiter: str | None) -> str:
    """Return SQL that parses a record a second time, with the text of each value in place of the value.

    :param fields: fields of the schema
    :param text: SQL expression of the record's text
    :param delimiter: delimiter of CSV fields; None for JSON
    """
    if delimiter is None:
        return f"from_json({_with_numbers_as_text(text)}, {literal(_as_texts(fields))}, map({JSON_DIALECT}))"
    schema = ", ".join(f"{quote(field.name)} string" for field in fields)
    return f"from_csv({text}, {literal(schema)}, map({csv_dialect(delimiter)}))"


def _is_lossy_value(kind: DataType, value: str, own: str, rules: Rules, depth: int = 0) -> str | None:
    """Return a SQL condition that is true if a parsed value differs from its text.

    It returns None if the parser never alters values of this type.

    :param kind: Spark type of the value
    :param value: SQL expression of the parsed value
    :param own: SQL expression of the value's text or, for a nested value, of a struct, array or map of texts
    :param rules: functions that return the condition for a value that is not nested, by the value's type
    :param depth: number of arrays and maps that contain the value; it makes the names of lambda variables unique
    """
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        names = [(field.dataType, quote(field.name)) for field in kind.fields]
        return _any(_is_lossy_value(inside, f"{value}.{name}", f"{own}.{name}", rules, depth) for inside, name in names)
    if isinstance(kind, t.ArrayType | t.MapType):
        item, its_own = f"item{depth}", f"own{depth}"
        condition = _is_lossy_value(_element_type(kind), item, its_own, rules, depth + 1)
        if isinstance(kind, t.MapType):
            value, own = f"map_values({value})", f"map_values({own})"
        pairs = f"zip_with({value}, {own}, ({item}, {its_own}) -> {condition})"
        return f"coalesce(exists({pairs}, found -> found), false)" if condition else None
    rule = rules.get(kind.typeName())
    return f"({value} IS NOT NULL AND NOT coalesce({rule(value, own)}, false))" if rule else None


def _any(conditions: Iterable[str | None]) -> str | None:
    """Return a SQL condition that is true if at least one of the given conditions is true; None without conditions.

    :param conditions: SQL conditions; None entries are ignored
    """
    found = [condition for condition in conditions if condition]
    return f"({' OR '.join(found)})" if found else None


def _element_type(kind: DataType) -> DataType:
    """Return the type of an array's elements or of a map's values; any other type is returned unchanged."""
    from pyspark.sql import types as t

    if isinstance(kind, t.ArrayType):
        return kind.elementType
    return kind.valueType if isinstance(kind, t.MapType) else kind


def _with_numbers_as_text(text: str) -> str:
    """Return SQL that turns each number of a JSON record into a string, such as ``1.5`` into ``"number123:1.5"``.

    :param text: SQL expression of the record's text, a strict JSON document
    """
    marked = f'$1"{NUMBER_PREFIX}$2"'
    return f"regexp_replace({text}, {literal(_NEXT_NUMBER)}, {literal(marked)})"


def _as_texts(fields: Iterable[StructField], *, colon: str = "") -> str:
    """Return a schema in Spark's DDL that reads as text those values that parsers may alter; other fields are left out.

    :param fields: fields of a schema or a struct
    :param colon: separator between name and type: ``:`` inside a struct, else empty
    """
    kinds = {field.name: _as_text(field.dataType) for field in fields}
    return ", ".join(f"{quote(name)}{colon} {kind}" for name, kind in kinds.items() if kind)


def _as_text(kind: DataType) -> str | None:
    """Return the DDL of a type with ``string`` in place of the types of its values, such as ``array<string>``.

    The result is None if parsers never alter values of this type.

    :param kind: Spark type of a field or of a part of it
    """
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        members = _as_texts(kind.fields, colon=":")
        return f"struct<{members}>" if members else None
    if isinstance(kind, t.ArrayType | t.MapType):
        inside = _as_text(_element_type(kind))
        wrapped = f"array<{inside}>" if isinstance(kind, t.ArrayType) else f"map<string, {inside}>"
        return wrapped if inside else None
    return "string" if kind.typeName() in JSON_RULES else None


def _has_unusual_notation(fields: Iterable[StructField], text: str) -> str:
    """Return a SQL condition that is true if a JSON record may have a value in a notation that ``from_json`` alters.

    A regular expression finds the fields by name, at any depth. It would not find a name that is written with an
    escape, so the condition is also true for a record with an escape.

    :param fields: fields of the schema
    :param text: SQL expression of the record's text
    """
    members = dict.fromkeys(_searched_fields(fields))
    if len(members) > _MAX_SEARCHED_FIELDS:
        return "true"
    escape = "\\u" if all(_ESCAPED_BY_NUMBER_ONLY.fullmatch(name) for name, _ in members) else "\\"
    found = [rf'{re.escape(name)}"\s*+:\s*+(?!{usual}|null)' for name, usual in members if usual]
    anything = [] if all(usual for _, usual in members) else [_HUGE]
    expression = "|".join([f'"(?:{"|".join(found)})', *anything] if found else anything)
    return f"(contains({text}, {literal(escape)}) OR {text} RLIKE {literal(expression)})"


def _searched_fields(fields: Iterable[StructField]) -> Iterator[tuple[str, str | None]]:
    """Yield the name of each field whose value ``from_json`` may alter, and a pattern of the notations that are safe.

    The pattern is None for a type without such notations. Fields of structs are yielded by their own names.

    :param fields: fields of a schema or a struct
    """
    from pyspark.sql import types as t

    for field in fields:
        kind = field.dataType
        while isinstance(kind, t.ArrayType | t.MapType):
            kind = _element_type(kind)
        if isinstance(kind, t.StructType):
            yield from _searched_fields(kind.fields)
        elif kind.typeName() in JSON_RULES:
            yield field.name, _usual(field.dataType)


def _usual(kind: DataType) -> str | None:
    """Return a regular expression for the JSON notations that ``from_json`` parses without altering the value.

    The result is None if the type has no such notations.

    :param kind: Spark type of a field
    """
    from pyspark.sql import types as t

    if not isinstance(kind, t.ArrayType | t.MapType):
        return _USUAL.get(kind.typeName())
    inside = _usual(_element_type(kind))
    name, ends = ("", "[]") if isinstance(kind, t.ArrayType) else (rf"{_STRING}\s*+:\s*+", "{}")
    items = rf"(?:\s*+{name}(?:{inside}|null)\s*+,?+)*+\s*+"
    return rf"\{ends[0]}{items}\{ends[1]}" if inside else None
