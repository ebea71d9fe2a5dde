"""Define the inputs of runs and users' actions: pipeline, ledger, lease owner, connections, open source and sink."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_ckpt.connectors import registry
from airflow_provider_ckpt.connectors.connection import Connection
from airflow_provider_ckpt.connectors.sink_protocol import (
    Sink,
    SinkContext,
    SinkThatCreatesTarget,
    SinkWithSchemaChanges,
    unwrapped,
)
from airflow_provider_ckpt.connectors.source_protocol import DescribesColumns, Source
from airflow_provider_ckpt.core.errors import ConfigError
from airflow_provider_ckpt.replication.metric_names import NO_METER, Meter
from airflow_provider_ckpt.replication.own_output import refuse_own_output
from airflow_provider_ckpt.replication.refuse_unsupported_delivery import refuse_unsupported_delivery
from airflow_provider_ckpt.replication.turn import Turn

if TYPE_CHECKING:
    from airflow_provider_ckpt.config.pipeline import Pipeline
    from airflow_provider_ckpt.core.schema_version import SchemaVersion, SourceColumn
    from airflow_provider_ckpt.ledger.ledger import Ledger
    from airflow_provider_ckpt.ledger.types import Lease
    from airflow_provider_ckpt.replication.run.lease_renewal import LeaseRenewals


@dataclass(frozen=True)
class PipelineContext:
    """Configuration and dependencies of a run or of a user's action on a pipeline.

    :param pipeline: the pipeline's declaration
    :param ledger: the ledger, open
    :param connections: function that returns the connection of an id, or raises :class:`ConfigError`
    :param owner: name of the lease's owner (see ``process_lease_owner.py``)
    :param on_lease: called with each lease as soon as it is held, so that it can be released if the run is killed
    :param meter: destination of the run's metrics
    :param function: the transform's serialized Python function; None unless the task that runs the pipeline provides it
    :param check: called repeatedly while a run works or waits; it raises an error if the run must stop
    :param renewals: thread that renews the lease together with the leases of other runs in this process; None for a
        thread of the run's own
    :param turn: the run's permission to execute waves, which it shares with other runs of the process, see ``turn.py``
    """

    pipeline: Pipeline
    ledger: Ledger
    connections: Callable[[str], Connection]
    owner: str
    on_lease: Callable[[Lease], None] = lambda _: None
    meter: Meter = NO_METER
    function: bytes | None = None
    check: Callable[[], None] = lambda: None
    renewals: LeaseRenewals | None = None
    turn: Turn = field(default_factory=Turn)

    @property
    def sink_id(self) -> str:
        """Id of the ledger under which the sink stores this pipeline's receipts.

        If the pipeline has adopted the receipts of another ledger, this is the other ledger's id.
        """
        return self.ledger.sink_id(self.pipeline.name)

    @property
    def packed_function(self) -> bytes | None:
        """The serialized Python function of the transform, if the task that runs the pipeline provides it; else None.

        :raises ConfigError: if the pipeline needs a function that another task provides
        """
        if self.pipeline.transform.is_task_function and self.function is None:
            raise ConfigError(
                "transform.python: task needs the function of a task, and this is not that task.",
                pipeline=self.pipeline.name,
                hint="Run the DAG whose @task.ckpt_batch defines it, or name a function that can be imported.",
            )
        return self.function

    def connection(self, name: str | None) -> Connection | None:
        """Return the Airflow connection with the given id; None if the id is None or empty.

        :param name: id of the connection
        :raises ConfigError: if there is no such connection
        """
        return self.connections(name) if name else None

    def open_sink(self) -> Sink:
        """Open the pipeline's sink with its dead letter store, and return the sink; the caller closes it."""
        pipeline = self.pipeline
        return registry.open_sink(
            pipeline,
            self.connection(pipeline.sink.connection),
            SinkContext(self.sink_id, pipeline.name),
            self.connection(pipeline.dead_letter_connection),
        )


