"""Write data files of an Iceberg table durably: one for each partition of the rows, with statistics from its footer.

A lane describes the files as JSON, so that the process that commits them need not open them again.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_ckpt.connectors.sink_protocol import ROW_NUMBER
from airflow_provider_ckpt.connectors.storage.location import Location
from airflow_provider_ckpt.connectors.two_phase.parquet_file import write_parquet

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.types import PrimitiveType

_BOUNDS = ("lower_bounds", "upper_bounds")
_BY_FIELD = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")


def split_by_partition(rows: pa.Table, spec: PartitionSpec, schema: Schema) -> Iterator[tuple[list[Any], pa.Table]]:
    """Yield the partition values and the rows of each partition of the table; rows stay in their order.

    Without rows, or if the table is not partitioned, there is one partition, whose list of values is empty. Partition
    transforms are applied to distinct values with the library's own Python functions, which exist for every transform.

    :param rows: the rows
    :param spec: partitioning of the table
    :param schema: columns of the table
    """
    import numpy as np
    import pyarrow as pa

    if spec.is_unpartitioned() or not rows.num_rows:
        yield [], rows
        return
    values: list[list[Any]] = []
    codes: list[Any] = []
    for field in spec.fields:
        encoded = _distinct(rows, field, schema)
        transform = field.transform.transform(schema.find_type(field.source_id))
        known: dict[Any, int] = {}
        numbers = [known.setdefault(transform(value), len(known)) for value in encoded.dictionary.to_pylist()]
        values.append(list(known))
        codes.append(np.array(numbers)[encoded.indices.to_numpy(zero_copy_only=False)])
    groups, members, sizes = np.unique(np.stack(codes), axis=1, return_inverse=True, return_counts=True)
    in_order = np.argsort(members.reshape(-1), kind="stable")
    for group, part in zip(groups.T, np.split(in_order, np.cumsum(sizes)[:-1]), strict=True):
        yield [of_field[code] for of_field, code in zip(values, group, strict=True)], rows.take(pa.array(part))


def find_unpartitionable(rows: pa.Table, spec: PartitionSpec, schema: Schema) -> Iterator[tuple[str, int]]:
    """Yield column name and row number for each date or timestamp that the table's partition transforms cannot process.

    The library's transforms only process the years 1 to 9999.

    :param rows: the rows, with their numbers in the column :data:`~.sink_protocol.ROW_NUMBER`
    :param spec: partitioning of the table
    :param schema: columns of the table
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyiceberg.transforms import TimeTransform

    for field in spec.fields:
        if not isinstance(field.transform, TimeTransform) or _source_column(field, schema) not in rows.column_names:
            continue
        encoded = _distinct(rows, field, schema)
        transform = field.transform.transform(schema.find_type(field.source_id))
        bad = [code for code, value in enumerate(encoded.dictionary.to_pylist()) if not _is_accepted(transform, value)]
        if bad:
            found = pc.is_in(encoded.indices, pa.array(bad, encoded.indices.type))
            for number in rows.column(ROW_NUMBER).filter(found).to_pylist():
                yield _source_column(field, schema), number


