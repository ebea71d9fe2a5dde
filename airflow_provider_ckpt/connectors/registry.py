"""Create the objects of a pipeline's connectors: source, reader, sink, writer, committer, raw copy and database.

The classes are imported on demand, from the paths that the connectors declare.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

from airflow_provider_ckpt.config.connector import ChosenPath, DeadLetterStoreType, SinkType, SourceType
from airflow_provider_ckpt.config.connector_section import ConnectorSection
from airflow_provider_ckpt.config.installed_connectors import connector_path, find_connector
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.database_protocol import SourceDatabase
from airflow_provider_ckpt.connectors.dead_letter_store import (
    DeadLetterStore,
    SinkWithDeadLetterStore,
    WriterWithDeadLetterStore,
)
from airflow_provider_ckpt.connectors.sink_protocol import Committer, Sink, SinkContext, Writer
from airflow_provider_ckpt.connectors.source_protocol import Reader, RecordShape, Source
from airflow_provider_ckpt.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.database.model import Database
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.connectors.raw_copy_protocol import RawCopy

_C = TypeVar("_C", SourceType, SinkType, DeadLetterStoreType)


def lane_modules(pipeline: Pipeline) -> list[str]:
    """Return the names of the modules that a lane of the pipeline imports, with the drivers that they import lazily.

    A Spark worker can import them in advance.
    """
    source, sink = _source_type(pipeline), _sink_type(pipeline)
    paths = [_chosen(source.reader, pipeline.source), _chosen(sink.writer, pipeline.sink)]
    raw_copy = _raw_copy_path(pipeline)
    if raw_copy is not None:
        paths.append(raw_copy)
    if pipeline.dead_letter_queue.in_other_store:
        paths.append(_dead_letter_store_type(pipeline).store)
    connectors = connector_paths(pipeline)
    drivers = [module for kind in connectors for module in find_connector(kind).preload]
    return [*(path.partition(":")[0] for path in (*connectors.values(), *paths)), *drivers]


def connector_paths(pipeline: Pipeline) -> dict[str, str]:
    """Return the import path of each connector of the pipeline, by connector type.

    They are passed to processes, such as Spark executors, in which the connectors' entry points cannot be found.
    """
    kinds = {pipeline.source.type, pipeline.sink.type}
    if pipeline.dead_letter_queue.in_other_store:
        kinds.add(pipeline.dead_letter_queue.sink)
    return {kind: connector_path(kind) for kind in sorted(kinds)}


def open_source(pipeline: Pipeline, connection: Connection | None) -> Source:
    """Create the pipeline's :class:`Source`, which plans batches.

    :param pipeline: the pipeline
    :param connection: the source's connection
    """
    path = _chosen(_source_type(pipeline).source, pipeline.source)
    return cast("Source", load(path)(pipeline, connection))


def open_database(database: Database, connection: Connection | None) -> SourceDatabase:
    """Create the :class:`SourceDatabase` from which a declaration of many tables selects its tables.

    :param database: the declaration of many tables
    :param connection: the connection of its source
    :raises ConfigError: if the connector does not support declarations of many tables
    """
    source = find_connector(database.source_type).source
    if source is None or source.database is None:
        raise ConfigError(
            f"{database.file}: defaults.source.type: {database.source_type} cannot be the source of many tables.",
            hint="Write a file of its own for each pipeline.",
        )
    return cast("SourceDatabase", load(source.database)(connection))


def open_reader(pipeline: Pipeline, connection: Connection | None, shape: RecordShape) -> Reader:
    """Create the pipeline's :class:`Reader`, with which a lane reads batches.

    :param pipeline: the pipeline
    :param connection: the source's connection
    :param shape: the columns that :meth:`.Source.shape` returned
    """
    path = _chosen(_source_type(pipeline).reader, pipeline.source)
    return cast("Reader", load(path)(pipeline, connection, shape))


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
    sink = cast("Sink", load(_chosen(_sink_type(pipeline).sink, pipeline.sink))(pipeline, connection, context))
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
    writer = cast("Writer", load(_chosen(_sink_type(pipeline).writer, pipeline.sink))(pipeline, connection, context))
    queue = pipeline.dead_letter_queue
    return (
        WriterWithDeadLetterStore(writer, _open_dead_letter_store(pipeline, dead_letters, context), queue)
        if queue.in_other_store
        else writer
    )


def _open_dead_letter_store(pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> DeadLetterStore:
    return cast("DeadLetterStore", load(_dead_letter_store_type(pipeline).store)(pipeline, connection, context))


def open_raw_copy(
    pipeline: Pipeline, source: Connection | None, sink: Connection | None, context: SinkContext, shape: RecordShape
) -> RawCopy | None:
    """Create the pipeline's :class:`RawCopy`, which copies rows from source to sink without decoding them.

    :param pipeline: the pipeline
    :param source: the source's connection
    :param sink: the sink's connection
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    :param shape: the columns that :meth:`.Source.shape` returned
    :return: None if the pipeline converts rows, or source and sink have no raw copy, so that lanes must read records
    """
    path = _raw_copy_path(pipeline)
    return None if path is None else cast("RawCopy", load(path)(pipeline, source, sink, context, shape))


def _raw_copy_path(pipeline: Pipeline) -> str | None:
    """Return the import path of the class that copies rows raw; None if there is none or the declaration rules it out.

    The source and target themselves may still rule it out; then :meth:`.RawCopy.read` returns None.
    """
    same = pipeline.source.type == pipeline.sink.type
    unchanged = pipeline.transform.passes_unchanged and pipeline.sink.takes_raw_rows
    path = find_connector(pipeline.sink.type).raw_copy if same and unchanged else None
    return None if path is None else _chosen(path, pipeline.sink)


def is_two_phase(pipeline: Pipeline) -> bool:
    """Return whether the pipeline's sink commits all batches of a wave, with their receipts, in one commit."""
    return _committer_path(pipeline) is not None


def open_committer(pipeline: Pipeline, connection: Connection | None, context: SinkContext) -> Committer | None:
    """Create the :class:`Committer` of the pipeline's two-phase sink; return None if lanes commit each batch.

    :param pipeline: the pipeline
    :param connection: the sink's connection
    :param context: ids of the ledger and the pipeline, and the epoch of the run
    """
    path = _committer_path(pipeline)
    return None if path is None else cast("Committer", load(path)(pipeline, connection, context))


def _committer_path(pipeline: Pipeline) -> str | None:
    committer = _sink_type(pipeline).committer
    return committer(pipeline.sink) if callable(committer) else committer


def load(path: str) -> Any:
    """Import a class or function of a connector.

    :param path: import path of the class or function: ``package.module:name``
    """
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _chosen(path: ChosenPath, section: ConnectorSection) -> str:
    return path if isinstance(path, str) else path(section)


def _source_type(pipeline: Pipeline) -> SourceType:
    return _existing(find_connector(pipeline.source.type).source)


def conformance_tests(pipeline: Pipeline) -> str | None:
    """Return the name of the test module with the conformance suite of the pipeline's sink; None if there is none."""
    return _sink_type(pipeline).conformance


def _sink_type(pipeline: Pipeline) -> SinkType:
    return _existing(find_connector(pipeline.sink.type).sink)


def _dead_letter_store_type(pipeline: Pipeline) -> DeadLetterStoreType:
    return _existing(find_connector(pipeline.dead_letter_queue.sink).dead_letter_store)


def _existing(part: _C | None) -> _C:
    assert part is not None, "validation of the declaration has found it"
    return part
