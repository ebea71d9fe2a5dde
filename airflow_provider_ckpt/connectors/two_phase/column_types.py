"""Compare the columns of rows with those of a Delta or Iceberg table, and convert rows to types that both can store."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors.two_phase.type_widening import is_wider
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_ckpt.config.pipeline import Pipeline


def to_storable(rows: pa.Table, what: str) -> pa.Table:
    """Convert rows for a table: columns become nullable, timestamps count microseconds, and time zones become UTC.

    :param rows: the rows
    :param what: noun phrase for the target in the message, such as ``a Delta table``
    :raises ConfigError: naming the columns whose type such a table does not support
    """
    import pyarrow as pa

    schema = pa.schema([pa.field(field.name, normalized_type(field.type)) for field in rows.schema])
    refused = [f"{field.name} is {field.type}" for field in schema if not _is_supported(field.type)]
    if refused:
        raise ConfigError(
            f"{what} cannot hold these columns: {'; '.join(refused)}.",
            hint="Cast them in transform.select, for example to string.",
        )
    return rows if rows.schema.equals(schema, check_metadata=True) else rows.cast(schema)


def differences(
    table_types: Mapping[str, str],
    row_types: Mapping[str, str],
    *,
    may_lack: Collection[str] = (),
    may_add: bool = False,
    may_be_narrower: bool = False,
) -> list[str]:
    """Return the differences between a table's columns and those of rows, for a message: ``a is missing (int)``.

    :param table_types: type of each of the table's columns, by name
    :param row_types: type of each of the rows' columns, by name
    :param may_lack: columns of the table that the rows need not have
    :param may_add: whether the rows may have columns that the table does not have
    :param may_be_narrower: whether a column of the rows may have a narrower type than the table's
    """
    problems = [
        f"{name} is missing ({table_types[name]})"
        for name in table_types
        if name not in row_types and name not in may_lack
    ]
    if may_add:
        known = {name.lower(): name for name in table_types}
        similar_names = {name: known.get(name.lower()) for name in row_types if name not in table_types}
        problems += [
            f"{name} differs from the table's {other} only in case" for name, other in similar_names.items() if other
        ]
    else:
        problems += [f"{name} is not in the table ({row_types[name]})" for name in row_types if name not in table_types]
    problems += [
        f"{name} is {row_types[name]}, the table's is {table_types[name]}"
        for name in row_types
        if table_types.get(name, row_types[name]) != row_types[name]
        and not (may_be_narrower and is_wider(row_types[name], table_types[name]))
    ]
    return problems


def rows_may_lack_columns(pipeline: Pipeline) -> bool:
    """Return whether the rows of a pipeline may lack nullable columns of the table, so that the table stores nulls.

    For example, the rows of a schema version lack the columns that the version leaves out.

    :param pipeline: the pipeline
    """
    return pipeline.sink.adds_columns or pipeline.schema_ is not None


def misfit_error(where: str, problems: Sequence[str]) -> ConfigError:
    """Return the error for rows whose columns do not fit a table.

    :param where: the table, as in ``the Delta table /data/t``
    :param problems: the differences, as :func:`differences` returns them
    """
    return ConfigError(
        f"the rows do not fit {where}: {'; '.join(problems)}.",
        hint="Correct transform.select, alter the table, or write to a new table.",
    )


def normalized_type(kind: pa.DataType) -> pa.DataType:
    """Return an Arrow type without details that table formats ignore: nullability, time unit and time zone.

    Every time zone becomes UTC, and every unit microseconds.
    """
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(normalized_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, normalized_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(normalized_type(kind.key_type), normalized_type(kind.item_type))
    return kind


def _is_supported(kind: pa.DataType) -> bool:
    import pyarrow as pa

    is_ = pa.types
    if is_.is_list(kind):
        return _is_supported(kind.value_type)
    if is_.is_struct(kind):
        return kind.num_fields > 0 and all(_is_supported(field.type) for field in kind)
    if is_.is_map(kind):
        return _is_supported(kind.key_type) and _is_supported(kind.item_type)
    simple = (
        is_.is_boolean, is_.is_signed_integer, is_.is_float32, is_.is_float64, is_.is_decimal128, is_.is_date32,
        is_.is_timestamp, is_.is_string, is_.is_large_string, is_.is_binary, is_.is_large_binary,
    )  # fmt: skip
    return any(test(kind) for test in simple)
