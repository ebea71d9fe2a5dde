"""Carry the source's columns of a record past the transform, for the record's dead letter if it is rejected.

The columns are packed into one text, because every part of a column costs Spark time for every record, rejected or not.
They stay a struct if one of them has a type without a text form, or if they are needed for all records.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_ckpt.connectors.arrow_types import to_arrow
from airflow_provider_ckpt.spark.sql import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.connectors.source_protocol import RecordShape


class _TextForm(NamedTuple):
    """Conversion of a column's values to JSON and back.

    :param sql: SQL expression that converts the column, written as ``{}``, to a value that Spark can write as JSON
    :param value: function that converts a value as ``json.loads`` returns it to the column's value; not called for null
    :param stored: Arrow type in which the converted values are collected before the array is viewed as the column's
        type, such as int64 for a timestamp; None to collect them in the column's type
    """

    sql: str
    value: Callable[[Any], Any]
    stored: str | None = None


def _unchanged(value: Any) -> Any:
    """Return the value itself, for a column whose JSON values need no conversion."""
    return value


def _header(packed: dict[str, str]) -> dict[str, Any]:
    """Return a message header, whose value is Base64 text in JSON, with its value as bytes.

    :param packed: the header as ``json.loads`` returns it
    """
    value = packed.get("value")
    return {"key": packed.get("key"), "value": None if value is None else base64.b64decode(value)}


_FORMS = {
    **dict.fromkeys(("boolean", "tinyint", "smallint", "int", "bigint"), _TextForm("{}", _unchanged)),
    **dict.fromkeys(("float", "double"), _TextForm("CAST({} AS string)", float)),
    "binary": _TextForm("{}", base64.b64decode),
    "string": _TextForm("CAST({} AS binary)", base64.b64decode, "binary"),
    "decimal": _TextForm("CAST({} AS string)", Decimal),
    "date": _TextForm("unix_date({})", _unchanged, "int32"),
    "timestamp": _TextForm("unix_micros({})", _unchanged, "int64"),
    "array<struct<key:string,value:binary>>": _TextForm("{}", lambda headers: [_header(header) for header in headers]),
}
"""Text form of each Spark SQL type, by the type's name in lower case without spaces (``decimal`` without precision and
scale)."""


def packed_sql(shape: RecordShape, column: Callable[[str], str], *, included: bool) -> str:
    """Return SQL that packs a record's source columns into one value: a JSON text, or a struct.

    :param shape: names and types of the source's columns
    :param column: function that returns the SQL of a source column, given its name
    :param included: whether the columns are needed for all records, not only for rejected ones; they then stay a struct
    """
    forms = _forms(shape)
    if included or forms is None:
        return f"struct({', '.join(f'{column(name)} AS {quote(name)}' for name, _ in shape.columns)})"
    values = [
        f"{form.sql.format(column(name))} AS {quote(name)}"
        for (name, _), form in zip(shape.columns, forms, strict=True)
    ]
    return f"to_json(struct({', '.join(values)}))"


def placeholder_sql(shape: RecordShape, *, included: bool) -> str:
    """Return SQL of the placeholder that replaces the packed source columns of a record if they are not needed.

    The placeholder is null or, if the source columns stay a struct that contains an array or a map, a struct of nulls,
    empty arrays and empty maps. Null arrays and maps would be slow: for every row, Spark's Arrow writer goes through
    all null lists of the Arrow batch again.

    :param shape: names and types of the source's columns
    :param included: whether the columns are needed for all records, not only for rejected ones
    """
    empty = {"array": "array()", "map": "map()"}
    kinds = [kind.partition("<")[0].lower() for _, kind in shape.columns]
    if not empty.keys() & set(kinds) or not (included or _forms(shape) is None):
        return "NULL"
    columns = [
        f"CAST({empty.get(short, 'NULL')} AS {kind}) AS {quote(name)}"
        for short, (name, kind) in zip(kinds, shape.columns, strict=True)
    ]
    return f"struct({', '.join(columns)})"


def unpack(original: pa.Array, shape: RecordShape) -> pa.StructArray:
    """Return the source columns of rejected records, unpacked from the value that :func:`packed_sql` made.

    :param original: column :data:`~.columns.ORIGINAL` of the rejected records, without nulls
    :param shape: names and types of the source's columns
    """
    import pyarrow as pa

    forms = _forms(shape)
    if forms is None or pa.types.is_struct(original.type):
        return original
    records = [json.loads(text) for text in original.to_pylist()]
    columns = [
        _unpacked_column((record.get(name) for record in records), form, to_arrow(kind))
        for (name, kind), form in zip(shape.columns, forms, strict=True)
    ]
    return pa.StructArray.from_arrays(columns, [name for name, _ in shape.columns])


def _unpacked_column(values: Iterable[Any], form: _TextForm, kind: pa.DataType) -> pa.Array:
    """Convert the values of one source column from JSON to an Arrow array.

    :param values: values as ``json.loads`` returns them
    :param form: text form of the column
    :param kind: Arrow type of the array
    """
    import pyarrow as pa

    stored = pa.type_for_alias(form.stored) if form.stored else kind
    column = pa.array([None if value is None else form.value(value) for value in values], stored)
    return column.view(kind) if form.stored else column


def _forms(shape: RecordShape) -> list[_TextForm] | None:
    """Return the text form of each source column; None if the type of a column has no text form."""
    kinds = [kind.lower().replace(" ", "").partition("(")[0] for _, kind in shape.columns]
    return [_FORMS[kind] for kind in kinds] if all(kind in _FORMS for kind in kinds) else None