def write_file(path: Location, rows: pa.Table, schema: Schema, properties: Mapping[str, str]) -> dict[str, Any]:
    """Write rows durably to a new Parquet file; return its size in bytes and its statistics, ready for JSON.

    :param path: the new file
    :param rows: the rows
    :param schema: all columns of the rows in order; their field ids are written to the file
    :param properties: properties of the table, which configure the statistics
    :raises IoError: if the file system or object store fails
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    target = schema_to_pyarrow(schema)
    footer, size = write_parquet(path, rows.cast(target), store_decimal_as_integer=True)
    found = _statistics(footer, schema, properties)
    for name in _BOUNDS:
        found[name] = {key: base64.b64encode(value).decode() for key, value in found[name].items()}
    return {"size": size, "statistics": found}


def encode_partition(values: Sequence[Any], spec: PartitionSpec, schema: Schema) -> list[str | None]:
    """Encode the values of a partition as texts for JSON, one for each field of the partitioning; null stays null.

    :func:`data_file` decodes them.

    :param values: values of the partition, as :func:`split_by_partition` yields them
    :param spec: partitioning of the table
    :param schema: columns of the table
    """
    from pyiceberg.conversions import to_bytes

    return [
        None if value is None else base64.b64encode(to_bytes(kind, value)).decode()
        for kind, value in zip(_partition_types(spec, schema), values, strict=True)
    ]


def data_file(described: Mapping[str, Any], spec: PartitionSpec, schema: Schema) -> DataFile:
    """Convert a lane's JSON description of a data file to the Iceberg library's object, for the table's manifest.

    :param described: size and statistics from :func:`write_file`, with the file's ``location`` and encoded
        ``partition``
    :param spec: partitioning of the table
    :param schema: columns of the table
    """
    from pyiceberg.conversions import from_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    statistics = dict(described["statistics"])
    for name in _BY_FIELD:
        statistics[name] = {int(key): value for key, value in statistics[name].items()}
    for name in _BOUNDS:
        statistics[name] = {int(key): base64.b64decode(value) for key, value in statistics[name].items()}
    values = [
        None if text is None else from_bytes(kind, base64.b64decode(text))
        for kind, text in zip(_partition_types(spec, schema), described["partition"], strict=True)
    ]
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=described["location"],
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        file_size_in_bytes=described["size"],
        sort_order_id=None,
        spec_id=spec.spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics,
    )


def _partition_types(spec: PartitionSpec, schema: Schema) -> list[PrimitiveType]:
    """Return the Iceberg types of the table's partition values; they are never nested.

    :param spec: partitioning of the table
    :param schema: columns of the table
    """
    return [cast("PrimitiveType", field.field_type) for field in spec.partition_type(schema).fields]


def _statistics(footer: pq.FileMetaData, schema: Schema, properties: Mapping[str, str]) -> dict[str, Any]:
    """Return Iceberg's statistics of a Parquet file, by the names that the library's ``DataFile`` gives them.

    If a date or timestamp is outside of Python's years 1 to 9999, no date or timestamp column gets bounds.

    :param footer: footer of the file
    :param schema: columns of the file
    :param properties: properties of the table, which configure the statistics
    """
    from pyiceberg.io.pyarrow import (
        MetricModeTypes,
        MetricsMode,
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.types import DateType, TimestampType, TimestamptzType

    plan, columns = compute_statistics_plan(schema, dict(properties)), parquet_path_to_id_mapping(schema)
    try:
        return data_file_statistics_from_parquet_metadata(footer, plan, columns).to_serialized_dict()
    except (OverflowError, ValueError):
        for number, column in plan.items():
            if isinstance(column.iceberg_type, DateType | TimestampType | TimestamptzType):
                plan[number] = replace(column, mode=MetricsMode(MetricModeTypes.COUNTS))
        return data_file_statistics_from_parquet_metadata(footer, plan, columns).to_serialized_dict()


def _source_column(field: PartitionField, schema: Schema) -> str:
    """Return the name of the column from which the values of a partition field are derived.

    :param field: field of the table's partitioning
    :param schema: columns of the table
    """
    return schema.find_column_name(field.source_id) or field.name


def _distinct(rows: pa.Table, field: PartitionField, schema: Schema) -> pa.DictionaryArray:
    """Return the values of the column from which a partition field is derived, dictionary-encoded.

    :param rows: the rows
    :param field: field of the table's partitioning
    :param schema: columns of the table
    :return: the distinct values, and for each row an index into them; dates and timestamps are integers
    """
    return _to_integers(rows.column(_source_column(field, schema)).combine_chunks()).dictionary_encode(
        null_encoding="encode"
    )


def _is_accepted(transform: Callable[[Any], Any], value: Any) -> bool:
    try:
        transform(value)
    except (OverflowError, ValueError):
        return False
    return True


def _to_integers(column: pa.Array) -> pa.Array:
    """Convert dates and timestamps to the integers that partition transforms expect; return other columns unchanged.

    :param column: values of the column
    """
    import pyarrow as pa

    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
