"""Convert values that a database returns to Arrow, in the types that :attr:`.Column.spark` names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors.arrow_types import to_arrow
from airflow_provider_ckpt.connectors.sql.columns import Column, Kind
from airflow_provider_ckpt.connectors.sql.times import position_of

if TYPE_CHECKING:
    import pyarrow as pa

NO_DATE = -1_000_000
"""Day, in days since 1970, that stands for a zero or incomplete date; it precedes all days that a database has.

The transform rejects a record with such a value, since ``connector.py`` declares earlier days than year 1 out of range.
"""

_NO_TIME = NO_DATE * 86_400_000_000
_TIMES = frozenset({Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP})


class ValueMismatchError(ValueError):
    """Error of a value that is not of its column's type.

    :param index: index of the row among those that were fetched
    :param column: name and type of the column
    """

    def __init__(self, index: int, column: str) -> None:
        super().__init__(column)
        self.index = index
        self.column = column


def from_texts(column: Column, values: pa.Array) -> pa.Array:
    """Convert a column that the server has sent as texts, as MySQL does, to Arrow.

    :param column: the column
    :param values: binary array of texts in UTF-8, or of a binary column's bytes
    :raises ValueMismatchError: if a text cannot be parsed
    """
    import pyarrow as pa

    kind = to_arrow(column.spark)
    if column.kind is Kind.BINARY:
        return values
    texts = values.cast(pa.string())
    try:
        if pa.types.is_boolean(kind):
            return texts.cast(pa.int64()).cast(kind)
        if pa.types.is_decimal(kind):
            return texts.cast(pa.decimal128(kind.precision, kind.scale))
        return texts.cast(kind) if column.kind not in _TIMES else _times(texts, kind)
    except pa.ArrowInvalid:
        return _each(column, texts.to_pylist(), kind)


def _times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_date(kind):
        return texts.cast(kind)
    return texts.cast(pa.timestamp("us")).cast(pa.int64()).cast(kind)


def _each(column: Column, texts: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    """Convert texts one by one; a zero or incomplete date becomes :data:`NO_DATE`.

    :param column: the column
    :param texts: the texts
    :param kind: Arrow type of the result
    :raises ValueMismatchError: if a text cannot be parsed
    """
    import pyarrow as pa

    found = []
    for at, text in enumerate(texts):
        if text is None or column.kind not in _TIMES:
            try:
                found.append(pa.scalar(text, pa.string()).cast(kind))
            except pa.ArrowInvalid as error:
                raise ValueMismatchError(at, f"{column.name} {column.type_text}") from error
            continue
        try:
            number = position_of(datetime.fromisoformat(text))
        except ValueError:
            number = _NO_TIME
        found.append(pa.scalar(number // 86_400_000_000 if pa.types.is_date(kind) else number))
    if column.kind in _TIMES:
        stored = pa.int32() if pa.types.is_date(kind) else pa.int64()
        return pa.array([None if value is None else value.as_py() for value in found], stored).cast(kind)
    return pa.array(found, kind)


def from_python(column: Column, values: Sequence[Any]) -> pa.Array:
    """Convert a column that the driver has returned as Python objects to Arrow.

    :param column: the column
    :param values: the objects; SQLite has dates, times and decimals as texts or numbers
    :raises ValueMismatchError: if a value is not of the column's type
    """
    import pyarrow as pa

    kind = to_arrow(column.spark)
    convert = _text if column.spark == "string" else _PYTHON[column.kind]
    found = []
    for at, value in enumerate(values):
        try:
            found.append(None if value is None else convert(value))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ValueMismatchError(at, f"{column.name} {column.type_text}") from error
    try:
        return pa.array(found, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        for at, value in enumerate(found):
            try:
                pa.array([value], kind)
            except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise ValueMismatchError(at, f"{column.name} {column.type_text}") from error
        raise


def _integer(value: Any) -> int:
    if isinstance(value, int):
        return value
    raise TypeError(type(value))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        raise TypeError(type(value))
    return str(value)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(memoryview(value))


def _float(value: Any) -> float:
    if isinstance(value, int | float | Decimal):
        return float(value)
    raise TypeError(type(value))


def _boolean(value: Any) -> bool:
    if value in (0, 1):
        return bool(value)
    raise TypeError(type(value))


def _decimal(value: Any) -> Decimal:
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


_DATE = re.compile(r"\d{4}-\d\d-\d\d")


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if isinstance(value, str) and _DATE.fullmatch(value):
        return date.fromisoformat(value)
    raise TypeError(type(value))


def _datetime(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, str):
        found = datetime.fromisoformat(value)
        if found.tzinfo is None:
            return found
    raise TypeError(type(value))


_PYTHON = {
    Kind.INTEGER: _integer,
    Kind.DECIMAL: _decimal,
    Kind.FLOAT: _float,
    Kind.DOUBLE: _float,
    Kind.BOOLEAN: _boolean,
    Kind.TEXT: _text,
    Kind.BINARY: _bytes,
    Kind.DATE: _date,
    Kind.DATETIME: _datetime,
    Kind.TIMESTAMP: _datetime,
    Kind.TIME: _text,
    Kind.YEAR: _integer,
    Kind.BIT: _integer,
    Kind.ENUM: _text,
    Kind.SET: _text,
    Kind.OTHER_TEXT: _text,
}
