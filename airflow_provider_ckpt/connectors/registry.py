"""Find a connector's classes by a pipeline's source or sink type, such as ``kafka``, and import them on demand."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_ckpt.config.delivery import DeadLetterDestination
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.dead_letter_store import (
    DeadLetterStore,
    SinkWithDeadLetterStore,
    WriterWithDeadLetterStore,
)
from airflow_provider_ckpt.connectors.sink_protocol import Committer, Sink, SinkContext, Writer
from airflow_provider_ckpt.connectors.source_protocol import Reader, RecordShape, Source

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline

_SOURCES = {
    "files": ("files.source", "FilesSource"),
    "jdbc": ("jdbc.source", "JdbcSource"),
    "kafka": ("kafka.source", "KafkaSource"),
    "postgres": ("postgres.source", "PostgresSource"),
}
_READERS = {
    "files": ("files.reader", "FilesReader"),
    "jdbc": ("jdbc.reader", "JdbcReader"),
    "kafka": ("kafka.reader", "KafkaReader"),
    "postgres": ("postgres.reader", "PostgresReader"),
}
_SINKS = {
    "postgres": ("postgres.sink", "PostgresSink"),
    "delta": ("delta.sink", "DeltaSink"),
    "kafka": ("kafka.sink", "KafkaSink"),
    "files": ("files.sink", "FilesSink"),
    "iceberg": ("iceberg.sink", "IcebergSink"),
}
_WRITERS = {
    "postgres": ("postgres.writer", "PostgresWriter"),
    "delta": ("delta.writer", "DeltaWriter"),
    "kafka": ("kafka.writer", "KafkaWriter"),
    "files": ("files.writer", "FilesWriter"),
    "iceberg": ("iceberg.writer", "IcebergWriter"),
}
_DEAD_LETTER_STORES = {
    DeadLetterDestination.FILES: ("files.dead_letter_store", "FilesDeadLetterStore"),
    DeadLetterDestination.KAFKA: ("kafka.dead_letter_store", "KafkaDeadLetterStore"),
    DeadLetterDestination.POSTGRES: ("postgres.dead_letter_store", "PostgresDeadLetterStore"),
}
_TABLE_OPENERS = {
    "delta": ("delta.table_opener", "DeltaTableOpener"),
    "iceberg": ("iceberg.table_opener", "IcebergTableOpener"),
}
_TABLE_COMMITTER = ("two_phase.committer", "TableCommitter")
_DRIVERS = {
    "delta": ("deltalake", "pyarrow.parquet"),
    "files": ("numpy",),
    "iceberg": ("pyiceberg.table", "pyarrow.parquet"),
    "kafka": ("confluent_kafka.admin",),
    "postgres": ("adbc_driver_postgresql.dbapi", "psycopg2.extras"),
}
_PACKAGE = "airflow_provider_ckpt.connectors"
_PARQUET_SOURCE = ("files.parquet_source", "ParquetSource")
_PARQUET_READER = ("files.parquet_reader", "ParquetReader")


def _load(module: str, name: str) -> Any:
    return getattr(import_module(f"{_PACKAGE}.{module}"), name)


def lane_modules(pipeline: Pipeline) -> list[str]:
    """Return the names of the modules that a lane of the pipeline imports, with the drivers that they import lazily."""
    reader = _PARQUET_READER if pipeline.source.is_parquet else _READERS[pipeline.source.type]
    entries = [reader, _WRITERS[pipeline.sink.type]]
    kinds: set[str] = {pipeline.source.type, pipeline.sink.type}
    if pipeline.dead_letter_queue.in_other_store:
        entries.append(_DEAD_LETTER_STORES[pipeline.dead_letter_queue.sink])
        kinds.add(pipeline.dead_letter_queue.sink.value)
    drivers = [driver for kind in sorted(kinds) for driver in _DRIVERS.get(kind, ())]
    return [*(f"{_PACKAGE}.{module}" for module, _ in entries), *drivers]


def open_source(pipeline: Pipeline, connection: Connection | None) -> Source:
    """Create the pipeline's :class:`Source`, which plans batches."""
    entry = _PARQUET_SOURCE if pipeline.source.is_parquet else _SOURCES[pipeline.source.type]
    return cast("Source", _load(*entry)(pipeline, connection))


def open_reader(pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> Reader:
    """Create the pipeline's :class:`Reader`, with which a lane reads batches.

    :param pipeline: the pipeline
    :param connection: the source's connection
    :param shape: the columns that the source announced
    """
    entry = _PARQUET_READER if pipeline.source.is_parquet else _READERS[pipeline.source.type]
    return cast("Reader", _load(*entry)(pipeline, connection, shape))


def open_sink(
    pipeline: Pipeline, connection: Connection | None, context: SinkContext, dead_letters: Connection | None = None
) -> Sink:
    """Create the pipeline's :class:`Sink`, which fences the target and reads receipts.

    :param pipeline: the pipeline
    :param connection: the sink's connection
    :param context: ledger, pipeline and epoch
    :param dead_letters: the connection that :attr:`~.Pipeline.dead_letter_connection` names
    """
    sink = cast("Sink", _load(*_SINKS[pipeline.sink.type])(pipeline, connection, context))
    return (
        SinkWithDeadLetterStore(sink, _open_dead_letter_store(pipeline, dead_letters, context))
        if pipeline.dead_letter_queue.in_other_store
        else sink
    )


def open_writer(
    pipeline: Pipeline, connection: Connection | None, context: SinkContext, dead_letters: Connection | None = None
) -> Writer:
    """Create the pipeline's :class:`Writer`, with which a lane delivers batches.

    :param pipeline: the pipeline
    :param connection: the sink's connection
    :param context: ledger, pipeline and epoch
    :param dead_letters: the connection that :attr:`~.Pipeline.dead_letter_connection` names
    """
    writer = cast("Writer", _load(*_WRITERS[pipeline.sink.type])(pipeline, connection, context))
    queue = pipeline.dead_letter_queue
    return (
        WriterWithDeadLetterStore(writer, _open_dead_letter_store(pipeline, dead_letters, context), queue)
        if queue.in_other_store
        else writer
    )


def _open_dead_letter_store(pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> DeadLetterStore:
    return cast(
        "DeadLetterStore", _load(*_DEAD_LETTER_STORES[pipeline.dead_letter_queue.sink])(pipeline, connection, context)
    )


def is_two_phase(pipeline: Pipeline) -> bool:
    """Return whether the pipeline's sink commits a whole wave at once; no batch has a receipt before that commit."""
    return pipeline.sink.type in _TABLE_OPENERS


def open_committer(pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> Committer | None:
    """Create the :class:`Committer` of the pipeline's two-phase sink; return None if lanes commit each batch.

    :param pipeline: the pipeline
    :param connection: the sink's connection
    :param context: ledger, pipeline and epoch
    """
    if not is_two_phase(pipeline):
        return None
    opener = _load(*_TABLE_OPENERS[pipeline.sink.type])(pipeline, connection, context)
    return cast("Committer", _load(*_TABLE_COMMITTER)(pipeline, context, opener))
