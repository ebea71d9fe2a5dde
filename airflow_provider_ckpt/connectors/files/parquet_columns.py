"""Determine the columns of a Parquet source (declared, or those of its oldest file), and check all files against them.

All records of one pipeline have the same columns. If a file lacks a column, the column is null or the file is an error,
depending on ``error_handling.missing_field_behavior``. A column of another type is an error unless it can be widened.
An additional column is an error unless the pipeline declares its columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ckpt.config.pipeline import Pipeline
from airflow_provider_ckpt.connectors.arrow_types import to_arrow, to_spark
from airflow_provider_ckpt.connectors.files.csv_header import column_types
from airflow_provider_ckpt.connectors.source_protocol import POSITION
from airflow_provider_ckpt.core.errors import ConfigError, SourceError

if TYPE_CHECKING:
    import pyarrow as pa

_INTEGERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Columns that all records of a Parquet source have.

    :param types: Spark SQL types by name, in order
    :param origin: origin of the columns, for messages: a file, or ``transform.schema``
    :param declared: whether the pipeline declares the columns, so that files may have additional ones
    :param missing_is_null: whether a column that a file lacks is read as null; otherwise it is an error
    """

    types: Mapping[str, str]
    origin: str
    declared: bool
    missing_is_null: bool

    def refuse_misfit(self, path: str, schema: pa.Schema) -> None:
        """Raise an error if a file's columns do not fit these columns.

        :param path: the file, for the message
        :param schema: columns of the file
        :raises SourceError: naming the file, the column, and the origin of the expected columns
        """
        if len(set(schema.names)) < len(schema.names):
            duplicate = next(name for name in schema.names if schema.names.count(name) > 1)
            raise SourceError(f"{path} has two columns called {duplicate}.")
        for name, kind in self.types.items():
            at = schema.get_field_index(name)
            if at < 0:
                if not self.missing_is_null:
                    raise SourceError(
                        f"{path} has no column {name} ({kind}), which {self.origin} has.",
                        hint="Set error_handling.missing_field_behavior: null to read it as null from such files.",
                    )
            elif not is_compatible(schema.field(at).type, kind):
                raise SourceError(
                    f"{path}: column {name} is {_type_name(schema.field(at).type)}, but {kind} in {self.origin}.",
                    hint="Write the file with the same type, or declare in transform.schema a type that can hold both.",
                )
        more = [name for name in schema.names if name not in self.types]
        if more and not self.declared:
            raise SourceError(
                f"{path} has a column {more[0]}, which {self.origin} does not have.",
                hint="Declare in transform.schema the columns that are wanted; all others are then left out.",
            )


def declared_columns(pipeline: Pipeline) -> RecordColumns | None:
    """Return the columns that ``transform.schema`` declares; None if the pipeline has no such key.

    :param pipeline: the pipeline
    :raises ConfigError: if a declared type cannot be stored in a Parquet file
    """
    if not pipeline.transform.schema_:
        return None
    types = {}
    for name, kind in column_types(pipeline.transform.schema_).items():
        try:
            types[name] = to_spark(to_arrow(kind))
        except ValueError as error:
            raise ConfigError(f"transform.schema: column {name}: {error}.", pipeline=pipeline.name) from error
    return RecordColumns(types, "transform.schema", True, _missing_is_null(pipeline))


def file_columns(pipeline: Pipeline, path: str, schema: pa.Schema) -> RecordColumns:
    """Return the columns that all records have if the pipeline declares none: those of a file.

    :param pipeline: the pipeline
    :param path: the file, for messages
    :param schema: columns of the file
    :raises SourceError: if Spark has no type for a column, or the name of a column is reserved
    """
    types = {}
    for field in schema:
        if field.name == POSITION:
            raise SourceError(f"{path}: a column may not be called {POSITION}.")
        try:
            types[field.name] = to_spark(field.type)
        except ValueError as error:
            raise SourceError(
                f"{path}: column {field.name}: {error}.",
                hint="Declare in transform.schema the columns that are wanted, without this one.",
            ) from error
    return RecordColumns(types, path, False, _missing_is_null(pipeline))


def is_compatible(found: pa.DataType, kind: str) -> bool:
    """Return whether a column of a file may be read as a Spark SQL type: the same type, or a wider one of its kind.

    Kinds are integers, ``float`` and ``double``, and decimals.

    :param found: Arrow type of the file's column
    :param kind: the Spark SQL type
    """
    import pyarrow as pa

    has = _type_name(found)
    if has == kind:
        return True
    if has in _INTEGERS and kind in _INTEGERS:
        return _INTEGERS.index(has) < _INTEGERS.index(kind)
    if kind == "double":
        return has == "float"
    if has.startswith("decimal") and kind.startswith("decimal"):
        old, new = to_arrow(has), to_arrow(kind)
        assert isinstance(old, pa.Decimal128Type)
        assert isinstance(new, pa.Decimal128Type)
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    return False


def _type_name(kind: pa.DataType) -> str:
    try:
        return to_spark(kind)
    except ValueError:
        return str(kind)


def _missing_is_null(pipeline: Pipeline) -> bool:
    return pipeline.error_handling.missing_field_behavior == "null"