class OpenConnectors:
    """Source and sink of a pipeline: creating this object opens them, and :meth:`close` closes them.

    :param setup: the pipeline with its ledger, connections and lease owner
    """

    def __init__(self, setup: PipelineContext) -> None:
        pipeline = setup.pipeline
        self._pipeline = pipeline
        self.source = registry.open_source(pipeline, setup.connection(pipeline.source.connection))
        self.sink = setup.open_sink()
        pass_source_columns(pipeline, self.source, self.sink, setup.ledger)

    def check(self) -> None:
        """Check that source and sink can do what the pipeline asks for, before anything starts; change nothing.

        :raises ConfigError: if the sink cannot deliver exactly once and the pipeline requires it, if the source reads
            the sink's output, or if the check of source or sink refuses the pipeline
        :raises CkptError: if source or sink cannot be reached
        """
        refuse_unsupported_delivery(self._pipeline, self.sink)
        self.source.check()
        self.sink.check()
        self.refuse_own_output()

    def refuse_own_output(self) -> None:
        """Raise an error if the source reads the place to which the sink writes.

        :raises ConfigError: if it does; the error names the configuration key of the source and the place
        """
        refuse_own_output(self._pipeline, self.source, self.sink)

    def close(self) -> None:
        """Close source and sink."""
        self.source.close()
        self.sink.close()


def pass_source_columns(pipeline: Pipeline, source: Source, sink: Sink, ledger: Ledger | None = None) -> None:
    """Pass the source's columns to a sink that creates a missing target, if the pipeline declares this.

    If schema versions are known, the target gets the columns of the newest version: the next batches are read under
    that version, and the source may have dropped, altered or added columns since.

    :param pipeline: the pipeline's declaration
    :param source: its source, open
    :param sink: its sink, open
    :param ledger: the ledger; None if only the declaration is checked, which has no versions
    """
    if not pipeline.sink.creates_target:
        return
    opened = unwrapped(sink)
    assert isinstance(source, DescribesColumns)
    assert isinstance(opened, SinkThatCreatesTarget)
    if ledger is None or pipeline.schema_ is None:
        opened.create_target_from(source.columns)
        return

    def columns() -> Sequence[SourceColumn]:
        newest = _newest_version(pipeline, source, opened, ledger)
        return source.columns() if newest is None else newest.target_columns

    opened.create_target_from(columns)


def _newest_version(pipeline: Pipeline, source: Source, sink: object, ledger: Ledger) -> SchemaVersion | None:
    """Return the newest schema version of the pipeline, from the ledger or the sink; None if there is none.

    After a crash, the sink may have a version that the ledger lacks.

    :param pipeline: the pipeline's declaration
    :param source: its source, open
    :param sink: its sink, open
    :param ledger: the ledger
    """
    assert isinstance(sink, SinkWithSchemaChanges)
    [partition] = [partition.id for partition in source.partitions()]
    known = [*ledger.schema_versions(pipeline.name, partition), *sink.schema_versions()]
    versions = [version for version in known if version.partition == partition]
    return max(versions, key=lambda version: version.number, default=None)


def stored_pipeline(ledger: Ledger, name: str, *, instead: str) -> Pipeline:
    """Return a pipeline's declaration as its newest run stored it in the ledger.

    :param ledger: the ledger
    :param name: name of the pipeline
    :param instead: means by which a user may give another declaration, for messages, such as ``--file``
    :raises ConfigError: if the ledger does not know the pipeline, or no run has stored its declaration
    """
    from airflow_provider_ckpt.config.load import build

    document = ledger.status(name)["declaration"]
    if document is None:
        raise ConfigError(
            "the ledger holds no declaration of the pipeline, because it has never run.",
            pipeline=name,
            hint=f"Name its file with {instead}.",
        )
    return build(document, f"the stored declaration of {name} ({instead} replaces it)")


def utcnow() -> datetime:
    """Return the current time in UTC, with a zone."""
    return datetime.now(UTC)
