"""Whether Spark's parsers made of each field what is written in it: a SQL condition over a record's text and columns.

``from_json`` makes 15 of ``"1,5"`` and -1 of the byte 255, ``from_csv`` makes 16 of ``0x1p4``, and more. So a record is
parsed a second time, with such fields as texts, and each value is held against its own text. JSON is looked at by one
regular expression before, which knows the usual ways to write such fields; a record that keeps to them is done with.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from airflow_provider_ckpt.spark.sql import literal, quote
from airflow_provider_ckpt.spark.transform.strict_parsing import JSON_DIALECT, csv_dialect

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField

Rules = Mapping[str, Callable[[str, str], str]]
"""Of each type that a parser may alter: SQL of a value and its own text, true where the one is what the other says."""

_MARK = f"number{secrets.randbits(62)}:"
"""Stands before a number in its own text, so that no text can be taken for one: nobody can guess it."""

MARK_LENGTH = len(_MARK)
"""Characters by which :func:`parsed_again` makes the text of a JSON number longer."""

_STRING = r'"(?:[^"\\]++|\\.)*+"'
_NEXT_NUMBER = rf'\G((?:[^"0-9-]++|{_STRING})*+)(-?[0-9][0-9.eE+-]*+)'
_HUGE = r"[0-9][eE]\+?[0-9]{3}|(?<![0-9])[0-9]{200}"
"""A number that may be infinite as a double, wherever it is."""

_MANY = 30
"""Fields beyond which parsing a record again takes less time than looking for all of them by one expression."""

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
"""Of each type in JSON, values that ``from_json`` does not alter."""

_SPELT_ONE_WAY = re.compile(r'[^"\\/\x00-\x1f]+')
"""Names whose characters JSON escapes by their numbers, if at all."""


def altered(fields: Iterable[StructField], columns: Mapping[str, str], text: str, *, delimiter: str | None) -> str:
    """A condition: some parsed column is not what the record says.

    :param fields: of the schema
    :param columns: SQL of each parsed column by its field's name
    :param text: SQL of a record that its parser can bear
    :param delimiter: of CSV's fields, None for JSON
    """
    fields = list(fields)
    rules = _JSON if delimiter is None else _CSV
    found = [_altered(field.dataType, columns[field.name], f"own.{quote(field.name)}", rules) for field in fields]
    condition = _any(found)
    if condition is None:
        return "false"
    again = f"exists(array({_own(fields, text, delimiter)}), own -> {condition})"
    return again if delimiter is not None else f"{_unusual(fields, text)} AND {again}"


def parsed_again(
    fields: Iterable[StructField], text: str, condition: Callable[[str], str], *, delimiter: str | None
) -> str | None:
    """A condition: it holds for the own text of some decimal, at any depth. None where there are no decimals.

    :param fields: of the schema
    :param text: SQL of a record
    :param condition: SQL of it for a decimal's text, in which a number of JSON is longer by :data:`MARK_LENGTH`
    :param delimiter: of CSV's fields, None for JSON
    """
    fields = list(fields)
    rules: Rules = {"decimal": lambda _, own: f"NOT {condition(own)}"}
    owns = [f"own.{quote(field.name)}" for field in fields]
    found = _any(_altered(field.dataType, own, own, rules) for field, own in zip(fields, owns, strict=True))
    return f"exists(array({_own(fields, text, delimiter)}), own -> {found})" if found else None


def _own(fields: Iterable[StructField], text: str, delimiter: str | None) -> str:
    """The record, parsed with texts in place of its values."""
    if delimiter is None:
        return f"from_json({_marked(text)}, {literal(_as_texts(fields))}, map({JSON_DIALECT}))"
    schema = ", ".join(f"{quote(field.name)} string" for field in fields)
    return f"from_csv({text}, {literal(schema)}, map({csv_dialect(delimiter)}))"


def _altered(kind: DataType, value: str, own: str, rules: Rules, depth: int = 0) -> str | None:
    """The condition for one value and its own text, or None where nothing can have happened to it."""
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        names = [(field.dataType, quote(field.name)) for field in kind.fields]
        return _any(_altered(inside, f"{value}.{name}", f"{own}.{name}", rules, depth) for inside, name in names)
    if isinstance(kind, t.ArrayType | t.MapType):
        item, its_own = f"item{depth}", f"own{depth}"
        condition = _altered(_inside(kind), item, its_own, rules, depth + 1)
        if isinstance(kind, t.MapType):
            value, own = f"map_values({value})", f"map_values({own})"
        pairs = f"zip_with({value}, {own}, ({item}, {its_own}) -> {condition})"
        return f"coalesce(exists({pairs}, found -> found), false)" if condition else None
    rule = rules.get(kind.typeName())
    return f"({value} IS NOT NULL AND NOT coalesce({rule(value, own)}, false))" if rule else None


def _any(conditions: Iterable[str | None]) -> str | None:
    found = [condition for condition in conditions if condition]
    return f"({' OR '.join(found)})" if found else None


def _inside(kind: DataType) -> DataType:
    """What an array or a map is of; any other type is of itself."""
    from pyspark.sql import types as t

    if isinstance(kind, t.ArrayType):
        return kind.elementType
    return kind.valueType if isinstance(kind, t.MapType) else kind


def _marked(text: str) -> str:
    """A strict JSON document with its numbers as texts, each behind the mark."""
    marked = f'$1"{_MARK}$2"'
    return f"regexp_replace({text}, {literal(_NEXT_NUMBER)}, {literal(marked)})"


def _as_texts(fields: Iterable[StructField], *, colon: str = "") -> str:
    """DDL of the fields, as far as there are rules for them, with texts in place of their values."""
    kinds = {field.name: _as_text(field.dataType) for field in fields}
    return ", ".join(f"{quote(name)}{colon} {kind}" for name, kind in kinds.items() if kind)


def _as_text(kind: DataType) -> str | None:
    from pyspark.sql import types as t

    if isinstance(kind, t.StructType):
        members = _as_texts(kind.fields, colon=":")
        return f"struct<{members}>" if members else None
    if isinstance(kind, t.ArrayType | t.MapType):
        inside = _as_text(_inside(kind))
        wrapped = f"array<{inside}>" if isinstance(kind, t.ArrayType) else f"map<string, {inside}>"
        return wrapped if inside else None
    return "string" if kind.typeName() in _JSON else None


def _unusual(fields: Iterable[StructField], text: str) -> str:
    """A condition: the record may have a field that is not written in a usual way.

    A field is found by its name, at any depth, and what is not looked for is a name with an escape in it.
    """
    members = dict.fromkeys(_members(fields))
    if len(members) > _MANY:
        return "true"
    escape = "\\u" if all(_SPELT_ONE_WAY.fullmatch(name) for name, _ in members) else "\\"
    found = [rf'{re.escape(name)}"\s*+:\s*+(?!{usual}|null)' for name, usual in members if usual]
    anything = [] if all(usual for _, usual in members) else [_HUGE]
    expression = "|".join([f'"(?:{"|".join(found)})', *anything] if found else anything)
    return f"(contains({text}, {literal(escape)}) OR {text} RLIKE {literal(expression)})"


def _members(fields: Iterable[StructField]) -> Iterator[tuple[str, str | None]]:
    """The names that may come in a record and the usual ways to write what they have; None where it may be anything."""
    from pyspark.sql import types as t

    for field in fields:
        kind = field.dataType
        while isinstance(kind, t.ArrayType | t.MapType):
            kind = _inside(kind)
        if isinstance(kind, t.StructType):
            yield from _members(kind.fields)
        elif kind.typeName() in _JSON:
            yield field.name, _usual(field.dataType)


def _usual(kind: DataType) -> str | None:
    from pyspark.sql import types as t

    if not isinstance(kind, t.ArrayType | t.MapType):
        return _USUAL.get(kind.typeName())
    inside = _usual(_inside(kind))
    name, ends = ("", "[]") if isinstance(kind, t.ArrayType) else (rf"{_STRING}\s*+:\s*+", "{}")
    items = rf"(?:\s*+{name}(?:{inside}|null)\s*+,?+)*+\s*+"
    return rf"\{ends[0]}{items}\{ends[1]}" if inside else None


def _number(own: str) -> str:
    return f"replace({own}, '{_MARK}', '')"


def _is_finite(value: str, _: str) -> str:
    return f"abs({value}) < cast('Infinity' AS double)"


def _is_day(value: str, own: str) -> str:
    """A cast lets anything follow a day and one of these characters."""
    alone = f"{own} NOT RLIKE '[T ]'"
    return f"try_cast({own} AS date) = {value} AND ({alone} OR try_cast({own} AS timestamp_ntz) IS NOT NULL)"


def _is_time(value: str, own: str, kind: str = "timestamp") -> str:
    """A time without a day would be one of today."""
    year = literal(r"\A\s*+[+-]?+[0-9]{4}")
    return f"{own} RLIKE {year} AND try_cast({own} AS {kind}) = {value}"


def _is_time_without_zone(value: str, own: str) -> str:
    return _is_time(value, own, "timestamp_ntz")


def _is_time_or_seconds(value: str, own: str) -> str:
    """Too large a number of seconds wraps around."""
    return f"({_is_time(value, own)}) OR try_cast({_number(own)} AS bigint) = unix_seconds({value})"


def _is_text(value: str, own: str) -> str:
    """A number in place of a text, or in an object or array in place of one, is written anew."""
    inside = literal(f'"{_MARK}([^"]*+)"')
    unmarked = _number(f"regexp_replace({own}, {inside}, '$1')")
    return f"{unmarked} = {value}"


def _is_bounded(_: str, own: str) -> str:
    """A variant has the nearest double of a number that is no decimal; of null it has one that is a value."""
    numbers = f"regexp_extract_all({own}, {literal(f'{_MARK}([0-9.eE+-]++)')}, 1)"
    infinite = f"exists({numbers}, number -> abs(try_cast(number AS double)) = cast('Infinity' AS double))"
    return f"NOT coalesce({infinite}, false)"


def _is_number(value: str, own: str) -> str:
    """Java takes hexadecimal numbers, letters that tell a type, and spaces around."""
    number = literal(r"\A[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+\z")
    no_number = literal(r"\A(?:[+-]?+Inf(?:inity)?+|NaN)\z")
    return f"({own} RLIKE {number} AND {_is_finite(value, own)}) OR {own} RLIKE {no_number}"


_JSON: Rules = {
    "byte": lambda value, own: f"try_cast({_number(own)} AS int) = {value}",
    "decimal": lambda _, own: f"startswith({own}, '{_MARK}')",
    "double": _is_finite,
    "float": _is_finite,
    "date": _is_day,
    "timestamp": _is_time_or_seconds,
    "timestamp_ntz": _is_time_without_zone,
    "string": _is_text,
    "variant": _is_bounded,
}
_CSV: Rules = {
    "decimal": lambda _, own: f"NOT contains({own}, ',')",
    "double": _is_number,
    "float": _is_number,
    "date": _is_day,
    "timestamp": _is_time,
    "timestamp_ntz": _is_time_without_zone,
}
