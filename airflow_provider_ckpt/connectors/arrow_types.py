"""Convert data types between Spark SQL and Arrow.

Supported types are mapped as Spark maps them; every other type raises an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
    "char": "string",
    "varchar": "string",
}
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|[^\s`<>,:()]+|[<>,:()])")


def to_arrow(kind: str) -> pa.DataType:
    """Return the Arrow type that Spark itself uses for a Spark SQL type.

    :param kind: type in Spark's DDL, such as ``decimal(9,2)`` or ``array<struct<a: int>>``
    :raises ValueError: if the text is not a type, or Arrow has no such type
    """
    tokens = _TOKEN.findall(kind)
    found, rest = _parse(tokens, kind)
    if rest:
        raise ValueError(f"{kind} is not a Spark SQL type: {rest[0]!r} is unexpected")
    return found


def to_spark(kind: pa.DataType) -> str:
    """Return the Spark SQL type, as DDL, that can hold all values of an Arrow type.

    An unsigned integer gets the next larger signed type or a decimal, and a dictionary the type of its values.

    :raises ValueError: if Spark has no such type; the message names the Arrow type
    """
    import pyarrow as pa

    is_ = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return to_spark(kind.storage_type)
    if is_.is_dictionary(kind):
        return to_spark(kind.value_type)
    if is_.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision},{kind.scale})"
    if is_.is_list(kind) or is_.is_large_list(kind) or is_.is_fixed_size_list(kind):
        return f"array<{to_spark(kind.value_type)}>"
    if is_.is_map(kind):
        return f"map<{to_spark(kind.key_type)},{to_spark(kind.item_type)}>"
    if is_.is_struct(kind) and kind.num_fields:
        return "struct<" + ",".join(f"{_quoted(field.name)}:{to_spark(field.type)}" for field in kind) + ">"
    if is_.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    tests: list[tuple[str, Callable[[pa.DataType], bool]]] = [
        ("boolean", is_.is_boolean), ("tinyint", is_.is_int8), ("smallint", is_.is_int16), ("smallint", is_.is_uint8),
        ("int", is_.is_int32), ("int", is_.is_uint16), ("bigint", is_.is_int64), ("bigint", is_.is_uint32),
        ("decimal(20,0)", is_.is_uint64), ("float", is_.is_float16), ("float", is_.is_float32),
        ("double", is_.is_float64), ("string", is_.is_string), ("string", is_.is_large_string),
        ("binary", is_.is_binary), ("binary", is_.is_large_binary), ("binary", is_.is_fixed_size_binary),
        ("date", is_.is_date32),
    ]  # fmt: skip
    for name, test in tests:
        if test(kind):
            return name
    raise ValueError(f"Spark SQL has no type for {kind}")


def _parse(tokens: list[str], type_text: str) -> tuple[pa.DataType, list[str]]:
    import pyarrow as pa

    if not tokens:
        raise ValueError(f"{type_text} is not a Spark SQL type: it is incomplete")
    name, rest = _ALIASES.get(tokens[0].lower(), tokens[0].lower()), tokens[1:]
    if name == "array":
        item, rest = _parse(_after(rest, "<", type_text), type_text)
        return pa.list_(pa.field("element", item)), _after(rest, ">", type_text)
    if name == "map":
        key, rest = _parse(_after(rest, "<", type_text), type_text)
        item, rest = _parse(_after(rest, ",", type_text), type_text)
        return pa.map_(key, item), _after(rest, ">", type_text)
    if name == "struct":
        return _struct(_after(rest, "<", type_text), type_text)
    numbers: list[int] = []
    if rest[:1] == ["("]:
        end = rest.index(")") if ")" in rest else len(rest)
        numbers = [int(number) for number in rest[1:end:2]]
        rest = rest[end + 1 :]
    return _simple(name, numbers, type_text), rest


def _struct(rest: list[str], type_text: str) -> tuple[pa.DataType, list[str]]:
    import pyarrow as pa

    fields = []
    while True:
        if len(rest) < 2:
            raise ValueError(f"{type_text} is not a Spark SQL type: it is incomplete")
        name = rest[0][1:-1].replace("``", "`") if rest[0].startswith("`") else rest[0]
        kind, rest = _parse(rest[2:] if rest[1] == ":" else rest[1:], type_text)
        if [token.lower() for token in rest[:2]] == ["not", "null"]:
            rest = rest[2:]
        fields.append(pa.field(name, kind))
        if rest[:1] != [","]:
            return pa.struct(fields), _after(rest, ">", type_text)
        rest = rest[1:]


def _simple(name: str, numbers: list[int], type_text: str) -> pa.DataType:
    import pyarrow as pa

    if name == "decimal":
        precision, scale = (*numbers, 0)[:2] if numbers else (10, 0)
        return pa.decimal128(precision, scale)
    simple = {
        "boolean": pa.bool_(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    if name not in simple:
        raise ValueError(f"{type_text} is not a Spark SQL type, or one that is not supported")
    return simple[name]


def _after(tokens: list[str], wanted: str, type_text: str) -> list[str]:
    if tokens[:1] != [wanted]:
        raise ValueError(f"{type_text} is not a Spark SQL type: {wanted!r} is missing")
    return tokens[1:]


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else "`" + name.replace("`", "``") + "`"
