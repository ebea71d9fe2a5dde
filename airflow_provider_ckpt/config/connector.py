"""Declare a connector: its source, sink and dead letter store, by import path, and the models of their keys.

A distribution registers a connector as an entry point of the group ``airflow_provider_ckpt.connectors``. The entry
point's name is the ``type`` in pipelines. The object is loaded wherever a pipeline of the type is declared, even while
Airflow parses DAGs, so its module must import no driver; classes are named by import path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_ckpt.config.sink import SinkSection
from airflow_provider_ckpt.config.source import SourceSection

ImportPath = str
"""Import path of a class or function: ``package.module:name``."""

ChosenPath = ImportPath | Callable[[Any], ImportPath]
"""An import path, or a function that returns the import path for a section if it depends on the section's keys."""


@dataclass(frozen=True, slots=True)
class OutOfRangeTimes:
    """Treatment of a source's times that Spark cannot represent, such as the infinite times of PostgreSQL.

    The source's reader replaces such a time by a time before ``first_day``. The record is rejected, unless the column
    goes unchanged to a sink of the same connector that stores such times.

    :param first_day: the earliest day that a time of the source can have, in days since 1970
    :param message: end of an error message, after the column's name: the fault and the remedy, such as ``is after the
        year 294246 …; leave it out of transform.select``
    :param stored_by_own_sink: whether a sink of the same connector stores such times unchanged
    """

    first_day: int
    message: str
    stored_by_own_sink: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceType:
    """Source of a connector.

    :param section: model of the section ``source``
    :param source: class of the planning side; created with the pipeline and the connection
        (:class:`~.source_protocol.Source`)
    :param reader: class of the reading side, used in lanes; created with the pipeline, the connection and the shape of
        the records (:class:`~.source_protocol.Reader`)
    :param out_of_range_times: times of the source that Spark cannot represent; None if there are none
    :param database: class of a database whose tables are sources, for declarations of many tables; created with the
        connection (:class:`~.database_protocol.SourceDatabase`). None if the connector does not support such
        declarations
    """

    section: type[SourceSection]
    source: ChosenPath
    reader: ChosenPath
    out_of_range_times: OutOfRangeTimes | None = None
    database: ImportPath | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkType:
    """Sink of a connector; its classes are created with the pipeline, the connection and a ``SinkContext``.

    :param section: model of the section ``sink``
    :param sink: class of the control side, which fences and reads receipts (:class:`~.sink_protocol.Sink`)
    :param writer: class of the writing side, which delivers batches in lanes (:class:`~.sink_protocol.Writer`)
    :param committer: class that commits all batches of a wave at once (:class:`~.sink_protocol.Committer`), which makes
        the sink two-phase; None, or a function that returns None, if the writer commits each batch
    :param dead_letter_place: function that returns a phrase for the place where the sink stores dead letters, such as
        ``table letters of connection lake``; its arguments are the pipeline and a function that returns the connection
        with a given id. If None, the phrase names the type and place of the sink, such as ``the files sink, /out``
    :param dead_letter_keys: keys of ``dead_letter_queue`` that apply if the sink stores the dead letters
    :param conformance: name of a test module that runs the conformance suite of sinks in the database of a pipeline's
        target, on tables of its own. It finds the path of the pipeline's file in the environment variable
        ``AIRFLOW_CKPT_CONFORMANCE_FILE``. None if there is no such module
    """

    section: type[SinkSection]
    sink: ChosenPath
    writer: ChosenPath
    committer: ImportPath | Callable[[Any], ImportPath | None] | None = None
    dead_letter_place: ImportPath | None = None
    dead_letter_keys: tuple[str, ...] = ()
    conformance: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterStoreType:
    """Store of a connector for the dead letters of any sink; ``dead_letter_queue.sink`` names its type to choose it.

    :param store: class of the store; created with the pipeline, the connection and a ``SinkContext``
        (:class:`~.dead_letter_store.DeadLetterStore`)
    :param place: function that returns a phrase for the place of the dead letters, such as ``topic bad_orders of
        connection kafka``; its arguments are those of ``SinkType.dead_letter_place``
    :param keys: keys of ``dead_letter_queue`` that apply to the store: some of ``connection``, ``topic``, ``brokers``,
        ``compression``, ``table`` and ``path``
    :param needed: those of ``keys`` that are required, each with a description for the error if it is missing, such as
        ``a directory`` for ``path``
    :param needs_connection: whether the store requires a connection: that of ``dead_letter_queue.connection``, or of a
        sink or source of the same type
    :param instead_of_connection: key of ``dead_letter_queue`` that makes a connection unnecessary, such as ``brokers``;
        if a declaration has this key but no ``sink``, this store is used. None if there is no such key
    """

    store: ImportPath
    place: ImportPath
    keys: tuple[str, ...]
    needed: Mapping[str, str] = field(default_factory=dict)
    needs_connection: bool = False
    instead_of_connection: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """Declaration of a connector, with at least one of source, sink and dead letter store.

    :param source: the source; None if the connector has none
    :param sink: the sink; None if the connector has none
    :param dead_letter_store: the store for the dead letters of any sink; None if the connector has none
    :param raw_copy: class that copies rows from a source to a sink of this connector without decoding them; created
        with the pipeline, both connections, a ``SinkContext`` and the shape of the records
        (:class:`~.raw_copy_protocol.RawCopy`). A function of the sink's section if the class depends on its keys; None
        if rows are always decoded
    :param dataset: function that returns namespace and name of the source or sink by OpenLineage's rules; its arguments
        are the section and the connection. If None, both are derived from the type, the connection's host and
        :attr:`ConnectorSection.place`, such as ``kafka://broker:9092`` and ``orders``
    :param preload: names of modules that the classes import lazily, such as a driver's, which a Spark worker may import
        in advance
    :param preload_before_fork: names of modules that a scheduler may import before it forks its tasks; they must not
        import native libraries that start threads
    """

    source: SourceType | None = None
    sink: SinkType | None = None
    dead_letter_store: DeadLetterStoreType | None = None
    raw_copy: ChosenPath | None = None
    dataset: ImportPath | None = None
    preload: tuple[str, ...] = ()
    preload_before_fork: tuple[str, ...] = ()
