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
    from airflow_provider_ckpt.connectors.raw_copy_protocol import RawCopy

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
_RAW_COPY = ("postgres.raw_copy", "PostgresRawCopy")
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
    """Return the names of the modules that a lane of the pipeline imports, with the drivers that they import lazily.

    A Spark worker can import them in advance.
    """
    reader = _PARQUET_READER if pipeline.source.is_parquet else _READERS[pipeline.source.type]
    entries = [reader, _WRITERS[pipeline.sink.type]]
    if _may_copy_raw(pipeline):
        entries.append(_RAW_COPY)
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
    :param shape: the columns that :meth:`.Source.shape` returned
    """
    entry = _PARQUET_READER if pipeline.source.is_parquet else _READERS[pipeline.source.type]
    return cast("Reader", _load(*entry)(pipeline, connection, shape))


def open_sink(
    pipeline: Pipeline, connection: Connection | None, context: SinkContext, dead_letters: Connection | None = None
) -> Sink:
    """Create the pipeline's :class:`Sink`, which fences the target and reads receipts.

    :param pipeline: the pipeline
    :param connection: the sink's connection
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param dead_letters: connection of the dead letter store (:attr:`~.Pipeline.dead_letter_connection`); None if it
        needs none
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
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param dead_letters: connection of the dead letter store (:attr:`~.Pipeline.dead_letter_connection`); None if it
        needs none
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


def open_raw_copy(
    pipeline: Pipeline, source: Connection | None, sink: Connection | None, context: SinkContext, shape: RecordShape
) -> RawCopy | None:
    """Create the pipeline's :class:`RawCopy`, which copies rows between PostgreSQL tables without decoding them.

    :param pipeline: the pipeline
    :param source: the source's connection
    :param sink: the sink's connection
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param shape: the columns that :meth:`.Source.shape` returned
    :return: None if the pipeline converts rows or has another source or sink, so that lanes must read records
    """
    if not _may_copy_raw(pipeline):
        return None
    return cast("RawCopy", _load(*_RAW_COPY)(pipeline, source, sink, context, shape))


def _may_copy_raw(pipeline: Pipeline) -> bool:
    """Return whether rows can go from source to sink as raw COPY data, judged by the pipeline's declaration alone.

    The tables themselves may still rule it out; then :meth:`.RawCopy.read` returns None.
    """
    sink = pipeline.sink
    return (
        pipeline.source.type == sink.type == "postgres"
        and pipeline.transform.passes_unchanged
        and sink.mode == "append"
        and not sink.rows_may_differ
    )


def is_two_phase(pipeline: Pipeline) -> bool:
    """Return whether the pipeline's sink commits all batches of a wave, with their receipts, in one commit."""
    return pipeline.sink.type in _TABLE_OPENERS


def open_committer(pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> Committer | None:
    """Create the :class:`Committer` of the pipeline's two-phase sink; return None if lanes commit each batch.

    :param pipeline: the pipeline
    :param connection: the sink's connection
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """
    if not is_two_phase(pipeline):
        return None
    opener = _load(*_TABLE_OPENERS[pipeline.sink.type])(pipeline, connection, context)
    return cast("Committer", _load(*_TABLE_COMMITTER)(pipeline, context, opener))
