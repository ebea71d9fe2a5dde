"""Determine the columns of a Parquet source, declared or from its oldest file, and check every other file against them.

All records of one pipeline have the same columns. A column that a file lacks is null or an error, as
``error_handling.missing_field_behavior`` says. Another type is an error unless it can be widened. An additional column
is an error unless the pipeline declares its columns.
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
    """Columns of a pipeline's records.

    :param types: Spark SQL type by name, in order
    :param origin: where they come from, for messages: a file, or ``transform.schema``
    :param declared: whether the pipeline declares them
    :param missing_is_null: whether a file may lack some
    """

    types: Mapping[str, str]
    origin: str
    declared: bool
    missing_is_null: bool

    def refuse_misfit(self, path: str, schema: pa.Schema) -> None:
        """Raise an error if a file's records do not have these columns.

        :param path: the file, for messages
        :param schema: its columns
        :raises SourceError: naming the file, the column, and the origin of the expected one
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
                        hint="With error_handling.missing_field_behavior: null it is taken as null there.",
                    )
            elif not is_compatible(schema.field(at).type, kind):
                raise SourceError(
                    f"{path}: column {name} is {_type_name(schema.field(at).type)}, but {kind} in {self.origin}.",
                    hint="Give the file the same type, or declare one that holds both in transform.schema.",
                )
        more = [name for name in schema.names if name not in self.types]
        if more and not self.declared:
            raise SourceError(
                f"{path} has a column {more[0]}, which {self.origin} does not have.",
                hint="Declare in transform.schema which columns are wanted; the others are then left out.",
            )


def declared_columns(pipeline: Pipeline) -> RecordColumns | None:
    """Return the columns in ``transform.schema``, if there is one.

    :raises ConfigError: if it has a type that no Parquet file can store
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
    """Return the columns of one file.

    :param pipeline: the pipeline
    :param path: the file, for messages
    :param schema: its columns
    :raises SourceError: naming the file and the column, if Spark has no type for it
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
    """Return whether all values of a file's column are values of a Spark SQL type."""
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
