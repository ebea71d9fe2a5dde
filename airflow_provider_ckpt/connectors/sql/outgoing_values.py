"""Convert rows for a target's columns, and find the values that a column cannot store without loss.

Databases differ in their treatment of values that do not fit: they round, pad, truncate, replace or refuse them. Here,
a value that does not fit is always an error of its row. The server refuses the remaining unsuitable values, such as a
character that the column's encoding lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from airflow_provider_ckpt.connectors import extreme_times, float_texts
from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.connectors.sql.columns import Column, Kind, Table
from airflow_provider_ckpt.core.errors import ConfigError, ErrorInfo, ErrorType

if TYPE_CHECKING:
    import pyarrow as pa

_MISFIT = "22000"
_NULL_MISFIT = "23502"
_TIME = re.compile(r"-?\d{1,3}:[0-5]\d:[0-5]\d(?:\.(\d{1,6}))?")
_FIRST_MICROSECOND, _LAST_MICROSECOND = -62_135_596_800_000_000, 253_402_300_799_999_999
_MICROSECONDS_A_DAY = 86_400_000_000
_MAX_DECIMAL128, _MAX_DECIMAL256 = 38, 76


class MisfitError(ValueError):
    """Error of a value that a column cannot store without loss."""


def convert(rows: pa.Table, target: Table) -> tuple[pa.Table, dict[int, ErrorInfo]]:
    """Return the rows whose values all fit the target, converted to its types, and an error for each of the other rows.

    :param rows: rows of a batch, with the column :data:`~.sink_protocol.ROW_NUMBER`
    :param target: the target; columns that it computes itself are left out
    :return: the converted rows, with their row numbers first; and the errors by row number
    :raises ConfigError: if the target lacks a column, or has one that cannot store values of the rows' type
    """
    import pyarrow as pa

    names = [name for name in rows.schema.names if name != ROW_NUMBER]
    unknown = [name for name in names if name not in target.by_name]
    if unknown:
        raise ConfigError(
            f"target {target.label} has no column {', '.join(unknown)}; it has {', '.join(target.by_name)}.",
            hint="Name the target's columns in transform.select, or add them to the target.",
        )
    numbers = rows.column(ROW_NUMBER)
    written = [name for name in names if not target.by_name[name].generated]
    errors: dict[int, ErrorInfo] = {}
    found = []
    for name in written:
        column, misfits = _convert_column(rows.column(name), target.by_name[name])
        found.append(column)
        for at, error in misfits.items():
            errors.setdefault(numbers[at].as_py(), error)
    converted = pa.table([numbers, *found], [ROW_NUMBER, *written])
    if errors:
        from airflow_provider_ckpt.connectors.row_filter import exclude_rows

        converted = exclude_rows(converted, errors)
    return converted, errors


def _convert_column(values: Any, column: Column) -> tuple[Any, dict[int, ErrorInfo]]:
    """Return a converted column with NULL in place of each unsuitable value, and the errors of these values by index.

    :param values: the column of the rows
    :param column: the target column
    :raises ConfigError: if the target column cannot store values of the type
    """
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    convert_all = _converter(values.type, column)
    errors: dict[int, ErrorInfo] = {}
    try:
        found = convert_all(values)
    except (pa.ArrowInvalid, MisfitError):
        found, errors = _one_by_one(values, column, convert_all)
    if found.null_count and (not column.nullable or column.numbered):
        for at, valid in enumerate(values.is_valid().to_pylist()):
            if not valid:
                errors[at] = ErrorInfo(ErrorType.SINK, f"column {column.name} may not be NULL", False, _NULL_MISFIT)
    return found, errors


def _one_by_one(values: Any, column: Column, convert_all: Callable[[Any], Any]) -> tuple[Any, dict[int, ErrorInfo]]:
    """Convert a column that has an unsuitable value, by halving the column until each such value is found.

    :param values: the column of the rows
    :param column: the target column
    :param convert_all: function that converts a part of the column, or fails
    :return: the converted column with NULL in place of each unsuitable value, and the errors of these by index
    """
    import pyarrow as pa

    errors: dict[int, ErrorInfo] = {}
    kind = convert_all(values.slice(0, 0)).type

    def part(start: int, length: int) -> list[Any]:
        try:
            return [convert_all(values.slice(start, length)).combine_chunks()]
        except (pa.ArrowInvalid, MisfitError) as error:
            if length == 1:
                errors[start] = ErrorInfo(ErrorType.SINK, _message(column, error), False, _MISFIT)
                return [pa.nulls(1, kind)]
            half = length // 2
            return part(start, half) + part(start + half, length - half)

    return pa.chunked_array(part(0, len(values)), kind), errors


def _message(column: Column, error: Exception) -> str:
    reason = str(error) if isinstance(error, MisfitError) else "the value does not fit"
    return f"column {column.name} {column.type_text}: {reason}"


def _converter(kind: pa.DataType, column: Column) -> Callable[[Any], Any]:
    """Return the function that converts values of an Arrow type for a target column.

    :param kind: the Arrow type
    :param column: the target column
    :raises ConfigError: if the target column cannot store values of the type
    """
    import pyarrow as pa

    if pa.types.is_nested(kind) or column.kind is Kind.UNSUPPORTED:
        raise ConfigError(
            f"column {column.name} has type {kind}, which cannot be sent to {column.type_text}.",
            hint=f"Convert it to text: transform.select: {{{column.name}: to_json({column.name})}}.",
        )
    converter = _CONVERTERS[column.kind]
    return lambda values: converter(values, column)


def _to_integer(values: Any, column: Column) -> Any:
    import pyarrow as pa

    wide = column.high >= 2**63
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    elif pa.types.is_decimal(values.type) and values.type.scale:
        values = values.cast(pa.decimal256(_MAX_DECIMAL256, values.type.scale)).cast(pa.decimal256(_MAX_DECIMAL256, 0))
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.string())
    found = values.cast(pa.uint64() if wide else pa.int64())
    _check_bounds(found, column.low, column.high)
    return found


def _check_bounds(found: Any, low: int, high: int) -> None:
    import pyarrow.compute as pc

    ends = pc.min_max(found).as_py()
    if ends["min"] is not None and (ends["min"] < low or ends["max"] > high):
        raise MisfitError(f"the value is not between {low} and {high}")


def _to_decimal(values: Any, column: Column) -> Any:
    import pyarrow as pa

    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if pa.types.is_floating(values.type):
        values = values.cast(pa.string())
    if column.digits is not None:
        _check_digits(values.cast(pa.string()), column.digits)
    if column.precision is None:
        return values.cast(pa.string())
    digits = column.precision
    kind = pa.decimal128(digits, column.scale) if digits <= _MAX_DECIMAL128 else pa.decimal256(digits, column.scale)
    if pa.types.is_integer(values.type):
        values = values.cast(pa.string())
    return values.cast(kind)


def _check_digits(texts: Any, most: int) -> None:
    for text in texts.unique().to_pylist():
        try:
            digits = () if text is None else Decimal(text).normalize().as_tuple().digits
        except ArithmeticError:
            raise MisfitError("the text is no number") from None
        if len(digits) > most:
            raise MisfitError(f"the column keeps {most} digits")


def _to_float(values: Any, column: Column) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.string())
    found = values.cast(pa.float64() if column.kind is Kind.DOUBLE else pa.float32(), safe=not _is_float(values.type))
    if not pc.all(pc.is_finite(found)).as_py() and len(found) > found.null_count:
        raise MisfitError("the value is not a finite number")
    return found


def _is_float(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(kind))


def _to_boolean(values: Any, column: Column) -> Any:
    import pyarrow as pa

    if not pa.types.is_boolean(values.type):
        values = _to_integer(values, column)
        _check_bounds(values, 0, 1)
    return values.cast(pa.bool_())


def _to_text(values: Any, column: Column) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_date(values.type) or pa.types.is_timestamp(values.type):
        found = pa.chunked_array([extreme_times.to_iso(values.combine_chunks(), " ")], pa.string())
    elif pa.types.is_floating(values.type):
        found = float_texts.to_texts(values)
    else:
        found = values.cast(pa.string())
    if column.length is not None and (pc.max(pc.utf8_length(found)).as_py() or 0) > column.length:
        raise MisfitError(f"the text has more than {column.length} characters")
    if column.fixed and pc.any(pc.ends_with(found, " ")).as_py():
        raise MisfitError(f"the text ends with a space, which a {column.type_text} does not keep")
    return found


def _to_binary(values: Any, column: Column) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    found = values.cast(pa.binary())
    ends = pc.min_max(pc.binary_length(found)).as_py()
    if column.length is not None and ends["min"] is not None:
        if ends["max"] > column.length:
            raise MisfitError(f"the value has more than {column.length} bytes")
        if column.fixed and ends["min"] < column.length:
            raise MisfitError(f"the value has fewer than {column.length} bytes, and would be padded")
    return found


def _microseconds(values: Any) -> Any:
    """Return dates, times, or texts of these as microseconds since 1970, in UTC."""
    import pyarrow as pa

    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        try:
            values = values.cast(pa.timestamp("us"))
        except pa.ArrowInvalid:
            values = values.cast(pa.timestamp("us", "UTC"))
    if pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("us"))
    return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())


def _to_date(values: Any, column: Column) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    del column
    found = _microseconds(values)
    _check_years(found)
    _check_multiple(found, _MICROSECONDS_A_DAY, "the value has a time of day")
    days = pc.divide(found, _MICROSECONDS_A_DAY)
    return days.cast(pa.int32()).cast(pa.date32())


def _to_datetime(values: Any, column: Column) -> Any:
    import pyarrow as pa

    found = _microseconds(values)
    _check_years(found)
    _check_multiple(found, 10 ** (6 - column.fraction), f"the column keeps {column.fraction} digits of a second")
    return found.cast(pa.timestamp("us"))


def _check_years(found: Any) -> None:
    import pyarrow.compute as pc

    ends = pc.min_max(found).as_py()
    if ends["min"] is not None and (ends["min"] < _FIRST_MICROSECOND or ends["max"] > _LAST_MICROSECOND):
        raise MisfitError("the value is not in the years 1 to 9999")


def _check_multiple(found: Any, unit: int, message: str) -> None:
    import pyarrow.compute as pc

    if unit > 1:
        whole = pc.multiply(pc.divide(found, unit), unit)
        if not pc.all(pc.equal(whole, found)).as_py() and len(found) > found.null_count:
            raise MisfitError(message)


def _to_time(values: Any, column: Column) -> Any:
    import pyarrow as pa

    found = values.cast(pa.string())
    for text in found.unique().to_pylist():
        parts = None if text is None else _TIME.fullmatch(text)
        if text is not None and parts is None:
            raise MisfitError("the text is not hours:minutes:seconds")
        if parts is not None and len((parts[1] or "").rstrip("0")) > column.fraction:
            raise MisfitError(f"the column keeps {column.fraction} digits of a second")
    return found


def _to_year(values: Any, column: Column) -> Any:
    found = _to_integer(values, column)
    for year in found.unique().to_pylist():
        if year not in (None, 0) and not 1901 <= year <= 2155:
            raise MisfitError("the value is neither 0 nor between 1901 and 2155")
    return found


def _to_bits(values: Any, column: Column) -> Any:
    import pyarrow as pa

    bits = column.length or 1
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.string())
    found = values.cast(pa.uint64())
    _check_bounds(found, 0, 2**bits - 1)
    return found


def _to_choice(values: Any, column: Column) -> Any:
    import pyarrow as pa

    found = values.cast(pa.string())
    for text in found.unique().to_pylist():
        parts = () if text is None else (text.split(",") if column.kind is Kind.SET and text else (text,))
        if column.kind is Kind.SET and text == "":
            continue
        if any(part not in column.choices for part in parts):
            raise MisfitError("the text is none of the column's choices")
    return found


_CONVERTERS: dict[Kind, Callable[[Any, Column], Any]] = {
    Kind.INTEGER: _to_integer,
    Kind.DECIMAL: _to_decimal,
    Kind.FLOAT: _to_float,
    Kind.DOUBLE: _to_float,
    Kind.BOOLEAN: _to_boolean,
    Kind.TEXT: _to_text,
    Kind.BINARY: _to_binary,
    Kind.DATE: _to_date,
    Kind.DATETIME: _to_datetime,
    Kind.TIMESTAMP: _to_datetime,
    Kind.TIME: _to_time,
    Kind.YEAR: _to_year,
    Kind.BIT: _to_bits,
    Kind.ENUM: _to_choice,
    Kind.SET: _to_choice,
    Kind.OTHER_TEXT: _to_text,
}
