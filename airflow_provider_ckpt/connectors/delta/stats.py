"""Convert a Parquet footer to Delta's per-file statistics, so that readers can skip files without opening them."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_MILLISECOND = 1000


def statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> str:
    """Return Delta's ``stats`` text of a data file: row and null counts, and least and greatest values.

    Only integers, dates, and timestamps with a time zone have least and greatest values.

    :param metadata: footer of the Parquet file
    :param schema: the file's Arrow schema
    """
    flat = {field.name for field in schema if _is_flat(field.type)}
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown: set[str] = set()
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            name, stats = column.path_in_schema, column.statistics
            if name not in flat or stats is None or not stats.has_null_count:
                continue
            nulls[name] = nulls.get(name, 0) + stats.null_count
            bounds = _bounds(stats) if _has_exact_bounds(schema.field(name).type) else None
            if bounds is not None:
                low[name] = min(low.get(name, bounds[0]), bounds[0])
                high[name] = max(high.get(name, bounds[1]), bounds[1])
            elif stats.null_count < column.num_values:
                unknown.add(name)
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": {name: _bound_value(value, up=False) for name, value in low.items() if name not in unknown},
            "maxValues": {name: _bound_value(value, up=True) for name, value in high.items() if name not in unknown},
            "nullCount": nulls,
        }
    )


def _bounds(stats: pq.Statistics) -> tuple[Any, Any] | None:
    """Return the smallest and the largest value of a column in one row group.

    :param stats: Parquet's statistics of the column in the row group
    :return: None if the values are unknown, or outside of Python's years 1 to 9999
    """
    try:
        return (stats.min, stats.max) if stats.has_min_max else None
    except (OverflowError, ValueError):
        return None


def _is_flat(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return not pa.types.is_nested(kind)


def _has_exact_bounds(kind: pa.DataType) -> bool:
    """Return whether Parquet's least and greatest values of a column type are exact, so that Delta may store them.

    They are exact for signed integers, dates, and timestamps with a time zone. Those of floats omit NaN, and those of
    long texts are shortened.

    :param kind: type of the column
    """
    import pyarrow as pa

    return bool(
        pa.types.is_signed_integer(kind)
        or pa.types.is_date(kind)
        or (pa.types.is_timestamp(kind) and kind.tz is not None)
    )


def _bound_value(value: Any, *, up: bool) -> Any:
    """Convert a least or greatest value to Delta's form: timestamps are rounded down or up to whole milliseconds.

    :param value: least or greatest value of a column
    :param up: whether it is the greatest value, which is rounded up; the least value is rounded down
    """
    if isinstance(value, datetime):
        over = value.microsecond % _MILLISECOND
        value = value - timedelta(microseconds=over) + timedelta(milliseconds=1 if up and over else 0)
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value
