"""Decode flat JSON records with Arrow before Spark gets them, several times as fast as ``from_json``.

A flat record is one object with the schema's fields, each once and in the schema's order, whose values are strings
without escapes, numbers of few digits, booleans and nulls. Such a record is strict JSON, and every parser reads it
alike. One regular expression without backtracking tests all records of an Arrow batch in one pass. All other records
are decoded and checked by the transform.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ckpt.spark.columns import CORRUPT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructField

_SPACE = "[ \t]*"
_TEXT = r'"[^"\\\x00-\x1f\x7f]*"'
_DATE = r"[1-9][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_ZONE = r"(?:Z|[+-](?:0[0-9]|1[0-7]):[0-5][0-9])"
_FRACTION = r"(?:0|-?[1-9][0-9]{0,14}|-?(?:0|[1-9][0-9]{0,14})\.[0-9]{1,17})"
_UNAMBIGUOUS_VALUES = {
    "string": _TEXT,
    "boolean": "true|false",
    "smallint": "-?(?:0|[1-9][0-9]{0,3})",
    "int": "-?(?:0|[1-9][0-9]{0,8})",
    "bigint": "-?(?:0|[1-9][0-9]{0,17})",
    "float": _FRACTION,
    "double": _FRACTION,
    "date": f'"{_DATE}"',
    "timestamp": f'"{_DATE}T{_TIME}{_ZONE}"',
}
"""By Spark SQL type, a regular expression for the JSON values that every parser reads alike."""

_NAME = re.compile("[A-Za-z0-9_ .-]+")
_MAX_EXPRESSION_LENGTH = 4_000
"""Largest number of characters of the regular expression for a whole record. A schema that needs a longer one
is left to Spark's parser: from about 6,000 on, RE2 exhausts the memory for its states and is 30 times as slow.
"""


@dataclass(frozen=True, slots=True)
class FlatJsonDecoder:
    """Decoder of flat JSON records, as this module defines them, for one schema.

    :param expression: regular expression that matches exactly these records (RE2, applied to bytes)
    :param fields: name and Spark SQL type of each field of the schema
    """

    expression: str
    fields: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, fields: Iterable[StructField]) -> FlatJsonDecoder | None:
        """Create the decoder for a schema.

        :param fields: fields of the schema
        :return: None if a flat record cannot have one of the fields, if there are no fields or two of the same name, or
            if the regular expression would be too long
        """
        named = [(field.name, field.dataType.simpleString()) for field in fields]
        if len(dict(named)) < len(named) or not all(
            _NAME.fullmatch(name) and kind in _UNAMBIGUOUS_VALUES for name, kind in named
        ):
            return None
        members = [f'"{re.escape(name)}"{_SPACE}:{_SPACE}(?:{_UNAMBIGUOUS_VALUES[kind]}|null)' for name, kind in named]
        expression = rf"\A\{{{_SPACE}{f'{_SPACE},{_SPACE}'.join(members)}{_SPACE}\}}\r?\z"
        return cls(expression, named) if members and len(expression) <= _MAX_EXPRESSION_LENGTH else None

    @property
    def kind(self) -> pa.StructType:
        """Arrow type of the structs that :meth:`decoded` returns.

        It has the schema's fields and, as with ``from_json``, a last field for the text of a corrupt record, which is
        null here.
        """
        import pyarrow as pa

        fields = [pa.field(name, _arrow_type(kind)) for name, kind in self.fields]
        return pa.struct([*fields, pa.field(CORRUPT, pa.string())])

    def decoded(self, records: pa.Array) -> pa.StructArray:
        """Return the decoded fields of each flat record as a struct, and null for every other record.

        :param records: binary array with the JSON text of each record
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = self.kind
        found = pc.fill_null(pc.match_substring_regex(records, self.expression), False)
        try:
            columns = self._columns(records.filter(found))
        except pa.ArrowInvalid:  # a text is not UTF-8: the transform finds the record
            return pa.nulls(len(records), kind)
        if found.false_count:
            rank = pc.subtract(pc.cumulative_sum(found.cast(pa.int64())), 1)
            columns = [column.take(pc.if_else(found, rank, None)) for column in columns]
        columns.append(pa.nulls(len(records), pa.string()))
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=pc.invert(found))

    def rows(self, records: pa.RecordBatch) -> pa.RecordBatch | None:
        """Decode raw records to rows of position and fields; return None if one of the records is not flat.

        :param records: records as a reader yields them: the position, then the source's columns
        """
        import pyarrow as pa

        decoded = self.decoded(records.column("value"))
        if decoded.null_count:
            return None
        names = [name for name, _ in self.fields]
        columns = [records.column(0), *(decoded.field(at) for at in range(len(names)))]
        return pa.RecordBatch.from_arrays(columns, [records.schema.names[0], *names])

    def _columns(self, records: pa.Array) -> list[pa.Array]:
        """Decode flat JSON records, and return one Arrow array for each field.

        The caller has checked that all records are flat.

        :param records: binary array with the JSON text of each record
        :raises pyarrow.ArrowInvalid: if a text is not UTF-8
        """
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import json

        fields = list(self.kind)[:-1]
        if not len(records):
            return [pa.array([], field.type) for field in fields]
        lines = pc.binary_join_element_wise(records, b"", b"\n").cast(pa.string())
        _, offsets, data = lines.buffers()
        size = memoryview(offsets).cast("i")[len(lines)]
        as_text = (pa.types.is_date, pa.types.is_timestamp)
        schema = [f.with_type(pa.string()) if any(is_text(f.type) for is_text in as_text) else f for f in fields]
        table = json.read_json(
            pa.BufferReader(data.slice(0, size)),
            read_options=json.ReadOptions(use_threads=False, block_size=size + 1),
            parse_options=json.ParseOptions(explicit_schema=pa.schema(schema), unexpected_field_behavior="error"),
        )
        return [table.column(field.name).combine_chunks().cast(field.type) for field in fields]


def _arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type for the Spark SQL type of a field."""
    import pyarrow as pa

    return {
        "string": pa.string(),
        "boolean": pa.bool_(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
    }[kind]
